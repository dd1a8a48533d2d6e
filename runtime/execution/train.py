"""Iterations one after another, each with a gradient step at its end, and what they leave behind.

It does not know what an iteration does: a `Device` carries that out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from placements.placement_file import placement_to_dict
from runtime.clocks.clock import Clock
from runtime.codegen.script import Script
from runtime.execution import checkpoint
from runtime.execution.results import Progress, write_progress, write_summary, write_tensors
from runtime.execution.run_options import RunOptions
from runtime.models import Blocks, Model, ParameterShard
from runtime.models.blocks import Instance
from runtime.plans.shared_plans import SharedPlans
from runtime.profiling.device_profiler import DeviceProfiler
from runtime.profiling.recorder import Recorder
from runtime.transport.protocol import Transport

Loss = tuple[str, int, float]
"""(block, micro-batch, loss)."""


class Runner(Protocol):
    """A `runtime.execution.entry.Device`, as far as iterations go."""

    order: list[Instance]
    peak_posted_bytes: int
    recorder: Recorder

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""

    def follow(self, clock_mhz: Mapping[str, Sequence[int]]) -> None:
        """Take these clocks from now on."""

    def finish(self) -> None:
        """Wait for the end of all that was begun."""


@dataclass(frozen=True)
class Part:
    """What a process runs, and with what.

    Attributes:
        script: Of the device.
        options: How it takes part in the run.
        transport: Reaches the other devices.
        device: Carries the script's calls out.
        model: Its parameters.
        blocks: Its blocks, which the device runs.
        clock: Takes the requests for clocks.
        plans: Newer clocks than the script's.
        profiler: Measures the blocks, if that is what the run is for.
    """

    script: Script
    options: RunOptions
    transport: Transport
    device: Runner
    model: Model
    blocks: Blocks
    clock: Clock
    plans: SharedPlans
    profiler: DeviceProfiler | None = None


def train(part: Part) -> None:
    """Run all iterations, from the newest checkpoint on if there is one, and leave behind what they gave.

    Each begins with the newest of the plans; with a profiler the last one is that in which all have ended.

    Raises:
        ScriptError: The run cannot be resumed.
    """
    script, options, transport, model = part.script, part.options, part.transport, part.model
    replicas = transport.connect_teams(model.teams_of_replicas())
    _report(options, part.profiler.description if part.profiler else part.clock.description)
    first = checkpoint.resume(script, options, transport, model) if options.resume else 0
    times_ms: list[float] = []
    losses: list[list[Loss]] = []
    for index in range(first, options.iterations):
        _follow_plan(part, index)
        times_ms.append(timed_iteration(script, part.device, index, transport))
        losses.append([(*instance, float(loss)) for instance, loss in part.blocks.losses.items()])
        model.sum_replicas(replicas)
        _keep(options, f"gradients_{index}", model.gradients())
        model.step()
        if checkpoint.is_due(options, index + 1):
            checkpoint.save(script, options, transport, model, index + 1)
        _share_progress(part, index, times_ms[-1], losses[-1])
        if part.profiler is not None and part.profiler.all_done():
            break
    _keep(options, "parameters", model.parameters)
    if options.trace:
        _draw(options.trace, part)
    if options.results:
        done = {"first_iteration": first, "time_ms": times_ms, "losses": losses}
        write_summary(options.results, options.device, done | _measured(part) | _facts(part))


def _follow_plan(part: Part, iteration: int) -> None:
    """Go over to a newer plan, if there is one."""
    plan = part.plans.at_iteration_boundary()
    if plan is not None:
        part.device.follow(plan.clock_mhz)
        line = f"iteration {iteration}: from here on plan {plan.version}, of {plan.time_ms:.1f} ms"
        _report(part.options, line)


def _draw(path: Path, part: Part) -> None:
    """Collect what all devices recorded; device 0 draws it."""
    from runtime.profiling.trace import write_trace  # loads the solvers of plans, which no other run needs

    records = part.transport.collect(part.device.recorder.records)
    if part.options.device == 0:
        write_trace(path, part.script.placement, records)


def timed_iteration(script: Script, device: Runner, index: int, transport: Transport) -> float:
    """Run one iteration and return the milliseconds from the common start to this device's end."""
    if transport.device.type == "cuda":
        torch.cuda.synchronize()  # the gradient step of the iteration before may still run
    transport.barrier()
    start_s = time.perf_counter()
    device.begin(index)
    script.iteration(device, script.num_micro_batches)
    device.finish()
    return (time.perf_counter() - start_s) * 1000


def _measured(part: Part) -> dict[str, Any]:
    """Return what the device did, beside times and losses."""
    device = part.device
    measured: dict[str, Any] = {"order": device.order, "peak_posted_bytes": device.peak_posted_bytes}
    if part.profiler is not None:
        measured["profile"] = part.profiler.result().to_plain()
    if part.options.records:
        measured["records"] = [record.to_plain() for record in device.recorder.records]
    return measured


def _facts(part: Part) -> dict[str, Any]:
    """Return what was run, and on what."""
    return {
        "model": asdict(part.script.model),
        "placement": placement_to_dict(part.script.placement),
        "num_micro_batches": part.script.num_micro_batches,
        "clock_requests": part.clock.requests,
        "clock_backend": part.clock.description,
        "backend": part.options.backend,
        "device_name": _name(part.transport.device),
    }


def _keep(options: RunOptions, name: str, tensors: Mapping[ParameterShard, Tensor]) -> None:
    if options.results and options.keeps_tensors:
        write_tensors(options.results, options.device, name, tensors)


def _share_progress(part: Part, index: int, time_ms: float, losses: Sequence[Loss]) -> None:
    """Collect what the devices know of an iteration; device 0 reports it."""
    options = part.options
    collected = part.transport.collect((time_ms, losses))
    if options.device != 0:
        return
    by_instance = {(block, n): loss for _, rows in collected for block, n, loss in rows}
    slowest_ms = max(device_ms for device_ms, _ in collected)
    progress = Progress(index, sum(by_instance.values()) / part.script.num_micro_batches, slowest_ms)
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
