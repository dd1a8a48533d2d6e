"""A device's part in a run: iterations, each with a gradient step at its end, and what they leave behind.

It does not know what an iteration does: a `Device` carries that out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
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
from runtime.loops.iterations import BlockLoss, Iterations
from runtime.loops.run_checkpoints import RunCheckpoints, TerminatedError, Termination, termination
from runtime.models import Model, ParameterShard, save_state_dict_file
from runtime.plans.plan_client import PlanSource
from runtime.profiling.process_memory import peak_rss_mib
from runtime.transport.agreement import not_finite
from runtime.transport.protocol import Transport

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
    script = script.at(process.options.num_micro_batches)
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
    times_ms: list[float] = []
    losses: list[list[BlockLoss]] = []
    for index in range(first, options.iterations):
        _follow_plan(iterations, process, index)
        times_ms.append(iterations.timed(index))
        losses.append(iterations.losses())
        iterations.update.prepare()
        if options.verifies(index):
            _keep(process, f"gradients_{index}", model.gradients())
        iterations.update.step()
        if options.verify == "first" and options.verifies(index):
            _keep(process, "parameters", model.state())
        is_asked, all_losses = _share_progress(context, index, times_ms[-1], losses[-1], asked.is_asked)
        _check_finite(context, index, all_losses)
        checkpoints.after_iteration(index + 1, _state(model), is_asked and index + 1 < options.iterations)
        if context.profiler is not None and context.profiler.all_done():
            break
    checkpoints.wait()
    if options.verify == "all":
        _keep(process, "parameters", model.state())
    if options.save_weights is not None:
        save_state_dict_file(model, options.save_weights, transport.collect, process.device == 0)
    if options.trace_file:
        _draw(options.trace_file, context)
    if options.results:
        done = {"first_iteration": first, "time_ms": times_ms, "losses": losses}
        write_summary(options.results, process.device, done | _measured(context) | _facts(context))


def _state(model: Model) -> TrainingState:
    """Return what a checkpoint keeps of a model."""
    return TrainingState(model.state(), model.optimizer, {"optimizer": model.optimizer.shared_state()})


def _follow_plan(iterations: Iterations, process: Process, iteration: int) -> None:
    """Go over to a newer plan, if there is one."""
    plan = iterations.follow_plan()
    if plan is not None:
        line = f"iteration {iteration}: from here on plan {plan.version}, of {plan.time_ms:.1f} ms"
        _report(process, line)


def _draw(path: Path, context: DeviceContext) -> None:
    """Collect what all devices recorded; device 0 draws it."""
    from runtime.profiling.trace import write_trace  # loads the solvers of plans, which no other run needs

    records = context.transport.collect(context.records)
    if context.process.device == 0:
        write_trace(path, context.script.placement, records)


def _measured(context: DeviceContext) -> dict[str, Any]:
    """Return what the device did, beside times and losses."""
    device = context.device
    measured: dict[str, Any] = {"order": device.order, "peak_posted_bytes": device.peak_posted_bytes}
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
    context: DeviceContext, index: int, time_ms: float, losses: Sequence[BlockLoss], is_asked: bool
) -> tuple[bool, dict[tuple[str, int], float]]:
    """Collect what the devices know of an iteration; device 0 reports it.

    Returns:
        Whether any device was told to end, and the losses of all; the same everywhere.
    """
    process, results = context.process, context.process.options.results
    collected = context.transport.collect((time_ms, losses, is_asked))
    is_asked_of_any = any(asked for _, _, asked in collected)
    by_instance = {(block, n): loss for _, rows, _ in collected for block, n, loss in rows}
    if process.device == 0:
        slowest_ms = max(device_ms for device_ms, _, _ in collected)
        progress = Progress(index, sum(by_instance.values()) / context.script.num_micro_batches, slowest_ms)
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
