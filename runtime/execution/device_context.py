"""The surroundings of a process's device: made around it, and given back at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from runtime.clocks.clock import ClockBackend, RecordingClock
from runtime.clocks.gpu_clock import open_gpu_clock
from runtime.clocks.latency import read_clock_latency
from runtime.codegen.script import Script, check_specs
from runtime.execution.clock_requests import ClockRequests
from runtime.execution.device import Device
from runtime.execution.online_profile import OnlineProfile
from runtime.execution.process import Process
from runtime.execution.results import Position
from runtime.execution.run_options import RunOptions
from runtime.execution.side_streams import side_streams
from runtime.models import Blocks, Model, ReadVersions, load_state_dict_file, read_versions
from runtime.models.blocks import warm_up
from runtime.models.body import Body
from runtime.plans.plan_client import JOB_VARIABLE, SERVER_VARIABLE, PlanSource, plans_from_environment
from runtime.plans.shared_plans import SharedPlans
from runtime.profiling.device_profiler import DeviceProfiler
from runtime.profiling.observer import DeviceObserver
from runtime.profiling.process_memory import rss_mib
from runtime.profiling.profiler import Sweep
from runtime.profiling.recorder import Recorder, StreamTimes, Times
from runtime.profiling.records import Record
from runtime.program.calls import ScriptError
from runtime.transport.process_groups import connect
from runtime.transport.protocol import Transport
from schedsearch.schedule import Instance
from schedsearch.semantics.versions import WeightMode


@dataclass(frozen=True)
class DeviceContext:
    """A device and its surroundings.

    Attributes:
        clocks: Ask for the clocks of its blocks.
        plans: Clocks from a server, for a script without clocks.
        online: Measures the blocks before plans are followed, if that is wanted.
        profiler: Measures the blocks, if that is what the run is for.
        recorder: Keeps what the device did, if that is wanted.
        rss_after_import_mib: The memory of the process before it had a model.
    """

    script: Script
    process: Process
    transport: Transport
    device: Device
    model: Model
    blocks: Blocks
    clocks: ClockRequests
    plans: SharedPlans
    online: OnlineProfile | None
    profiler: DeviceProfiler | None
    recorder: Recorder | None
    rss_after_import_mib: float

    @property
    def records(self) -> tuple[Record, ...]:
        """The last iterations, as far as they were recorded."""
        return self.recorder.records if self.recorder else ()


@contextmanager
def device_context(
    script: Script,
    process: Process,
    transport: Transport,
    position: Position,
    plans: PlanSource | None = None,
    body: Body | None = None,
) -> Iterator[DeviceContext]:
    """Create a device's context, and release its resources at the end.

    Args:
        script: Script of the device.
        process: Number of the device, and the options of the run.
        transport: Reaches the other devices.
        position: Is told where the device stands.
        plans: Source of newer clocks for device 0; by default the server and job of the environment.
        body: Body of the blocks, which may not know yet what their messages carry; by default that of the
            script's model.

    Raises:
        ScriptError: The script has clocks, and the run takes others.
    """
    options, placement, number = process.options, script.placement, process.device
    warm_up(transport.device)  # imports more of torch
    rss = rss_mib()
    latency = None if options.clock_latency is None else read_clock_latency(options.clock_latency)

    def profiler_of(sweep: Sweep) -> DeviceProfiler:
        return DeviceProfiler(sweep, placement, transport, script.channels, number, latency)

    with ExitStack() as at_end:
        source = (plans or plans_from_environment()) if number == 0 else None
        if source is not None:
            at_end.callback(source.close)
        shared = SharedPlans(source, placement, script.num_micro_batches, transport)
        _check_clocks(script, shared, options)

        def clock() -> ClockBackend:
            if not script.calls.asks_for_clocks and not shared.is_used:
                return RecordingClock("the script asks for none")
            return open_gpu_clock(script.calls.runs, transport.device, latency, transport.shares_gpu)

        is_profiled = options.sweep is not None or options.profile_online
        profiled = RecordingClock("the profiler goes through the clocks")
        clocks = ClockRequests(profiled if is_profiled else clock(), script.calls.runs)
        at_end.callback(lambda: clocks.clock.reset())
        model = Model(
            script.model, placement, transport.shards, transport.device, groups=transport.groups, body=body
        )
        if options.load_weights is not None and options.resume is None:
            load_state_dict_file(model, options.load_weights)
        versions = _versions(script, transport)
        blocks = Blocks(placement, model, script.num_micro_batches, versions, script.left_out)
        observers: list[DeviceObserver] = [clocks]
        online = profiler = recorder = None
        if options.profile_online:
            observers.append(measures := profiler_of(Sweep()))
            online = OnlineProfile(measures, lambda: clocks.take(clock()), transport, number)
            at_end.callback(measures.close)
        if options.sweep is not None:
            profiler = profiler_of(options.sweep)
            at_end.callback(profiler.close)
            observers.append(profiler)
        if options.trace or options.trace_file is not None:
            times = StreamTimes() if model.device.type == "cuda" else Times()
            recorder = Recorder(number, placement, blocks, model, times)
            observers.append(recorder)
        # Streams beside the one that computes need a process of their own, and blocks without random numbers,
        # of which there is one series for all streams.
        draws_nothing = model.body.source.seed is None
        has_side = placement.has_streams and transport.has_own_process and draws_nothing
        side = side_streams(transport.device) if has_side else None
        device = Device(script, process, transport, blocks, position, observers, side)
        if recorder is not None:
            recorder.message_tensors = device.message_tensors
            clocks.requested = recorder.request
        if body is None:
            check_specs(script, number, device.spec_of_model)
        yield DeviceContext(
            script, process, transport, device, model, blocks, clocks, shared, online, profiler, recorder, rss
        )


@contextmanager
def connected(script: Script, process: Process) -> Iterator[Transport]:
    """Reach the other devices through process groups, in the process group of the script if it has one.

    What is made here is taken down if all went well: after an error others may hang.
    """
    options, joins = process.options, not dist.is_initialized()
    if joins:
        if options.backend == "nccl":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", process.device)))
        dist.init_process_group(
            options.backend,
            init_method=options.meeting,
            rank=process.device,
            world_size=process.num_devices,
            timeout=timedelta(seconds=options.timeout_s),
        )
    channels = connect(
        script.placement,
        script.channels,
        process.device,
        options.timeout_s,
        exact=options.is_exact,
    )
    try:
        yield channels
        channels.barrier()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        channels.contact.say(error)
        raise
    if joins:
        dist.destroy_process_group()


def _versions(script: Script, transport: Transport) -> ReadVersions:
    """Return which weights are read; for that the devices tell each other their orders, if it matters."""
    orders: list[list[Instance]] = []
    order = [(run.block, run.micro_batch) for run in script.calls.runs]
    if script.model.weight_versions != WeightMode.FLUSH:
        orders = transport.collect(order)
    versions = read_versions(script.model, script.placement, script.num_micro_batches, orders)
    return versions.on(script.placement, order)


def _check_clocks(script: Script, plans: SharedPlans, options: RunOptions) -> None:
    """Ensure that script and run do not both have clocks.

    Raises:
        ScriptError: The run takes others; the message names a block that has a clock.
    """
    remedy = "make scripts without clocks (runtime.clocks=false)"
    others = ""
    if plans.is_used:
        others = f"the run follows the plans of a server; unset {SERVER_VARIABLE}, or {remedy}"
    elif options.sweep is not None:
        others = f"a profile goes through all clocks; {remedy}"
    if options.profile_online and not plans.is_used:
        raise ScriptError(
            f"profile_online: there is no server to upload to; set {SERVER_VARIABLE} and {JOB_VARIABLE}"
        )
    run = next((run for run in script.calls.runs if run.clock_mhz is not None), None)
    if run is not None and others:
        raise ScriptError(f"{script.path}: {run.instance_text} has clock_mhz={run.clock_mhz}, but {others}")
