"""A script's calls carried out: compute blocks, move tensors without waiting, ask for clocks.

It does not know schedules: it does what the script says, in that order, and `runtime.program.deadlock` has
proven beforehand that the scripts fit each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from runtime.clocks.clock import Clock
from runtime.clocks.stream_clock import StreamClock
from runtime.clocks.torch_gpu import record_event
from runtime.execution.results import Position
from runtime.execution.run_ahead import StreamPosition
from runtime.models import Blocks
from runtime.profiling.profiler import Profiler
from runtime.profiling.recorder import Recorder
from runtime.program.calls import Calls, ScriptError, Transfer
from runtime.program.tensor_spec import TensorSpec, TensorSpecs
from runtime.transport.protocol import Channel, Pending, Transport


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
        specs: TensorSpecs | None = None,
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
        self._specs = specs
        self._blocking = blocking
        self._profiler = profiler
        self._torch_device = transport.device
        is_gpu = self._torch_device.type == "cuda"
        self._stream = (
            StreamPosition(position, partial(record_event, timed=False), timeout_s) if is_gpu else None
        )
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
        spec = self._spec(transfer)
        buffer = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=self._torch_device)
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
        self._check_spec(transfer, tensor)
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

    def spec_of_model(self, transfer: Transfer) -> TensorSpec:
        """Return what the model hands over.

        Raises:
            ScriptError: Nothing, because the one block takes nothing from the other.
        """
        if transfer.producer not in self._blocks.inputs.get(transfer.consumer, ()):
            raise ScriptError(
                f"device {self._index}: {transfer.consumer} takes nothing from {transfer.producer}"
            )
        return self._blocks.spec_between(transfer.producer, transfer.consumer)

    def _spec(self, transfer: Transfer) -> TensorSpec:
        """Return what the script says that a message carries; the model's word where it says nothing."""
        specs = self._specs or {}
        return specs.get((transfer.producer, transfer.consumer)) or self.spec_of_model(transfer)

    def _check_spec(self, transfer: Transfer, tensor: Tensor) -> None:
        """Ensure that a tensor is what its receiver expects; on the wire nothing would notice."""
        wanted = self._spec(transfer)
        found = TensorSpec.of(tensor.dtype, tensor.shape)
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
