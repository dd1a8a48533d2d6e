"""A device's part in a run: iterations, each with a gradient step at its end, and what they leave behind.

It does not know what an iteration does: a `Device` carries that out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from placements.placement_file import placement_to_dict
from runtime.checkpoints.training_state import TrainingState
from runtime.codegen.script import Script, check_script
from runtime.execution.device_context import DeviceContext, device_context
from runtime.execution.process import Process
from runtime.execution.results import DONE, Position, Progress, write_progress, write_summary, write_tensors
from runtime.execution.run_options import RunOptions
from runtime.loops.iterations import BlockLoss, Iterations
from runtime.loops.post_validated import PostValidatedIterations
from runtime.loops.run_checkpoints import RunCheckpoints, TerminatedError, Termination, termination
from runtime.models import Model, ParameterShard, save_state_dict_file
from runtime.orders.offered import ProgramFolder, ProgramSwitch
from runtime.plans.plan_client import PlanSource
from runtime.profiling.process_memory import peak_rss_mib
from runtime.training.post_validation import Validated
from runtime.transport.agreement import not_finite
from runtime.transport.protocol import Transport

_Told = tuple[float, Sequence[BlockLoss], bool]
"""What a device tells the others of an iteration: milliseconds, losses, and whether it was told to end."""

Connect = Callable[[Script, Process], AbstractContextManager[Transport]]
"""Connects a device to the others, and takes that down again."""


def run_device(script: Script, process: Process, connect: Connect, plans: PlanSource | None = None) -> None:
    """Be one device of a run.

    Args:
        script: Script of this device.
        process: Number of the device, and the options of the run.
        connect: Reaches the other devices.
        plans: Where device 0 looks for newer clocks between iterations; by default the server and job of the
            environment, if it names them.

    Raises:
        ScriptError: The script does not run each of its blocks once, takes what was not made, or the run
            cannot be resumed.
        TransferError: A tensor did not arrive or could not be sent.
    """
    script = script.at(process.options.num_micro_batches).of_stages
    check_script(script, process.device, process.num_devices)
    position = Position(process.options.results, process.device)
    position.move("connecting")
    with connect(script, process) as transport:
        torch.set_num_threads(1)  # Results depend on the number of threads.
        with device_context(script, process, transport, position, plans) as context:
            train(context)
            position.move(DONE)
    position.close()


def train(context: DeviceContext) -> None:
    """Run all iterations, from the newest checkpoint on if there is one, and leave behind what they gave.

    Each begins with the newest of the plans; with a profiler the last one is that in which all have ended.

    Raises:
        ScriptError: The run cannot be resumed.
        CheckpointError: A checkpoint could not be written.
        PipelineError: A loss is not finite; checkpoints are as they were before that iteration.
        TerminatedError: The process was told to end, and all that was done is in a checkpoint.
    """
    with termination(context.process.options) as asked:
        try:
            _train(context, asked)
        except TerminatedError as ended:
            _report(context.process, str(ended))
            raise


def _train(context: DeviceContext, asked: Termination) -> None:
    script, process, transport, model = context.script, context.process, context.transport, context.model
    options = process.options
    iterations = Iterations(context)
    _report(process, context.profiler.description if context.profiler else context.clocks.clock.description)
    checkpoints = RunCheckpoints(script, process, transport)
    resumed = checkpoints.resume(_state(model))
    model.optimizer.load_shared_state(resumed.extra.get("optimizer", {}))
    for note in resumed.notes:
        _report(process, note)
    first = resumed.iterations
    training = _Training(context, iterations, checkpoints, asked)
    if options.post_validation:
        _train_post_validated(training, first)
    else:
        source = None if options.programs is None else ProgramFolder(options.programs)
        _train_with_barriers(training, first, ProgramSwitch(context, source))
    checkpoints.wait()
    if options.verify == "all":
        _keep(process, "parameters", model.state())
    if options.save_weights is not None:
        save_state_dict_file(model, options.save_weights, transport.collect, process.device == 0)
    if options.trace_file:
        _draw(options.trace_file, context)
    if options.results:
        done = {"first_iteration": first, **training.done}
        write_summary(options.results, process.device, done | _measured(context) | _facts(context))


@dataclass
class _Training:
    """What iterations of either kind share.

    Attributes:
        context: What the device runs with.
        iterations: Its iterations.
        checkpoints: Its checkpoints.
        asked: Whether it was told to end.
        times_ms: Length of each iteration.
        losses: Losses of each.
        orders: What the device ran, from these iterations on.
        plans: The plans that were followed: the first iteration, the version, and the planned time in ms.
    """

    context: DeviceContext
    iterations: Iterations
    checkpoints: RunCheckpoints
    asked: Termination
    times_ms: list[float] = field(default_factory=list)
    losses: list[list[BlockLoss]] = field(default_factory=list)
    orders: list[tuple[int, list[tuple[str, int]]]] = field(default_factory=list)
    plans: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def options(self) -> RunOptions:
        """Options of the run."""
        return self.context.process.options

    @property
    def done(self) -> dict[str, Any]:
        """What is written of all iterations."""
        return {
            "time_ms": self.times_ms,
            "losses": self.losses,
            "orders": self.orders,
            "plans": self.plans,
        }

    def follow_plan(self, index: int) -> None:
        """Go over to a newer plan, if there is one."""
        if plan := self.iterations.follow_plan():
            self.plans.append((index, plan.version, plan.time_ms))
            line = f"iteration {index}: from here on plan {plan.version}, of {plan.time_ms:.1f} ms"
            _report(self.context.process, line)

    def end(self, index: int, time_ms: float) -> _Told:
        """Take note of an iteration that was run; return what all others are told of it."""
        self.times_ms.append(time_ms)
        self.losses.append(self.iterations.losses())
        order = self.context.device.order
        if not self.orders or (self.options.verifies(index) and self.orders[-1][1] != order):
            self.orders.append((index, order))
        return time_ms, self.losses[-1], self.asked.is_asked

    def keep_gradients(self, index: int) -> None:
        """Write the gradients of an iteration that is compared."""
        if self.options.verifies(index):
            _keep(self.context.process, f"gradients_{index}", self.context.model.gradients())

    def keep_parameters(self, index: int) -> None:
        """Write the parameters after it, if it alone is compared."""
        if self.options.verify == "first" and self.options.verifies(index):
            _keep(self.context.process, "parameters", self.context.model.state())

    def save(self, index: int, is_asked: bool) -> None:
        """Begin a checkpoint after an iteration if it is due, or a device was told to end."""
        ends = is_asked and index + 1 < self.options.iterations
        self.checkpoints.after_iteration(index + 1, _state(self.context.model), ends)


def _train_with_barriers(training: _Training, first: int, switch: ProgramSwitch) -> None:
    """Run iterations each of which begins on all devices when the last step has been taken on all."""
    context, iterations, options = training.context, training.iterations, training.options
    notes = [_follow_program(iterations, switch, context.process, first)]
    for index in range(first, options.iterations):
        training.follow_plan(index)
        told = training.end(index, iterations.timed(index))
        iterations.update.prepare()
        training.keep_gradients(index)
        iterations.update.step()
        training.keep_parameters(index)
        if index + 1 < options.iterations:
            notes.append(_follow_program(iterations, switch, context.process, index + 1))
        note = "\n".join(filter(None, notes))
        is_asked, losses = _share_progress(context, index, context.transport.collect(told), note)
        notes = []
        _check_finite(context, index, losses)
        training.save(index, is_asked)
        if context.profiler is not None and context.profiler.all_done():
            break


def _train_post_validated(training: _Training, first: int) -> None:
    """Run iterations that begin before it is known whether the last step was to be clipped.

    It is known at once after an iteration whose state is written.
    """
    context, options = training.context, training.options
    early = PostValidatedIterations(context, training.iterations)
    is_asked, settled = False, first

    def settle() -> Validated:
        nonlocal is_asked, settled
        index = settled
        settled += 1
        validated = early.settle(partial(training.keep_gradients, index))
        note = ""
        if validated.again:
            norm = f"the norm of all gradients is {validated.norm:.4g}"
            note = f"iteration {index}: {norm}, so they were clipped, and the step was done again"
            _report(context.process, note)
        is_asked, losses = _share_progress(context, index, validated.told, note)
        _check_finite(context, index, losses)
        return validated

    for index in range(first, options.iterations):
        early.step(training.end(index, early.run(index, settle)))
        every = options.checkpoint_every
        is_saved = every and (index + 1) % every == 0
        is_kept = options.verify == "first" and options.verifies(index)
        if is_saved or is_kept or is_asked or index + 1 == options.iterations:
            settle()
            training.keep_parameters(index)
            training.save(index, is_asked)


def _state(model: Model) -> TrainingState:
    """Return what a checkpoint keeps of a model."""
    return TrainingState(model.state(), model.optimizer, {"optimizer": model.optimizer.shared_state()})


def _follow_program(iterations: Iterations, switch: ProgramSwitch, process: Process, iteration: int) -> str:
    """Go over to the program of an iteration; return what there is to tell."""
    if not switch.is_used:
        return ""
    script, note = switch.decide(iteration)
    iterations.follow_program(script)
    if note:
        _report(process, note)
    return note


def _draw(path: Path, context: DeviceContext) -> None:
    """Collect what all devices recorded; device 0 draws it."""
    from runtime.profiling.trace import write_trace  # loads the solvers of plans, which no other run needs

    records = context.transport.collect(context.records)
    if context.process.device == 0:
        write_trace(path, context.script.placement, records)


def _measured(context: DeviceContext) -> dict[str, Any]:
    """Return what the device did, beside times and losses."""
    device = context.device
    measured: dict[str, Any] = {"peak_posted_bytes": device.peak_posted_bytes}
    measured["peak_host_bytes"] = context.blocks.peak_host_bytes
    measured["peak_gathered_bytes"] = context.model.peak_gathered_bytes
    if context.profiler is not None:
        measured["profile"] = context.profiler.result().to_plain()
    if context.process.options.trace:
        measured["records"] = [record.to_plain() for record in context.records]
    return measured


def _facts(context: DeviceContext) -> dict[str, Any]:
    """Return what was run, and on what."""
    return {
        "model": asdict(context.script.model),
        "placement": placement_to_dict(context.script.placement),
        "num_micro_batches": context.script.num_micro_batches,
        "left_out": sorted(context.script.left_out),
        "clock_requests": context.clocks.clock.requests,
        "clock_backend": context.clocks.clock.description,
        "backend": context.process.options.backend,
        "device_name": _name(context.transport.device),
        "peak_rss_mib": peak_rss_mib(),
        "rss_after_import_mib": context.rss_after_import_mib,
    }


def _keep(process: Process, name: str, tensors: Mapping[ParameterShard, Tensor]) -> None:
    if process.options.results:
        write_tensors(process.options.results, process.device, name, tensors)


def _share_progress(
    context: DeviceContext, index: int, collected: Sequence[_Told], note: str
) -> tuple[bool, dict[tuple[str, int], float]]:
    """Let device 0 report what the devices know of an iteration.

    Returns:
        Whether any device was told to end, and the losses of all; the same everywhere.
    """
    process, results = context.process, context.process.options.results
    is_asked_of_any = any(asked for _, _, asked in collected)
    by_instance = {(block, n): loss for _, rows, _ in collected for block, n, loss in rows}
    if process.device == 0:
        slowest_ms = max(device_ms for device_ms, _, _ in collected)
        mean = sum(by_instance.values()) / context.script.num_micro_batches
        progress = Progress(index, mean, slowest_ms, note)
        if results:
            write_progress(results, progress)
        _report(process, str(progress))
    return is_asked_of_any, by_instance


def _check_finite(context: DeviceContext, index: int, losses: Mapping[tuple[str, int], float]) -> None:
    """Ensure that the losses of an iteration say something, before a checkpoint keeps what came of them.

    Raises:
        PipelineError: On all devices, if one is not finite; the message names the device that has it.
    """
    for (block, n), loss in losses.items():
        if not math.isfinite(loss):
            device = context.script.placement.by_name[block].devices[0]
            raise not_finite(device, f"iteration {index}", block, n, loss)


def _report(process: Process, line: str) -> None:
    """Tell the user who started the scripts by hand; a launch reads the results."""
    if process.device == 0 and not process.options.results:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
