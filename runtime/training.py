"""Iterations one after another, each with a gradient step at its end, and what they leave behind.

It does not know what an iteration does: a `Device` carries that out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from placements.placement_file import placement_to_dict
from runtime import checkpoint
from runtime.channels import Transport
from runtime.clock import Clock
from runtime.models import Blocks, Model, ParameterShard
from runtime.models.blocks import Instance
from runtime.plans import SharedPlans
from runtime.profiling import DeviceProfiler
from runtime.recorder import Recorder
from runtime.results import Progress, write_progress, write_summary, write_tensors
from runtime.run_options import RunOptions
from runtime.script import Script

Loss = tuple[str, int, float]
"""(block, micro-batch, loss)."""


class Runner(Protocol):
    """A `runtime.device.Device`, as far as iterations go."""

    order: list[Instance]
    peak_posted_bytes: int
    recorder: Recorder

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""

    def follow(self, clock_mhz: Mapping[str, Sequence[int]]) -> None:
        """Take these clocks from now on."""

    def finish(self) -> None:
        """Wait for the end of all that was begun."""


def train(
    script: Script,
    options: RunOptions,
    transport: Transport,
    device: Runner,
    model: Model,
    blocks: Blocks,
    clock: Clock,
    plans: SharedPlans,
    profiler: DeviceProfiler | None = None,
) -> None:
    """Run all iterations, from the newest checkpoint on if there is one, and leave behind what they gave.

    Each begins with the newest of the plans; with a profiler the last one is that in which all have ended.

    Raises:
        ScriptError: The run cannot be resumed.
    """
    copies = transport.connect_copies(model.teams_of_copies())
    _report(options, profiler.description if profiler else clock.description)
    first = checkpoint.resume(script, options, transport, model) if options.resume else 0
    times_ms: list[float] = []
    losses: list[list[Loss]] = []
    for index in range(first, options.iterations):
        plan = plans.at_iteration_boundary()
        if plan is not None:
            device.follow(plan.clock_mhz)
            _report(options, f"iteration {index}: from here on plan {plan.version}, of {plan.time_ms:.1f} ms")
        times_ms.append(timed_iteration(script, device, index, transport))
        losses.append([(*instance, float(loss)) for instance, loss in blocks.losses.items()])
        model.sum_copies(copies.__getitem__)
        _keep(options, f"gradients_{index}", model.gradients())
        model.step()
        if checkpoint.is_due(options, index + 1):
            checkpoint.save(script, options, transport, model, index + 1)
        _share_progress(index, times_ms[-1], losses[-1], script, options, transport)
        if profiler is not None and profiler.all_done():
            break
    _keep(options, "parameters", model.parameters)
    if options.trace:
        _draw(options.trace, options, script, transport, device.recorder)
    if options.results:
        measured: dict[str, Any] = {
            "first_iteration": first,
            "time_ms": times_ms,
            "losses": losses,
            "order": device.order,
            "peak_posted_bytes": device.peak_posted_bytes,
        }
        if profiler is not None:
            measured["profile"] = profiler.result().to_plain()
        if options.records:
            measured["records"] = [record.to_plain() for record in device.recorder.records]
        facts = _facts(script, options, transport, clock)
        write_summary(options.results, options.device, facts | measured)


def _draw(path: Path, options: RunOptions, script: Script, transport: Transport, recorder: Recorder) -> None:
    """Collect what all devices recorded; device 0 draws it."""
    from runtime.trace import write_trace  # loads the solvers of plans, which no other run needs

    records = transport.collect(recorder.records)
    if options.device == 0:
        write_trace(path, script.placement, records)


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


def _facts(script: Script, options: RunOptions, transport: Transport, clock: Clock) -> dict[str, Any]:
    """Return what was run, and on what."""
    return {
        "model": asdict(script.model),
        "placement": placement_to_dict(script.placement),
        "num_micro_batches": script.num_micro_batches,
        "clock_requests": clock.requests,
        "clock_backend": clock.description,
        "backend": options.backend,
        "device_name": _name(transport.device),
    }


def _keep(options: RunOptions, name: str, tensors: Mapping[ParameterShard, Tensor]) -> None:
    if options.results and options.keeps_tensors:
        write_tensors(options.results, options.device, name, tensors)


def _share_progress(
    index: int,
    time_ms: float,
    losses: Sequence[Loss],
    script: Script,
    options: RunOptions,
    transport: Transport,
) -> None:
    """Collect what the devices know of an iteration; device 0 reports it."""
    collected = transport.collect((time_ms, losses))
    if options.device != 0:
        return
    by_instance = {(block, n): loss for _, rows in collected for block, n, loss in rows}
    slowest_ms = max(device_ms for device_ms, _ in collected)
    progress = Progress(index, sum(by_instance.values()) / script.num_micro_batches, slowest_ms)
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
