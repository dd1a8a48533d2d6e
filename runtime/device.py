"""What a generated script calls: compute blocks, move tensors without waiting, ask for clocks.

A script is a straight list of calls on a `Device`; `main` runs it for a number of iterations, each with a
gradient step at its end. The module does not know schedules: it does what the script says, in that order,
and `runtime.deadlock` has proven beforehand that the scripts fit each other.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from placements.hardware import ClockLatency
from placements.placement_file import placement_from_dict
from runtime.calls import Calls, ScriptError, Transfer
from runtime.channels import Channel, Pending, Transport, connect
from runtime.client import PlanSource, plans_from_environment
from runtime.clock import Clock, RecordingClock
from runtime.forms import Form, Forms, forms_from_plain
from runtime.gpu_clock import open_gpu_clock, record_event
from runtime.latency_file import read_clock_latency
from runtime.models import Blocks, Model, ModelOptions
from runtime.models.blocks import warm_up
from runtime.periodic_clocks import PeriodicClocks
from runtime.plans import SharedPlans, shared_plans
from runtime.profiler import Profiler
from runtime.profiling import DeviceProfiler
from runtime.recorder import DeviceRecorder, HostTimes, Recorder, StreamTimes
from runtime.results import Position
from runtime.run_options import RunOptions
from runtime.script import Script, check_forms, check_script, hand_over
from runtime.stream_clock import StreamClock
from runtime.stream_position import StreamPosition
from runtime.training import train

__all__ = ["Device", "PeriodicClocks", "TransferError", "main"]


class TransferError(RuntimeError):
    """A tensor did not arrive or could not be sent; the message says where the device stands."""


class Device:
    """One device of the placement, as its script sees it.

    Transfers never wait. `run` waits for the tensors that its block takes and for no others. What is sent
    is kept until it has left; what was received, until its block has taken it.

    Attributes:
        order: The (block, micro-batch) pairs that ran in this iteration, in order.
        peak_posted_bytes: The most memory of receives that were posted and not yet taken, of all iterations.
        recorder: Takes note of what the device does.

    Args:
        index: Position in the placement.
        blocks: Computes the device's blocks.
        transport: Reaches the other devices.
        clock: Takes the requests for clocks.
        calls: The script's calls, for counting.
        position: Is told where the device stands.
        forms: What messages carry, as the script says; None to take the model's word.
        blocking: Wait at every transfer for its end: slower, and a proof that the program is safe even so.
        profiler: Measures every block, if there is one.
        timeout_s: How long a GPU may stand at a transfer; elsewhere the transport knows.
        recorder: By default one that takes note of nothing.
    """

    def __init__(
        self,
        index: int,
        blocks: Blocks,
        transport: Transport,
        clock: Clock,
        calls: Calls,
        position: Position,
        *,
        forms: Forms | None = None,
        blocking: bool = False,
        profiler: Profiler | None = None,
        timeout_s: float = 300.0,
        recorder: Recorder | None = None,
    ) -> None:
        """Begin with nothing computed and nothing on its way."""
        self.order: list[tuple[str, int]] = []
        self._index = index
        self._blocks = blocks
        self._transport = transport
        self._clock = clock
        self._calls = calls
        self._position = position
        self._forms = forms
        self._blocking = blocking
        self._profiler = profiler
        self._torch_device = transport.device
        is_gpu = self._torch_device.type == "cuda"
        self._stream = StreamPosition(position, _mark, timeout_s) if is_gpu else None
        self._received: dict[Transfer, tuple[Tensor, Pending, int]] = {}
        self._sent: list[tuple[Transfer, int, Tensor, Pending]] = []
        self._made: dict[Transfer, Tensor] = {}
        self._uses_left: Counter[Transfer] = Counter()
        self._plan: Mapping[str, Sequence[int]] | None = None
        self._iteration = 0
        self._num_calls = 0
        self._posted_bytes = 0
        self.peak_posted_bytes = 0
        self.recorder = recorder or Recorder()
        self.recorder.watch(self._kept)
        if isinstance(clock, StreamClock):
            clock.tell(self.recorder.request)

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        self.recorder.begin(iteration)
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
        form = self._form(transfer)
        buffer = torch.empty(form.shape, dtype=getattr(torch, form.dtype), device=self._torch_device)
        self.recorder.receive(transfer, source, self._index)
        work = self._transport.receive(buffer, self._channel(source, self._index))
        self.recorder.posted(work)
        self._received[transfer] = buffer, work, source
        self._posted_bytes += buffer.nbytes
        self.peak_posted_bytes = max(self.peak_posted_bytes, self._posted_bytes)
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
        with self._in_words():
            if self._stream is not None:
                self._stream.let_catch_up()
        self.recorder.reach(block, micro_batch)
        arrived = [
            self._take(Transfer(producer, block, micro_batch)) for producer in self._blocks.inputs[block]
        ]
        if self._plan is not None:
            clock_mhz = self._plan[block][micro_batch]
        if clock_mhz is not None:
            self._request(clock_mhz)
        if self._profiler is not None:
            self._profiler.begin(block)
        self.recorder.start(arrived)
        made = self._blocks.run(block, micro_batch, arrived)
        self.recorder.stop(made.values())
        if self._profiler is not None:
            self._profiler.end(block)
        if clock_mhz is not None and isinstance(self._clock, StreamClock):
            self._clock.after(record_event())
        if self._stream is not None:
            self._stream.ran()
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
        self._check_form(transfer, tensor)
        self.recorder.send(transfer, self._index, target)
        work = self._transport.send(tensor, self._channel(self._index, target))
        self.recorder.posted(work)
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
        left = [str(transfer) for transfer in (*self._received, *self._made)]
        if left:
            raise ScriptError(f"device {self._index}: nobody took {', '.join(left[:4])}")
        if self._stream is not None:
            with self._in_words():
                self._stream.finish()
            torch.cuda.synchronize()
        self.recorder.end()
        if self._profiler is not None:
            self._profiler.end_iteration()

    def _move(self, verb: str, what: object) -> None:
        self._num_calls += 1
        place = f"iteration {self._iteration}, call {self._num_calls} of {self._calls.count}"
        self._position.move(f"{place}, {verb} {what}")

    def _take(self, transfer: Transfer) -> Tensor:
        """Return a tensor that arrived, or that a block of this device made."""
        if transfer not in self._received:
            return self._use(transfer)
        buffer, work, source = self._received.pop(transfer)
        self._posted_bytes -= buffer.nbytes
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

    def _wait(self, work: Pending, transfer: Transfer, where: str) -> None:
        before = self._position.text
        self._position.move(f"{before}, waits for {transfer} {where}")
        self.recorder.wait(work)
        with self._in_words():
            work.wait()
        if self._stream is not None:  # Only the GPU waits; the script goes on.
            self._stream.waits(self._position.text)
        self.recorder.waited(work)
        self._position.move(before)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Say in an error of a transfer where the device stands."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise TransferError(f"device {self._index}: {self._position.text}: {reason}") from error

    def _kept(self) -> list[Tensor]:
        """Return the tensors of messages: received and not taken, made and not used up, sent and not gone."""
        received = [buffer for buffer, _, _ in self._received.values()]
        return [*received, *self._made.values(), *(tensor for _, _, tensor, _ in self._sent)]

    def form_of_model(self, transfer: Transfer) -> Form:
        """Return what the model hands over.

        Raises:
            ScriptError: Nothing, because the one block takes nothing from the other.
        """
        if transfer.producer not in self._blocks.inputs.get(transfer.consumer, ()):
            raise ScriptError(
                f"device {self._index}: {transfer.consumer} takes nothing from {transfer.producer}"
            )
        return self._blocks.form_between(transfer.producer, transfer.consumer)

    def _form(self, transfer: Transfer) -> Form:
        """Return what the script says that a message carries; the model's word where it says nothing."""
        forms = self._forms or {}
        return forms.get((transfer.producer, transfer.consumer)) or self.form_of_model(transfer)

    def _check_form(self, transfer: Transfer, tensor: Tensor) -> None:
        """Ensure that a tensor is what its receiver expects; on the wire nothing would notice."""
        wanted = self._form(transfer)
        found = Form(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        if found != wanted:
            raise ScriptError(f"device {self._index}: {transfer} is {found} instead of {wanted}")

    def _channel(self, source: int, target: int) -> Channel:
        channel: Channel = source, target
        if not self._transport.has(channel):
            raise ScriptError(
                f"device {self._index}: no channel from {source} to {target}; add it to CHANNELS"
            )
        return channel

    def _request(self, clock_mhz: int) -> None:
        """Ask for a clock from here on, where a GPU's compute stream stands, not where the script does."""
        if isinstance(self._clock, StreamClock):
            self._clock.before(record_event())
        else:
            self.recorder.request(clock_mhz)
            self._clock.set(clock_mhz)


def _mark() -> torch.cuda.Event:
    """Record an event on the compute stream that is not timed."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def main(
    iteration: Callable[[Any, int], None],
    *,
    model: Mapping[str, Any],
    placement: Mapping[str, Any],
    num_micro_batches: int,
    channels: Sequence[Channel],
    forms: Sequence[Mapping[str, Any]] | None = None,
    least_micro_batches: int | None = None,
    micro_batches_per_round: int = 1,
    options: RunOptions | None = None,
    plans: PlanSource | None = None,
) -> None:
    """Run a script's iteration, as one process of a run.

    Args:
        iteration: The script's calls, given a `Device` and the number of micro-batches.
        model: See `ModelOptions`.
        placement: The placement's plain data.
        num_micro_batches: Of one iteration, unless the run asks for another number.
        channels: All (source, target) pairs that messages take, the same in every script.
        forms: The shape and type of what its messages carry; None leaves them to the model.
        least_micro_batches: The fewest that the script's loop can run; None if only `num_micro_batches`.
        micro_batches_per_round: By which numbers of micro-batches differ.
        options: How to take part; by default from the environment.
        plans: Where device 0 looks for newer clocks than the script's between iterations; by default the
            server and job of the environment, if it names them.

    Raises:
        ScriptError: The script was started in the wrong way, or does not run each of its blocks once.
        TransferError: A tensor did not arrive or could not be sent.
    """
    script = Script(
        iteration,
        ModelOptions.from_dict(model),
        placement_from_dict(placement),
        num_micro_batches,
        tuple((source, target) for source, target in channels),
        least_micro_batches,
        micro_batches_per_round,
        None if forms is None else forms_from_plain(forms, "forms"),
    )
    if hand_over(script):
        return
    options = options or RunOptions.from_environment()
    script = script.at(options.num_micro_batches)
    check_script(script, options.device, options.num_devices)
    position = Position(options.results, options.device)
    position.move("connecting")
    with _connected(script, options) as transport:
        take_part(script, options, transport, position, plans)
    position.close()


def take_part(
    script: Script,
    options: RunOptions,
    transport: Transport,
    position: Position,
    plans: PlanSource | None = None,
) -> None:
    """Be one device of a run whose devices are connected.

    Args:
        script: Of this device.
        options: Which device it is, and what to do.
        transport: Reaches the other devices.
        position: Is told where the device stands.
        plans: See `main`.

    Raises:
        ScriptError: The script takes what was not made, or the run cannot be resumed.
        TransferError: A tensor did not arrive or could not be sent.
    """
    torch.set_num_threads(1)  # Results depend on the number of threads.
    with shared_plans(
        lambda: plans or plans_from_environment(),
        script.placement,
        script.num_micro_batches,
        transport,
        options.device,
    ) as shared:
        clock = _clock(script.calls, shared, transport, options)
        profiler = None
        try:
            parts = transport.shards
            model = Model(script.model, script.placement, parts, transport.device, groups=transport.groups)
            blocks = Blocks(script.placement, model, script.num_micro_batches)
            if options.sweep is not None:
                profiler = DeviceProfiler(
                    options.sweep,
                    script.placement,
                    transport,
                    script.channels,
                    options.device,
                    _latency(options),
                )
            device = Device(
                options.device,
                blocks,
                transport,
                clock,
                script.calls,
                position,
                forms=script.forms,
                blocking=options.blocking,
                profiler=profiler.profiler if profiler else None,
                timeout_s=options.timeout_s,
                recorder=_recorder(script, options, model, blocks),
            )
            check_forms(script, options.device, device.form_of_model)
            warm_up(transport.device)
            train(script, options, transport, device, model, blocks, clock, shared, profiler)
            position.move("done")
        finally:
            if profiler is not None:
                profiler.close()
            clock.reset()


@contextmanager
def _connected(script: Script, options: RunOptions) -> Iterator[Transport]:
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
    channels.barrier()
    dist.destroy_process_group()


def _recorder(script: Script, options: RunOptions, model: Model, blocks: Blocks) -> Recorder:
    if not options.is_recorded:
        return Recorder()
    times = StreamTimes() if model.device.type == "cuda" else HostTimes()
    return DeviceRecorder(options.device, script.placement, blocks, model, times)


def _clock(calls: Calls, plans: SharedPlans, transport: Transport, options: RunOptions) -> Clock:
    if options.sweep is not None:
        return RecordingClock("the profiler goes through the clocks")
    if not calls.asks_for_clocks and not plans.is_used:
        return RecordingClock("the script asks for none")
    return open_gpu_clock(calls.runs, transport.device, _latency(options), transport.shares_gpu)


def _latency(options: RunOptions) -> ClockLatency | None:
    return None if options.clock_latency is None else read_clock_latency(options.clock_latency)
