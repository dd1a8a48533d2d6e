"""Calls of a script, recorded but not carried out, so that it is checked before any process waits."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from placements import Kind, Placement
from placements.block import COMPUTE
from runtime.program.data_parallel import Part
from runtime.program.instructions import Instruction, Receive, Run, Send
from runtime.program.tensor_flow import KEEP, MODES

VERBS = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "backward_input",
    Kind.W: "backward_weight",
    Kind.R: "recompute",
}
"""What a script calls the run of a block, by the block's kind."""

ACTIONS = (*VERBS.values(), "send", "receive", "prefetch")
"""What a line of a script may ask of its device."""


class ScriptError(ValueError):
    """A script does not fit its placement, or was started in the wrong way."""


class Transfer(NamedTuple):
    """The tensor that a block, its producer, hands to another of the same micro-batch."""

    producer: str
    consumer: str
    micro_batch: int

    def __str__(self) -> str:
        """Return it as errors name it."""
        return f"{self.producer} -> {self.consumer} of micro-batch {self.micro_batch}"


class Message(NamedTuple):
    """A tensor on its way from one device to another.

    Attributes:
        transfer: Tensor that it carries.
        source: The device that sends it.
        target: The device that receives it.
        part: Which of how many equal parts of it; None for the whole.
    """

    transfer: Transfer
    source: int
    target: int
    part: Part | None = None

    def __str__(self) -> str:
        """Return it as errors name it."""
        return str(self.transfer)


def message_of(device: int, end: Instruction) -> Message:
    """Return the message of which a send or receive of a device is one end."""
    assert isinstance(end, Send | Receive)
    source, target = (device, end.target) if isinstance(end, Send) else (end.source, device)
    return Message(Transfer(end.producer, end.consumer, end.micro_batch), source, target, end.part)


def _method(verb: str) -> Callable[..., None]:
    """Return the method of a script's device that runs blocks of one kind."""

    def run(device: Verbs, block: str, micro_batch: int, **how: Any) -> None:
        device.compute(verb, block, micro_batch, **how)

    return run


class Verbs(ABC):
    """The methods of a script's device that run blocks, a verb for each kind of `VERBS`."""

    forward, backward, backward_input, backward_weight, recompute = map(_method, VERBS.values())

    def compute(self, verb: str, block: str, micro_batch: int, **how: Any) -> None:
        """Run a block, or write that down; `how` has the other fields of `Run`."""
        self.run(block, micro_batch, **how)

    run: Callable[..., None]
    """Runs a block of any kind, or writes that down."""

    @abstractmethod
    def receive(
        self, producer: str, consumer: str, micro_batch: int, *, source: int, part: Part | None = None
    ) -> None:
        """Post the receive of a block's tensor for a block of this device, or record it."""

    def prefetch(self, producer: str, consumer: str, micro_batch: int, **where: Any) -> None:
        """Post a receive ahead of other blocks than the one that takes it; see `receive`."""
        self.receive(producer, consumer, micro_batch, **where)


@dataclass
class Calls(Verbs):
    """The calls of a script's iteration, written down without being carried out.

    A script may call it like a `Device`; so counts and mistakes are known before any process waits.

    Attributes:
        placement: With which a verb must agree; None to take any.
        instructions: Runs, sends and receives, in order.
        lines: The line of the script that each of them stands on.
    """

    placement: Placement | None = None
    instructions: list[Instruction] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    _firsts: dict[bool, tuple[Run, int]] = field(default_factory=dict)

    def run(
        self,
        block: str,
        micro_batch: int,
        clock_mhz: int | None = None,
        mode: str = KEEP,
        stream: str = COMPUTE,
    ) -> None:
        """Write down a run of any block; a ScriptError refuses its clock or its mode.

        All blocks that compute have a clock or none has; blocks beside them have none.
        """
        run = Run(block, micro_batch, mode, stream, clock_mhz)
        if mode not in MODES:
            raise _wrong(run, f"has mode={mode!r}; write one of {', '.join(MODES)}")
        if clock_mhz is not None and (type(clock_mhz) is not int or clock_mhz < 1):
            raise _wrong(run, f"has clock_mhz={clock_mhz!r}; give whole MHz above 0")
        if clock_mhz is not None and stream != COMPUTE:
            raise _wrong(
                run,
                f"has clock_mhz={clock_mhz!r} on the stream {stream!r}, beside blocks of other clocks; leave "
                "the clocks of the script out",
            )
        is_bare = clock_mhz is None
        if stream == COMPUTE and is_bare not in self._firsts:
            self._firsts[is_bare] = run, _line()
            if len(self._firsts) == 2:
                (bare, line), (clocked, other_line) = self._firsts[True], self._firsts[False]
                raise ScriptError(
                    f"line {line}: {bare.instance_text} has no clock_mhz, but {clocked.instance_text} has "
                    f"(line {other_line}); give one to all blocks of the script, or to none"
                )
        self._add(run)

    def send(
        self, producer: str, consumer: str, micro_batch: int, *, target: int, part: Part | None = None
    ) -> None:
        """Write down a send."""
        self._add(Send(producer, consumer, micro_batch, target, part))

    def receive(
        self, producer: str, consumer: str, micro_batch: int, *, source: int, part: Part | None = None
    ) -> None:
        """Write down a receive."""
        self._add(Receive(producer, consumer, micro_batch, source, part))

    @property
    def runs(self) -> list[Run]:
        """Runs of blocks, in order."""
        return [run for run in self.instructions if isinstance(run, Run)]

    def transfers(self, kind: type[Send] | type[Receive]) -> list[Transfer]:
        """Return the transfers of all sends, or of all receives, in order."""
        messages = (message for message in self.instructions if isinstance(message, kind))
        return [Transfer(message.producer, message.consumer, message.micro_batch) for message in messages]

    @property
    def asks_for_clocks(self) -> bool:
        """Whether any block is given a clock."""
        return any(run.clock_mhz is not None for run in self.runs)

    def compute(self, verb: str, block: str, micro_batch: int, **how: Any) -> None:
        """Write down the run of a block of the verb's kind; only a forward block has a mode."""
        known = self.placement.by_name.get(block) if self.placement else None
        if known is not None and VERBS.get(known.kind) != verb:
            raise ScriptError(
                f"line {_line()}: {verb} of {block}, a block of kind {known.kind}; "
                f"write {VERBS.get(known.kind, 'run')}"
            )
        if verb != VERBS[Kind.F] and "mode" in how:
            raise ScriptError(f"line {_line()}: {verb} of {block} has a mode; only forward blocks have one")
        self.run(block, micro_batch, **how)

    def _add(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self.lines.append(_line())


class OfStages:
    """A device that is called with the names of copies, and calls another with the names of their stages."""

    def __init__(self, device: Any, stages: Mapping[str, str]) -> None:
        self._device, self._stages = device, stages

    def __getattr__(self, verb: str) -> Callable[..., None]:
        """Return an action of the device."""
        action, stages = getattr(self._device, verb), self._stages

        def called(*names_and_micro_batch: Any, **options: Any) -> None:
            *names, micro_batch = names_and_micro_batch
            action(*(stages[name] for name in names), micro_batch, **options)

        return called


def _wrong(run: Run, text: str) -> ScriptError:
    return ScriptError(f"line {_line()}: {run.instance_text} {text}")


def _line() -> int:
    """Return the line of the script that calls."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_lineno
