"""A device's part in a run: iterations, each with a gradient step at its end, and what they leave behind.

It does not know what an iteration does: a `Device` carries that out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from placements.placement_file import placement_to_dict
from runtime.codegen.script import Script, check_script
from runtime.execution import checkpoint
from runtime.execution.device import Device
from runtime.execution.device_context import DeviceContext, device_context
from runtime.execution.process_memory import peak_rss_mib
from runtime.execution.results import DONE, Position, Progress, write_progress, write_summary, write_tensors
from runtime.execution.run_options import RunOptions
from runtime.models import ParameterShard, save_state_dict_file
from runtime.plans.plan_client import PlanSource
from runtime.transport.protocol import Transport

Loss = tuple[str, int, float]
"""(block, micro-batch, loss)."""

Connect = Callable[[Script, RunOptions], AbstractContextManager[Transport]]
"""Connects a device to the others, and takes that down again."""


def run_device(
    script: Script, options: RunOptions, connect: Connect, plans: PlanSource | None = None
) -> None:
    """Be one device of a run.

    Args:
        script: Of this device.
        options: Which device it is, and what to do.
        connect: Reaches the other devices.
        plans: Where device 0 looks for newer clocks between iterations; by default the server and job of the
            environment, if it names them.

    Raises:
        ScriptError: The script does not run each of its blocks once, takes what was not made, or the run
            cannot be resumed.
        TransferError: A tensor did not arrive or could not be sent.
    """
    script = script.at(options.num_micro_batches)
    check_script(script, options.device, options.num_devices)
    position = Position(options.results, options.device)
    position.move("connecting")
    with connect(script, options) as transport:
        torch.set_num_threads(1)  # Results depend on the number of threads.
        with device_context(script, options, transport, position, plans) as context:
            train(context)
            position.move(DONE)
    position.close()


def train(context: DeviceContext) -> None:
    """Run all iterations, from the newest checkpoint on if there is one, and leave behind what they gave.

    Each begins with the newest of the plans; with a profiler the last one is that in which all have ended.

    Raises:
        ScriptError: The run cannot be resumed.
    """
    script, options, transport, model = context.script, context.options, context.transport, context.model
    replicas = transport.connect_teams(model.teams_of_replicas())
    _report(options, context.profiler.description if context.profiler else context.clocks.clock.description)
    first = checkpoint.resume(script, options, transport, model) if options.resume else 0
    times_ms: list[float] = []
    losses: list[list[Loss]] = []
    for index in range(first, options.iterations):
        _follow_plan(context, index)
        times_ms.append(timed_iteration(script, context.device, index, transport))
        losses.append([(*instance, float(loss)) for instance, loss in context.blocks.losses.items()])
        model.sum_replicas(replicas)
        if options.verifies(index):
            _keep(options, f"gradients_{index}", model.gradients())
        model.step()
        if options.verify == "first" and options.verifies(index):
            _keep(options, "parameters", model.parameters)
        if checkpoint.is_due(options, index + 1):
            checkpoint.save(script, options, transport, model, index + 1)
        _share_progress(context, index, times_ms[-1], losses[-1])
        if context.profiler is not None and context.profiler.all_done():
            break
    if options.verify == "all":
        _keep(options, "parameters", model.parameters)
    if options.save_weights is not None:
        save_state_dict_file(model, options.save_weights, transport.collect, options.device == 0)
    if options.trace:
        _draw(options.trace, context)
    if options.results:
        done = {"first_iteration": first, "time_ms": times_ms, "losses": losses}
        write_summary(options.results, options.device, done | _measured(context) | _facts(context))


def _follow_plan(context: DeviceContext, iteration: int) -> None:
    """Go over to a newer plan, if there is one."""
    plan = context.plans.at_iteration_boundary()
    if plan is not None:
        context.clocks.follow(plan.clock_mhz)
        line = f"iteration {iteration}: from here on plan {plan.version}, of {plan.time_ms:.1f} ms"
        _report(context.options, line)


def _draw(path: Path, context: DeviceContext) -> None:
    """Collect what all devices recorded; device 0 draws it."""
    from runtime.profiling.trace import write_trace  # loads the solvers of plans, which no other run needs

    records = context.transport.collect(context.records)
    if context.options.device == 0:
        write_trace(path, context.script.placement, records)


def timed_iteration(script: Script, device: Device, index: int, transport: Transport) -> float:
    """Run one iteration and return the milliseconds from the common start to this device's end."""
    if transport.device.type == "cuda":
        torch.cuda.synchronize()  # the gradient step of the iteration before may still run
    transport.barrier()
    start_s = time.perf_counter()
    device.begin(index)
    script.iteration(device, script.num_micro_batches)
    device.finish()
    return (time.perf_counter() - start_s) * 1000


def _measured(context: DeviceContext) -> dict[str, Any]:
    """Return what the device did, beside times and losses."""
    device = context.device
    measured: dict[str, Any] = {"order": device.order, "peak_posted_bytes": device.peak_posted_bytes}
    if context.profiler is not None:
        measured["profile"] = context.profiler.result().to_plain()
    if context.options.records:
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
        "backend": context.options.backend,
        "device_name": _name(context.transport.device),
        "peak_rss_mib": peak_rss_mib(),
        "rss_after_import_mib": context.rss_after_import_mib,
    }


def _keep(options: RunOptions, name: str, tensors: Mapping[ParameterShard, Tensor]) -> None:
    if options.results:
        write_tensors(options.results, options.device, name, tensors)


def _share_progress(context: DeviceContext, index: int, time_ms: float, losses: Sequence[Loss]) -> None:
    """Collect what the devices know of an iteration; device 0 reports it."""
    options = context.options
    collected = context.transport.collect((time_ms, losses))
    if options.device != 0:
        return
    by_instance = {(block, n): loss for _, rows in collected for block, n, loss in rows}
    slowest_ms = max(device_ms for device_ms, _ in collected)
    progress = Progress(index, sum(by_instance.values()) / context.script.num_micro_batches, slowest_ms)
    if options.results:
        write_progress(options.results, progress)
    _report(options, str(progress))


def _report(options: RunOptions, line: str) -> None:
    """Tell the user who started the scripts by hand; a launch reads the results."""
    if options.device == 0 and not options.results:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
