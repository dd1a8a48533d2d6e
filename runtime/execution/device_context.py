"""A process's part in a run: what is made around its device, and given back at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import torch

from placements.hardware import ClockLatency
from runtime.clocks.clock import Clock, RecordingClock
from runtime.clocks.gpu_clock import open_gpu_clock
from runtime.clocks.latency_file import read_clock_latency
from runtime.codegen.script import Script, check_script, check_specs
from runtime.execution.device import Device
from runtime.execution.results import Position
from runtime.execution.run_options import RunOptions
from runtime.execution.train import Part, train
from runtime.models import Blocks, Model
from runtime.models.blocks import warm_up
from runtime.plans.plan_client import PlanSource, plans_from_environment
from runtime.plans.shared_plans import SharedPlans, shared_plans
from runtime.profiling.device_profiler import DeviceProfiler
from runtime.profiling.recorder import DeviceRecorder, HostTimes, Recorder, StreamTimes
from runtime.transport.protocol import Transport

Connect = Callable[[Script, RunOptions], AbstractContextManager[Transport]]
"""Connects a device to the others, and takes that down again."""


def take_part(script: Script, options: RunOptions, connect: Connect, plans: PlanSource | None = None) -> None:
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
        with ExitStack() as at_end:
            train(_part(script, options, transport, position, plans, at_end))
            position.move("done")
    position.close()


def _part(
    script: Script,
    options: RunOptions,
    transport: Transport,
    position: Position,
    plans: PlanSource | None,
    at_end: ExitStack,
) -> Part:
    """Make all that a device runs with; what must be given back is, at the end."""
    shared = at_end.enter_context(
        shared_plans(
            lambda: plans or plans_from_environment(),
            script.placement,
            script.num_micro_batches,
            transport,
            options.device,
        )
    )
    clock = _clock(script, shared, transport, options)
    at_end.callback(clock.reset)
    model = Model(script.model, script.placement, transport.shards, transport.device, groups=transport.groups)
    blocks = Blocks(script.placement, model, script.num_micro_batches)
    profiler = _profiler(script, options, transport)
    if profiler is not None:
        at_end.callback(profiler.close)
    device = Device(
        options.device,
        blocks,
        transport,
        clock,
        script.calls,
        position,
        specs=script.specs,
        blocking=options.blocking,
        profiler=profiler.profiler if profiler else None,
        timeout_s=options.timeout_s,
        recorder=_recorder(script, options, model, blocks),
    )
    check_specs(script, options.device, device.spec_of_model)
    warm_up(transport.device)
    return Part(script, options, transport, device, model, blocks, clock, shared, profiler)


def _profiler(script: Script, options: RunOptions, transport: Transport) -> DeviceProfiler | None:
    if options.sweep is None:
        return None
    return DeviceProfiler(
        options.sweep, script.placement, transport, script.channels, options.device, _latency(options)
    )


def _recorder(script: Script, options: RunOptions, model: Model, blocks: Blocks) -> Recorder:
    if not options.is_recorded:
        return Recorder()
    times = StreamTimes() if model.device.type == "cuda" else HostTimes()
    return DeviceRecorder(options.device, script.placement, blocks, model, times)


def _clock(script: Script, plans: SharedPlans, transport: Transport, options: RunOptions) -> Clock:
    if options.sweep is not None:
        return RecordingClock("the profiler goes through the clocks")
    if not script.calls.asks_for_clocks and not plans.is_used:
        return RecordingClock("the script asks for none")
    return open_gpu_clock(script.calls.runs, transport.device, _latency(options), transport.shares_gpu)


def _latency(options: RunOptions) -> ClockLatency | None:
    return None if options.clock_latency is None else read_clock_latency(options.clock_latency)
