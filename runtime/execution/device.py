"""A script's calls carried out: compute blocks, move tensors without waiting, and tell those who watch.

It does not know schedules: it does what the script says, in that order, and `runtime.program.deadlock` has
proven beforehand that the scripts fit each other. Nor does it know clocks, profiles and records; see
`runtime.profiling.observer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from placements.block import COMPUTE
from runtime.codegen.script import Script
from runtime.execution.place import place_observers
from runtime.execution.process import Process
from runtime.execution.results import Position
from runtime.execution.side_streams import Later, Made, SideStreams
from runtime.models import Blocks
from runtime.profiling.observer import DeviceObserver
from runtime.program.calls import Message, ScriptError, Transfer, Verbs
from runtime.program.data_parallel import Part
from runtime.program.instructions import Receive, Run, Send
from runtime.program.tensor_flow import KEEP
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.contact import reason
from runtime.transport.protocol import Channel, Pending, TransferError, Transport
from runtime.transport.shards import part_of, part_size

_Moving = tuple[Message, Tensor, Pending]
"""A message under way, with its tensor or buffer."""

_Given = Tensor | Later | _Moving
"""A tensor that a block takes: at hand, from another stream, or under way."""


_RunKey = tuple[str, int, str, str, int | None]
"""Fields of a run: a tuple is found faster than a `Run`."""


class _Step(NamedTuple):
    """A block of one micro-batch, with its inputs, and its outputs by the block that takes them."""

    run: Run
    inputs: tuple[Transfer, ...]
    outputs: dict[str, Transfer]


class _Form(NamedTuple):
    """Channel and form of a message, checked when it was first posted; the form is of an iteration."""

    channel: Channel
    spec: TensorSpec
    shape: torch.Size
    dtype: torch.dtype


class Device(Verbs):
    """One device of the placement, as its script sees it: the backend of real runs.

    Transfers never wait. `run` waits for the tensors that its block takes and for no others. A tensor that is
    sent is kept until it has left; one that was received, until its block has taken it. A block of another
    stream than ``compute`` is given away, waits there for what it takes, and is waited for by who takes what
    it makes, and by a send of that.

    Attributes:
        order: The (block, micro-batch) pairs that ran in this iteration, in order.
        peak_posted_bytes: The most memory of receives that were posted and not yet taken, of all iterations.

    Args:
        script: Its calls, for counting, and what its messages carry, if it says so; else the model does.
        process: Which device it is. With ``blocking`` it waits at every transfer for its end: slower, and a
            proof that the program is safe even so.
        transport: Reaches the other devices.
        blocks: Computes the device's blocks.
        position: Is told where the device stands.
        observers: Are told what it does, the outermost first.
        side: The streams beside the one that computes; None to run their blocks where the script comes to
            them.
    """

    def __init__(
        self,
        script: Script,
        process: Process,
        transport: Transport,
        blocks: Blocks,
        position: Position,
        observers: Sequence[DeviceObserver] = (),
        side: SideStreams | None = None,
    ) -> None:
        self.order: list[tuple[str, int]] = []
        self.peak_posted_bytes = 0
        self._index, self._blocking = process.device, process.options.blocking
        self._calls, self._specs, self._left_out = script.calls, script.specs or {}, script.left_out
        self._transport, self._blocks, self._position = transport, blocks, position
        self._torch_device, self._side = transport.device, side
        where, timeout_s = self._torch_device, process.options.timeout_s
        places = place_observers(
            position, self._index, lambda: len(self._calls.instructions), where, timeout_s
        )
        self._listeners = _Listeners((*places, *observers))
        self._standing_at = _Listeners(places).reach
        self._beside = _Listeners([observer for observer in observers if observer.is_told_beside])
        self._steps: dict[_RunKey, _Step] = {}
        self._messages: dict[tuple[str, str, int, int, int, Part | None], Message] = {}
        self._forms: dict[Message, _Form] = {}
        self._varies = False
        self._uses = self._count_uses()
        self._received: dict[Transfer, _Moving] = {}
        self._sent: list[_Moving] = []
        self._made: dict[Transfer, Tensor | Later] = {}
        self._uses_left: dict[Transfer, int] = {}
        self._posted_bytes = 0

    def follow(self, script: Script) -> None:
        """Expect the calls of another script from the next iteration on: another order of the same blocks."""
        if script.calls is not self._calls:
            self._calls = script.calls
            self._uses = self._count_uses()
            self._blocks.follow((run.block, run.micro_batch) for run in self._calls.runs)

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        for tell in self._listeners.begin:
            tell(iteration)
        self._blocks.begin(iteration)
        self.order = []
        if self._varies:
            self._forms = {}
        self._uses_left = dict(self._uses)

    def receive(
        self, producer: str, consumer: str, micro_batch: int, *, source: int, part: Part | None = None
    ) -> None:
        """Post the receive of a tensor, or of a part, which the consumer's devices gather when it runs."""
        message = self._announced(producer, consumer, micro_batch, source, self._index, part)
        form = self._forms.get(message) or self._new_form(message)
        shape = form.shape if part is None else (part_size(form.shape.numel(), part[1]),)
        with self._transport.receiving():
            buffer = torch.empty(shape, dtype=form.dtype, device=self._torch_device)
            try:
                work = self._transport.receive(buffer, form.channel)
            except RuntimeError as error:
                raise self._in_words(error, source) from error
        for tell in self._listeners.posted:
            tell(message, work)
        self._received[message.transfer] = message, buffer, work
        self._posted_bytes += buffer.nbytes
        self.peak_posted_bytes = max(self.peak_posted_bytes, self._posted_bytes)
        if self._blocking:
            self._wait(message, work, self._listeners)

    def run(
        self,
        block: str,
        micro_batch: int,
        clock_mhz: int | None = None,
        mode: str = KEEP,
        stream: str = COMPUTE,
    ) -> None:
        """Wait for a block's tensors and run it, together with its other devices.

        Args:
            block: Any block of this device.
            micro_batch: Number of the micro-batch.
            clock_mhz: The clock asked for before it; None to leave it to a plan that is followed, or to the
                GPU.
            mode: How a forward block runs; see `runtime.program.tensor_flow.MODES`.
            stream: Stream that it runs on.

        Raises:
            TransferError: A tensor did not arrive.
        """
        key = block, micro_batch, mode, stream, clock_mhz
        step = self._steps.get(key) or self._new_step(key)
        self.order.append((block, micro_batch))
        side, is_beside = self._side, stream != COMPUTE and self._side is not None
        try:
            for tell in self._standing_at if is_beside else self._listeners.reach:
                tell(step.run)
        except RuntimeError as error:
            raise self._in_words(error) from error
        taken = [self._take(transfer) for transfer in step.inputs]
        if side is None:
            made = self._computed(step, taken, self._listeners)
            for consumer, transfer in step.outputs.items():
                if self._uses_left.get(transfer):
                    self._made[transfer] = made[consumer]
            return
        if is_beside:
            later = side.run(stream, lambda: self._computed_beside(step, taken))
        else:
            later = side.computed(self._computed(step, taken, self._listeners))
        for transfer in step.outputs.values():
            if self._uses_left.get(transfer):
                self._made[transfer] = later
        if self._blocking and is_beside:
            later()

    def _computed_beside(self, step: _Step, taken: Sequence[_Given]) -> Made:
        for tell in self._beside.reach:
            tell(step.run)
        return self._computed(step, taken, self._beside)

    def _computed(self, step: _Step, taken: Sequence[_Given], listeners: _Listeners) -> Made:
        """Run a block once its tensors are there, in the stream that it belongs to."""
        run = step.run
        arrived = [self._arrived(run.block, given, listeners) for given in taken]
        for tell in listeners.start:
            tell(run, arrived)
        made = self._blocks.run(run.block, run.micro_batch, arrived, run.mode)
        for tell in listeners.stop:
            tell(run, made.values())
        return made

    def send(
        self, producer: str, consumer: str, micro_batch: int, *, target: int, part: Part | None = None
    ) -> None:
        """Send a tensor that a block of this device made, or a part of it."""
        message = self._announced(producer, consumer, micro_batch, self._index, target, part)
        tensor = self._arrived(consumer, self._use(message.transfer), self._listeners)
        form = self._forms.get(message) or self._new_form(message)
        if tensor.shape != form.shape or tensor.dtype != form.dtype:  # on the wire nothing would notice
            spec = TensorSpec.of(tensor.dtype, tensor.shape)
            raise ScriptError(f"device {self._index}: {message.transfer} is {spec} instead of {form.spec}")
        if part is not None:
            tensor = part_of(tensor, *part)
        try:
            work = self._transport.send(tensor, form.channel)
        except RuntimeError as error:
            raise self._in_words(error, target) from error
        for tell in self._listeners.posted:
            tell(message, work)
        # Gloo says only in wait() that a send is complete, so there the tensors stay until the end.
        self._sent = [sent for sent in self._sent if not sent[2].is_completed()]
        if self._blocking:
            self._wait(message, work, self._listeners)
        else:
            self._sent.append((message, tensor, work))

    def finish(self) -> None:
        """Wait until all that was sent has left and all that was computed is done.

        Raises:
            TransferError: A send did not end.
            ScriptError: Something was received or computed in vain.
        """
        for message, _, work in self._sent:
            self._wait(message, work, self._listeners)
        self._sent = []
        if self._side is not None:
            self._side.finish()
        left = [str(transfer) for transfer in (*self._received, *self._made)]
        if left:
            raise ScriptError(f"device {self._index}: nobody took {', '.join(left[:4])}")
        try:
            for tell in self._listeners.drain:
                tell()
        except RuntimeError as error:
            raise self._in_words(error) from error
        if self._torch_device.type == "cuda":
            torch.cuda.synchronize()
        for tell in self._listeners.end:
            tell()

    def message_tensors(self) -> list[Tensor]:
        """Return the tensors of messages: received and not taken, made and not used up, sent and not gone."""
        moving = (*self._received.values(), *self._sent)
        made = [tensor for tensor in (*self._made.values(),) if isinstance(tensor, Tensor)]
        return [*made, *(tensor for _, tensor, _ in moving)]

    def spec_of_model(self, transfer: Transfer) -> TensorSpec:
        """Return the form that the model hands over.

        Raises:
            ScriptError: Nothing, because the one block takes nothing from the other.
        """
        if transfer.producer not in self._blocks.inputs.get(transfer.consumer, ()):
            raise ScriptError(
                f"device {self._index}: {transfer.consumer} takes nothing from {transfer.producer}"
            )
        return self._blocks.spec_between(*transfer)

    def _count_uses(self) -> Counter[Transfer]:
        """Return how often each tensor that this device makes is sent or taken in an iteration."""
        arriving = set(self._calls.transfers(Receive))
        uses = Counter(self._calls.transfers(Send))
        for run in self._calls.runs:
            uses.update(transfer for transfer in self._inputs(run) if transfer not in arriving)
        return uses

    def _inputs(self, run: Run) -> Iterator[Transfer]:
        for producer in self._blocks.inputs[run.block]:
            if (producer, run.micro_batch) not in self._left_out:
                yield Transfer(producer, run.block, run.micro_batch)

    def _new_step(self, key: _RunKey) -> _Step:
        """Return the part of a run that is the same in all iterations, and keep it."""
        run = Run(*key)
        consumers = [name for name, inputs in self._blocks.inputs.items() if run.block in inputs]
        outputs = {consumer: Transfer(run.block, consumer, run.micro_batch) for consumer in consumers}
        return self._steps.setdefault(key, _Step(run, tuple(self._inputs(run)), outputs))

    def _announced(
        self, producer: str, consumer: str, micro_batch: int, source: int, target: int, part: Part | None
    ) -> Message:
        """Return a message that is about to be posted."""
        key = producer, consumer, micro_batch, source, target, part
        message = self._messages.get(key)
        if message is None:
            message = Message(Transfer(producer, consumer, micro_batch), source, target, part)
            self._messages[key] = message
        for tell in self._listeners.post:
            tell(message)
        return message

    def _new_form(self, message: Message) -> _Form:
        """Return the form of a message, and keep it; where tokens vary, for an iteration."""
        transfer, channel = message.transfer, (message.source, message.target)
        spec = self._specs.get((transfer.producer, transfer.consumer)) or self.spec_of_model(transfer)
        dtype: torch.dtype = getattr(torch, spec.dtype)
        self._varies |= self._blocks.varies
        if spec.varies:
            self._varies = True
            spec = self._blocks.spec_of(*transfer, spec)
        if not self._transport.has(channel):
            raise ScriptError(
                f"device {self._index}: no channel from {channel[0]} to {channel[1]}; "
                "generate the scripts anew"
            )
        return self._forms.setdefault(message, _Form(channel, spec, torch.Size(spec.shape), dtype))

    def _take(self, transfer: Transfer) -> _Given:
        """Return a tensor that a block takes, or how it comes."""
        moving = self._received.pop(transfer, None)
        if moving is None:
            return self._use(transfer)
        self._posted_bytes -= moving[1].nbytes
        return moving

    def _use(self, transfer: Transfer) -> Tensor | Later:
        """Return a tensor that a block of this device made, and forget it at its last use."""
        if transfer not in self._made:
            raise ScriptError(
                f"device {self._index}: {self._position.text}, before {transfer} was received or computed"
            )
        left = self._uses_left[transfer] = self._uses_left[transfer] - 1
        return self._made[transfer] if left else self._made.pop(transfer)

    def _arrived(self, consumer: str, given: _Given, listeners: _Listeners) -> Tensor:
        """Return a tensor once it is there; one that comes in parts is gathered with the other devices."""
        if isinstance(given, Tensor):
            return given
        if not isinstance(given, tuple):
            return given()[consumer]
        message, buffer, work = given
        if not self._blocking:
            self._wait(message, work, listeners)
        if message.part is None:
            return buffer
        try:
            return self._blocks.gathered(consumer, buffer, self._forms[message].shape)
        except RuntimeError as error:
            raise self._in_words(error) from error

    def _wait(self, message: Message, work: Pending, listeners: _Listeners) -> None:
        for tell in listeners.wait:
            tell(message)
        try:
            work.wait()
        except RuntimeError as error:
            other = message.target if message.source == self._index else message.source
            raise self._in_words(error, other) from error
        for tell in listeners.waited:
            tell(message)

    def _in_words(self, error: RuntimeError, other: int | None = None) -> TransferError:
        """Return an error of a transfer, with another device, that says where this one stands, and why."""
        cause = None if other is None else self._transport.cause(error, other)
        return TransferError(f"device {self._index}: {self._position.text}: {cause or reason(error)}", cause)


_INWARDS = {"post", "reach", "wait", "start", "drain"}


class _Listeners:
    """Functions to call at each event of a `DeviceObserver`, in order; none for observers that ignore it."""

    def __init__(self, observers: Sequence[DeviceObserver]) -> None:
        def of(event: str) -> tuple[Callable[..., Any], ...]:
            ignored = getattr(DeviceObserver, event)
            return tuple(
                getattr(observer, event)
                for observer in (observers if event in _INWARDS else observers[::-1])
                if getattr(type(observer), event, None) is not ignored
            )

        self.begin, self.end, self.drain = of("begin"), of("end"), of("drain")
        self.post, self.posted = of("post"), of("posted")
        self.reach, self.wait, self.waited = of("reach"), of("wait"), of("waited")
        self.start, self.stop = of("start"), of("stop")
