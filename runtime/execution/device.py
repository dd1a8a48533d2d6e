"""A script's calls carried out: compute blocks, move tensors without waiting, and tell those who watch.

It does not know schedules: it does what the script says, in that order, and `runtime.program.deadlock` has
proven beforehand that the scripts fit each other. Nor does it know clocks, profiles and records; see
`runtime.profiling.observer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from runtime.codegen.script import Script
from runtime.execution.place import place_observers
from runtime.execution.results import Position
from runtime.execution.run_options import RunOptions
from runtime.models import Blocks
from runtime.profiling.observer import DeviceObserver, Message
from runtime.program.calls import Run, ScriptError, Transfer
from runtime.program.tensor_spec import TensorSpec
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

    Args:
        script: Its calls, for counting, and what its messages carry, if it says so; else the model does.
        options: Which device it is. With ``blocking`` it waits at every transfer for its end: slower, and a
            proof that the program is safe even so.
        transport: Reaches the other devices.
        blocks: Computes the device's blocks.
        position: Is told where the device stands.
        observers: Are told what it does, the outermost first.
    """

    def __init__(
        self,
        script: Script,
        options: RunOptions,
        transport: Transport,
        blocks: Blocks,
        position: Position,
        observers: Sequence[DeviceObserver] = (),
    ) -> None:
        """Begin with nothing computed and nothing on its way."""
        self.order: list[tuple[str, int]] = []
        self.peak_posted_bytes = 0
        self._index, self._blocking = options.device, options.blocking
        self._calls, self._specs = script.calls, script.specs or {}
        self._planned_mhz = {(run.block, run.micro_batch): run.clock_mhz for run in script.calls.runs}
        self._transport, self._blocks, self._position = transport, blocks, position
        self._torch_device = transport.device
        places = place_observers(
            position, self._index, self._calls.count, self._torch_device, options.timeout_s
        )
        self._observers = (*places, *observers)
        self._inner_first = self._observers[::-1]
        self._received: dict[Transfer, tuple[Message, Tensor, Pending]] = {}
        self._sent: list[tuple[Message, Tensor, Pending]] = []
        self._made: dict[Transfer, Tensor] = {}
        self._uses_left: Counter[Transfer] = Counter()
        self._posted_bytes = 0

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        for observer in self._inner_first:
            observer.begin(iteration)
        self._blocks.begin(iteration)
        self.order = []
        arriving = {transfer for transfer, _ in self._calls.receives}
        self._uses_left = Counter(transfer for transfer, _ in self._calls.sends)
        for run in self._calls.runs:
            self._uses_left.update(transfer for transfer in self._inputs(run) if transfer not in arriving)

    def receive(self, producer: str, consumer: str, micro_batch: int, *, source: int) -> None:
        """Post the receive of what a block hands to a block of this device.

        Args:
            producer: The block that made it.
            consumer: The block that takes it.
            micro_batch: Of both.
            source: The device that sends it.
        """
        transfer = Transfer(producer, consumer, micro_batch)
        message = self._announced(transfer, source, self._index)
        spec = self._spec(transfer)
        with self._transport.receiving():
            buffer = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=self._torch_device)
            work = self._transport.receive(buffer, self._channel(message))
        self._tell_posted(message, work)
        self._received[transfer] = message, buffer, work
        self._posted_bytes += buffer.nbytes
        self.peak_posted_bytes = max(self.peak_posted_bytes, self._posted_bytes)
        if self._blocking:
            self._wait(message, work)

    def prefetch(self, producer: str, consumer: str, micro_batch: int, *, source: int) -> None:
        """Post a receive ahead of other blocks than the one that takes it; see `receive`."""
        self.receive(producer, consumer, micro_batch, source=source)

    def forward(self, block: str, micro_batch: int) -> None:
        """Run a forward block at its planned clock; see `run`."""
        self.run(block, micro_batch, self._planned_mhz.get((block, micro_batch)))

    def backward(self, block: str, micro_batch: int) -> None:
        """Run a whole backward block at its planned clock; see `run`."""
        self.run(block, micro_batch, self._planned_mhz.get((block, micro_batch)))

    def backward_input(self, block: str, micro_batch: int) -> None:
        """Run a block of input gradients at its planned clock; see `run`."""
        self.run(block, micro_batch, self._planned_mhz.get((block, micro_batch)))

    def backward_weight(self, block: str, micro_batch: int) -> None:
        """Run a block of weight gradients at its planned clock; see `run`."""
        self.run(block, micro_batch, self._planned_mhz.get((block, micro_batch)))

    def run(self, block: str, micro_batch: int, clock_mhz: int | None = None) -> None:
        """Wait for a block's tensors and run it, together with its other devices.

        Args:
            block: Any block of this device.
            micro_batch: Which micro-batch.
            clock_mhz: The clock asked for before it, or None; a plan that is followed may have another.

        Raises:
            TransferError: A tensor did not arrive.
        """
        run = Run(block, micro_batch, clock_mhz)
        with self._in_words():
            for observer in self._observers:
                observer.reach(run)
        arrived = [self._take(transfer) for transfer in self._inputs(run)]
        for observer in self._observers:
            observer.start(run, arrived)
        made = self._blocks.run(block, micro_batch, arrived)
        for observer in self._inner_first:
            observer.stop(run, made.values())
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
        message = self._announced(transfer, self._index, target)
        tensor = self._use(transfer)
        self._check_spec(transfer, tensor)
        work = self._transport.send(tensor, self._channel(message))
        self._tell_posted(message, work)
        # Gloo says only in wait() that a send is complete, so there the tensors stay until the end.
        self._sent = [sent for sent in self._sent if not sent[2].is_completed()]
        if self._blocking:
            self._wait(message, work)
        else:
            self._sent.append((message, tensor, work))

    def finish(self) -> None:
        """Wait until all that was sent has left and all that was computed is done.

        Raises:
            TransferError: A send did not end.
            ScriptError: Something was received or computed in vain.
        """
        for message, _, work in self._sent:
            self._wait(message, work)
        self._sent = []
        left = [str(transfer) for transfer in (*self._received, *self._made)]
        if left:
            raise ScriptError(f"device {self._index}: nobody took {', '.join(left[:4])}")
        with self._in_words():
            for observer in self._observers:
                observer.drain()
        if self._torch_device.type == "cuda":
            torch.cuda.synchronize()
        for observer in self._inner_first:
            observer.end()

    def message_tensors(self) -> list[Tensor]:
        """Return the tensors of messages: received and not taken, made and not used up, sent and not gone."""
        moving = (*self._received.values(), *self._sent)
        return [*self._made.values(), *(tensor for _, tensor, _ in moving)]

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

    def _inputs(self, run: Run) -> Iterator[Transfer]:
        """Yield what a block takes."""
        for producer in self._blocks.inputs[run.block]:
            yield Transfer(producer, run.block, run.micro_batch)

    def _announced(self, transfer: Transfer, source: int, target: int) -> Message:
        """Return a message that is about to be posted."""
        message = Message(transfer, source, target)
        for observer in self._observers:
            observer.post(message)
        return message

    def _tell_posted(self, message: Message, work: Pending) -> None:
        for observer in self._inner_first:
            observer.posted(message, work)

    def _take(self, transfer: Transfer) -> Tensor:
        """Return a tensor that arrived, or that a block of this device made."""
        if transfer not in self._received:
            return self._use(transfer)
        message, buffer, work = self._received.pop(transfer)
        self._posted_bytes -= buffer.nbytes
        if not self._blocking:
            self._wait(message, work)
        return buffer

    def _use(self, transfer: Transfer) -> Tensor:
        """Return a tensor that a block of this device made, and forget it at its last use."""
        if transfer not in self._made:
            raise ScriptError(
                f"device {self._index}: {self._position.text}, before {transfer} was received or computed"
            )
        self._uses_left[transfer] -= 1
        return self._made[transfer] if self._uses_left[transfer] else self._made.pop(transfer)

    def _wait(self, message: Message, work: Pending) -> None:
        for observer in self._observers:
            observer.wait(message)
        with self._in_words():
            work.wait()
        for observer in self._inner_first:
            observer.waited(message)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Say in an error of a transfer where the device stands."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise TransferError(f"device {self._index}: {self._position.text}: {reason}") from error

    def _spec(self, transfer: Transfer) -> TensorSpec:
        """Return what the script says that a message carries; the model's word where it says nothing."""
        return self._specs.get((transfer.producer, transfer.consumer)) or self.spec_of_model(transfer)

    def _check_spec(self, transfer: Transfer, tensor: Tensor) -> None:
        """Ensure that a tensor is what its receiver expects; on the wire nothing would notice."""
        wanted = self._spec(transfer)
        found = TensorSpec.of(tensor.dtype, tensor.shape)
        if found != wanted:
            raise ScriptError(f"device {self._index}: {transfer} is {found} instead of {wanted}")

    def _channel(self, message: Message) -> Channel:
        channel: Channel = message.source, message.target
        if not self._transport.has(channel):
            raise ScriptError(
                f"device {self._index}: no channel from {channel[0]} to {channel[1]}; "
                "generate the scripts anew"
            )
        return channel
