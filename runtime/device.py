"""What a generated script calls: compute blocks, move tensors without waiting, ask for clocks.

A script is a straight list of calls on a `Device`; `main` runs it for a number of iterations, each with a
gradient step at its end. The module does not know schedules: it does what the script says, in that order,
and `runtime.deadlock` has proven beforehand that the scripts fit each other.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from placements import Placement
from placements.hardware import clock_latency_of
from placements.placement_file import placement_from_dict, placement_to_dict
from runtime.calls import Calls, ScriptError, Transfer
from runtime.channels import Channel, Channels, connect, connect_copies, torch_device
from runtime.client import PlanSource, plans_from_environment
from runtime.clock import Clock, RecordingClock, open_clock
from runtime.models import Blocks, Model, ModelOptions, ParameterShard
from runtime.models.blocks import warm_up
from runtime.plans import SharedPlans, shared_plans
from runtime.profiler import Profiler
from runtime.profiling import DeviceProfiler, gpu_uuid
from runtime.results import (
    Position,
    Progress,
    write_progress,
    write_summary,
    write_tensors,
)
from runtime.run_options import RunOptions
from runtime.stream_clock import StreamClock


class TransferError(RuntimeError):
    """A tensor did not arrive or could not be sent; the message says where the device stands."""


@dataclass(frozen=True)
class Script:
    """A script, read.

    Attributes:
        iteration: Its calls.
        model: What its blocks compute.
        placement: What runs where.
        num_micro_batches: Of one iteration.
        channels: All (source, target) pairs that messages take, the same in every script.
    """

    iteration: Callable[[Any], None]
    model: ModelOptions
    placement: Placement
    num_micro_batches: int
    channels: tuple[Channel, ...]

    @cached_property
    def calls(self) -> Calls:
        """The calls of one iteration, not carried out."""
        calls = Calls()
        self.iteration(calls)
        return calls


class Device:
    """One device of the placement, as its script sees it.

    Transfers never wait. `run` waits for the tensors that its block takes and for no others. What is sent
    is kept until it has left; what was received, until its block has taken it.

    Attributes:
        order: The (block, micro-batch) pairs that ran in this iteration, in order.

    Args:
        index: Position in the placement.
        blocks: Computes the device's blocks.
        channels: The process groups.
        clock: Takes the requests for clocks.
        calls: The script's calls, for counting.
        position: Is told where the device stands.
        blocking: Wait at every transfer for its end; only good for testing that a program is safe even so.
        profiler: Measures every block, if there is one.
    """

    def __init__(
        self,
        index: int,
        blocks: Blocks,
        channels: Channels,
        clock: Clock,
        calls: Calls,
        position: Position,
        *,
        blocking: bool = False,
        profiler: Profiler | None = None,
    ) -> None:
        """Begin with nothing computed and nothing on its way."""
        self.order: list[tuple[str, int]] = []
        self._index = index
        self._blocks = blocks
        self._channels = channels
        self._clock = clock
        self._calls = calls
        self._position = position
        self._blocking = blocking
        self._profiler = profiler
        self._torch_device = torch_device()
        self._received: dict[Transfer, tuple[Tensor, dist.Work, int]] = {}
        self._sent: list[tuple[Transfer, int, Tensor, dist.Work]] = []
        self._made: dict[Transfer, Tensor] = {}
        self._uses_left: Counter[Transfer] = Counter()
        self._plan: Mapping[str, Sequence[int]] | None = None
        self._iteration = 0
        self._num_calls = 0

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        self._blocks.begin(iteration)
        if isinstance(self._clock, StreamClock):
            self._clock.begin_iteration()
        if self._profiler is not None:
            self._profiler.begin_iteration()
        self._iteration = iteration
        self._num_calls = 0
        self.order = []
        arriving = {transfer for transfer, _ in self._calls.receives}
        self._uses_left = Counter(transfer for transfer, _ in self._calls.sends)
        for run in self._calls.runs:
            taken = (
                Transfer(producer, run.block, run.micro_batch) for producer in self._blocks.inputs[run.block]
            )
            self._uses_left.update(transfer for transfer in taken if transfer not in arriving)

    def follow(self, clock_mhz: Mapping[str, Sequence[int]]) -> None:
        """Take these clocks from now on, one for each block and micro-batch, and no longer the script's."""
        self._plan = clock_mhz
        if isinstance(self._clock, StreamClock):
            runs = self._calls.runs
            self._clock.follow(
                [run._replace(clock_mhz=clock_mhz[run.block][run.micro_batch]) for run in runs]
            )

    def receive(self, producer: str, consumer: str, micro_batch: int, *, source: int) -> None:
        """Post the receive of what a block hands to a block of this device.

        Args:
            producer: The block that made it.
            consumer: The block that takes it.
            micro_batch: Of both.
            source: The device that sends it.
        """
        transfer = Transfer(producer, consumer, micro_batch)
        self._move("receives", transfer)
        buffer = torch.empty(self._shape(transfer), dtype=self._blocks.dtype, device=self._torch_device)
        work = dist.irecv(buffer, source, group=self._link(source, self._index))
        assert work is not None
        self._received[transfer] = buffer, work, source
        if self._blocking:
            self._wait(work, transfer, f"from device {source}")

    def run(self, block: str, micro_batch: int, clock_mhz: int | None = None) -> None:
        """Wait for a block's tensors and run it, together with its other devices.

        Args:
            block: Any block of this device.
            micro_batch: Which micro-batch.
            clock_mhz: Ask for this clock first, or None to leave it; see also `follow`.

        Raises:
            TransferError: A tensor did not arrive.
        """
        self._move("runs", f"{block} of micro-batch {micro_batch}")
        arrived = [
            self._take(Transfer(producer, block, micro_batch)) for producer in self._blocks.inputs[block]
        ]
        if self._plan is not None:
            clock_mhz = self._plan[block][micro_batch]
        if clock_mhz is not None:
            self._request(clock_mhz)
        if self._profiler is not None:
            self._profiler.begin(block)
        made = self._blocks.run(block, micro_batch, arrived)
        if self._profiler is not None:
            self._profiler.end(block)
        if clock_mhz is not None and isinstance(self._clock, StreamClock):
            self._clock.after(_event())
        self.order.append((block, micro_batch))
        for consumer, tensor in made.items():
            transfer = Transfer(block, consumer, micro_batch)
            if self._uses_left[transfer]:
                self._made[transfer] = tensor

    def send(self, producer: str, consumer: str, micro_batch: int, *, target: int) -> None:
        """Send what a block of this device hands to another block.

        Args:
            producer: The block that made it.
            consumer: The block that takes it.
            micro_batch: Of both.
            target: The device that receives it.
        """
        transfer = Transfer(producer, consumer, micro_batch)
        self._move("sends", transfer)
        tensor = self._use(transfer)
        work = dist.isend(tensor, target, group=self._link(self._index, target))
        assert work is not None
        # Gloo says only in wait() that a send is complete, so there the tensors stay until the end.
        self._sent = [sent for sent in self._sent if not sent[3].is_completed()]
        if self._blocking:
            self._wait(work, transfer, f"to device {target}")
        else:
            self._sent.append((transfer, target, tensor, work))

    def finish(self) -> None:
        """Wait until all that was sent has left and all that was computed is done.

        Raises:
            TransferError: A send did not end.
            ScriptError: Something was received or computed in vain.
        """
        for transfer, target, _, work in self._sent:
            self._wait(work, transfer, f"to device {target}")
        self._sent = []
        if self._torch_device.type == "cuda":
            torch.cuda.synchronize()
        if self._profiler is not None:
            self._profiler.end_iteration()
        left = [str(transfer) for transfer in (*self._received, *self._made)]
        if left:
            raise ScriptError(f"device {self._index}: nobody took {', '.join(left[:4])}")

    def _move(self, verb: str, what: object) -> None:
        self._num_calls += 1
        place = f"iteration {self._iteration}, call {self._num_calls} of {self._calls.count}"
        self._position.move(f"{place}, {verb} {what}")

    def _take(self, transfer: Transfer) -> Tensor:
        """Return a tensor that arrived, or that a block of this device made."""
        if transfer not in self._received:
            return self._use(transfer)
        buffer, work, source = self._received.pop(transfer)
        if not self._blocking:
            self._wait(work, transfer, f"from device {source}")
        return buffer

    def _use(self, transfer: Transfer) -> Tensor:
        """Return a tensor that a block of this device made, and forget it at its last use."""
        if transfer not in self._made:
            raise ScriptError(
                f"device {self._index}: {self._position.text}, before {transfer} was received or computed"
            )
        self._uses_left[transfer] -= 1
        return self._made[transfer] if self._uses_left[transfer] else self._made.pop(transfer)

    def _wait(self, work: dist.Work, transfer: Transfer, where: str) -> None:
        before = self._position.text
        self._position.move(f"{before}, waits for {transfer} {where}")
        try:
            work.wait()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise TransferError(f"device {self._index}: {self._position.text}: {reason}") from error
        self._position.move(before)

    def _shape(self, transfer: Transfer) -> tuple[int, ...]:
        if transfer.producer not in self._blocks.inputs.get(transfer.consumer, ()):
            raise ScriptError(
                f"device {self._index}: {transfer.consumer} takes nothing from {transfer.producer}"
            )
        return self._blocks.shape_between(transfer.producer, transfer.consumer)

    def _link(self, source: int, target: int) -> dist.ProcessGroup:
        channel: Channel = source, target
        if channel not in self._channels.links:
            raise ScriptError(
                f"device {self._index}: no channel from {source} to {target}; add it to CHANNELS"
            )
        return self._channels.links[channel]

    def _request(self, clock_mhz: int) -> None:
        """Ask for a clock from here on, where a GPU's compute stream stands, not where the script does."""
        if isinstance(self._clock, StreamClock):
            self._clock.before(_event())
        else:
            self._clock.set(clock_mhz)


def _event() -> torch.cuda.Event:
    """Record an event on the compute stream."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def main(
    iteration: Callable[[Any], None],
    *,
    model: Mapping[str, Any],
    placement: Mapping[str, Any],
    num_micro_batches: int,
    channels: Sequence[Channel],
    options: RunOptions | None = None,
    plans: PlanSource | None = None,
) -> None:
    """Run a script's iteration, as one process of a run.

    Args:
        iteration: The script's calls, on a `Device`.
        model: See `ModelOptions`.
        placement: The placement's plain data.
        num_micro_batches: Of one iteration.
        channels: All (source, target) pairs that messages take, the same in every script.
        options: How to take part; by default from the environment.
        plans: Where device 0 looks for newer clocks than the script's between iterations; by default the
            server and job of the environment, if it names them.

    Raises:
        ScriptError: The script was started in the wrong way, or does not run each of its blocks once.
        TransferError: A tensor did not arrive or could not be sent.
    """
    options = options or RunOptions.from_environment()
    torch.set_num_threads(1)  # Results depend on the number of threads.
    script = Script(
        iteration,
        ModelOptions.from_dict(model),
        placement_from_dict(placement),
        num_micro_batches,
        tuple((source, target) for source, target in channels),
    )
    _check(script, options)
    position = Position(options.results, options.device)
    position.move("connecting")
    with (
        _connected(script, options) as groups,
        shared_plans(
            lambda: plans or plans_from_environment(), script.placement, num_micro_batches, groups.control
        ) as shared,
    ):
        clock = _clock(script.calls, shared)
        try:
            _train(script, options, groups, clock, shared, position)
        finally:
            clock.reset()
    position.close()


def _check(script: Script, options: RunOptions) -> None:
    """Ensure that there is a process for each device, and that the script runs each of its blocks once."""
    placement = script.placement
    if options.num_devices != placement.num_devices:
        raise ScriptError(
            f"{options.num_devices} processes were started for the {placement.num_devices} devices of "
            f"{placement.name}; start {placement.num_devices}"
        )
    times = Counter((run.block, run.micro_batch) for run in script.calls.runs)
    blocks = placement.on(options.device)
    expected = {(block.name, n) for block in blocks for n in range(script.num_micro_batches)}
    for block, micro_batch in sorted(expected | times.keys()):
        wanted = int((block, micro_batch) in expected)
        if times[block, micro_batch] != wanted:
            raise ScriptError(
                f"device {options.device}: the script runs {block} of micro-batch {micro_batch} "
                f"{times[block, micro_batch]} times instead of {wanted}"
            )


@contextmanager
def _connected(script: Script, options: RunOptions) -> Iterator[Channels]:
    """Create the process groups, and take them down if all went well: after an error others may hang."""
    if options.backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", options.device)))
    dist.init_process_group(
        options.backend,
        init_method=options.meeting,
        rank=options.device,
        world_size=options.num_devices,
        timeout=timedelta(seconds=options.timeout_s),
    )
    channels = connect(script.placement, script.channels, options.device, options.timeout_s)
    yield channels
    dist.barrier(group=channels.control)
    dist.destroy_process_group()


def _clock(calls: Calls, plans: SharedPlans) -> Clock:
    if not calls.asks_for_clocks and not plans.is_used:
        return RecordingClock("the script asks for none")
    here = torch_device()
    if here.type != "cuda":
        return open_clock(None)
    latency = clock_latency_of(torch.cuda.get_device_name(here))
    clock = open_clock(gpu_uuid(here), latency.dwell_ms)
    stream = StreamClock(clock, calls.runs, lambda clock_mhz: latency.to_ms(clock_mhz) / 1000)
    stream.start(lambda: torch.cuda.set_device(here))  # a new thread would look at the first GPU
    return stream


def _train(
    script: Script,
    options: RunOptions,
    channels: Channels,
    clock: Clock,
    plans: SharedPlans,
    position: Position,
) -> None:
    """Run all iterations, and leave behind what they gave."""
    model = Model(script.model, script.placement, channels.shards, torch_device())
    copies = connect_copies(model.copies, options.device, options.timeout_s)
    blocks = Blocks(script.placement, model, script.num_micro_batches)
    profiler = _profiler(script, options, channels)
    device = Device(
        options.device,
        blocks,
        channels,
        clock,
        script.calls,
        position,
        blocking=options.blocking,
        profiler=profiler.profiler if profiler else None,
    )
    warm_up(torch_device())
    if options.device == 0:
        _report(profiler.description if profiler else clock.description)
    times_ms: list[float] = []
    losses: list[list[tuple[str, int, float]]] = []
    for index in range(options.iterations):
        plan = plans.at_iteration_boundary()
        if plan is not None:
            device.follow(plan.clock_mhz)
            if options.device == 0:
                _report(f"iteration {index}: from here on plan {plan.version}, of {plan.time_ms:.1f} ms")
        times_ms.append(_timed_iteration(script.iteration, device, index, channels.control))
        losses.append([(*instance, float(loss)) for instance, loss in blocks.losses.items()])
        model.sum_copies(copies.__getitem__)
        _keep(options, f"gradients_{index}", model.gradients())
        model.step()
        _share_progress(index, times_ms[-1], losses[-1], script, options, channels.control)
        if profiler is not None and profiler.all_done():
            break
    _keep(options, "parameters", model.parameters)
    if options.results:
        measured: dict[str, Any] = {"time_ms": times_ms, "losses": losses, "order": device.order}
        if profiler is not None:
            measured["profile"] = profiler.result(channels, options.device).to_plain()
            profiler.close()
        write_summary(options.results, options.device, _facts(script, options, clock) | measured)
    position.move("done")


def _profiler(script: Script, options: RunOptions, channels: Channels) -> DeviceProfiler | None:
    if options.sweep is None:
        return None
    return DeviceProfiler(options.sweep, torch_device(), script.placement, channels.control)


def _facts(script: Script, options: RunOptions, clock: Clock) -> dict[str, Any]:
    """Return what was run, and on what."""
    return {
        "model": asdict(script.model),
        "placement": placement_to_dict(script.placement),
        "num_micro_batches": script.num_micro_batches,
        "clock_requests": clock.requests,
        "clock_backend": clock.description,
        "backend": options.backend,
        "device_name": _name(torch_device()),
    }


def _keep(options: RunOptions, name: str, tensors: Mapping[ParameterShard, Tensor]) -> None:
    if options.results and options.keeps_tensors:
        write_tensors(options.results, options.device, name, tensors)


def _timed_iteration(
    iteration: Callable[[Any], None], device: Device, index: int, control: dist.ProcessGroup
) -> float:
    """Run one iteration and return the milliseconds from the common start to this device's end."""
    if torch_device().type == "cuda":
        torch.cuda.synchronize()  # the gradient step of the iteration before may still run
    dist.barrier(group=control)
    start_s = time.perf_counter()
    device.begin(index)
    iteration(device)
    device.finish()
    return (time.perf_counter() - start_s) * 1000


def _share_progress(
    index: int,
    time_ms: float,
    losses: Sequence[tuple[str, int, float]],
    script: Script,
    options: RunOptions,
    control: dist.ProcessGroup,
) -> None:
    """Collect what the devices know of an iteration; device 0 reports it."""
    collected: list[Any] = [None] * options.num_devices
    dist.all_gather_object(collected, (time_ms, losses), group=control)
    if options.device != 0:
        return
    by_instance = {(block, n): loss for _, rows in collected for block, n, loss in rows}
    slowest_ms = max(device_ms for device_ms, _ in collected)
    progress = Progress(index, sum(by_instance.values()) / script.num_micro_batches, slowest_ms)
    if options.results:
        write_progress(options.results, progress)
    _report(str(progress))


def _report(line: str) -> None:
    """Tell the user who started the scripts by hand."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
