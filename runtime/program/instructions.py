"""Programs: the runs, sends and receives of each device, in order, and their text.

A program says nothing of times: it is the same for every frequency plan of a schedule, whose clocks scripts
give to its runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from placements import Block, Placement
from placements.block import COMPUTE
from placements.copies.replicas import copies_in, not_taken
from placements.modes import Chosen
from runtime.program.data_parallel import Part
from runtime.program.tensor_flow import KEEP, MODES, stage_decisions
from runtime.program.tensor_spec import TensorSpec, TensorSpecs


class ProgramTextError(ValueError):
    """A line is not the text of an instruction; the message shows the line and the right forms."""


@dataclass(frozen=True)
class Receive:
    """Post the receive of a block's tensor, without waiting for it.

    The consumer's `Run` waits for the arrival. Of a tensor that comes in parts, that run gathers them.

    Attributes:
        producer: The block whose output or gradient it is.
        consumer: The block that takes it.
        micro_batch: Micro-batch of both blocks.
        source: The device that sends it.
        part: Which of how many equal parts comes; None for the whole tensor.
    """

    producer: str
    consumer: str
    micro_batch: int
    source: int
    part: Part | None = None

    def __str__(self) -> str:
        """Return the one-line text that `parse_instruction` reads."""
        return f"receive {_message_text(self, f'from {self.source}')}"


@dataclass(frozen=True)
class Run:
    """Wait for a block's inputs, then run it, together with its other devices.

    Attributes:
        mode: How a forward block runs, one of `MODES`; its backward follows it.
        stream: Stream of its devices that it runs on, as the placement says.
        clock_mhz: Clock that a script asks for before it, or None; no part of the program.
    """

    block: str
    micro_batch: int
    mode: str = KEEP
    stream: str = COMPUTE
    clock_mhz: int | None = field(default=None, compare=False)

    @property
    def instance_text(self) -> str:
        """The block and its micro-batch as errors name them."""
        return f"{quoted(self.block)} of micro-batch {self.micro_batch}"

    def __str__(self) -> str:
        """Return the one-line text that `parse_instruction` reads; `keep` and `compute` go without saying."""
        how = "" if self.mode == KEEP else f" {self.mode}"
        how += "" if self.stream == COMPUTE else f" on {quoted(self.stream)}"
        return f"run {quoted(self.block)} #{self.micro_batch}{how}"


@dataclass(frozen=True)
class Send:
    """Send a block's tensor to a target device, without waiting for its arrival; see `Receive`."""

    producer: str
    consumer: str
    micro_batch: int
    target: int
    part: Part | None = None

    def __str__(self) -> str:
        """Return the one-line text that `parse_instruction` reads."""
        return f"send {_message_text(self, f'to {self.target}')}"


Instruction = Receive | Run | Send


_NAME = r'([\w.@]+|"(?:[^"\\]|\\.)*")'
_RUN = re.compile(rf"run {_NAME} #(-?\d+)(?: ({'|'.join(MODES[1:])}))?(?: on {_NAME})?")
_MESSAGE = re.compile(
    rf"(?:(receive)|send) {_NAME} -> {_NAME} #(-?\d+) (?(1)from|to) (\d+)(?: part (\d+) of (\d+))?"
)


def parse_instruction(line: str) -> Instruction:
    """Return the instruction whose text is the line.

    Raises:
        ProgramTextError: No instruction has this text.

    >>> parse_instruction("send F1 -> F2 #0 to 2")
    Send(producer='F1', consumer='F2', micro_batch=0, target=2, part=None)
    >>> parse_instruction("receive F1 -> F2 #0 from 2 part 1 of 4").part
    (1, 4)
    >>> str(parse_instruction('run "my block" #3'))
    'run "my block" #3'
    >>> parse_instruction("run F1 #2 recompute").mode
    'recompute'
    """
    if match := _RUN.fullmatch(line.strip()):
        block, n, mode, stream = match.groups()
        return Run(_unquoted(block), int(n), mode or KEEP, _unquoted(stream) or COMPUTE)
    if match := _MESSAGE.fullmatch(line.strip()):
        receives, producer, consumer, n, device, index, count = match.groups()
        part = (int(index), int(count)) if count else None
        build = Receive if receives else Send
        return build(_unquoted(producer), _unquoted(consumer), int(n), int(device), part)
    raise ProgramTextError(
        f"{line.strip()!r} is not an instruction; write 'run F1 #0', 'run F1 #0 recompute', "
        "'run F1 #0 on communication', 'send F1 -> F2 #0 to 2' or 'receive F0 -> F1 #0 from 0'"
    )


@dataclass(frozen=True)
class Programs:
    """One program per device.

    Attributes:
        placement: What runs where.
        num_micro_batches: How many micro-batches one iteration runs.
        instructions: For each device what it does, in order; shape ``(num_devices, any)``.
        specs: For each device what the messages carry that it sends or receives; shape ``(num_devices,)``,
            or empty where no model is known yet.
        batch: For each micro-batch the choice of the placement's one decision, whose choices are then the
            micro-batches of a batch and no modes; empty where all are alike.
        lines: For each device the line of its script on which each instruction stands; empty where there are
            no scripts.
        cells: For each device the cells of another tool's table that its instructions were read from.
    """

    placement: Placement
    num_micro_batches: int
    instructions: tuple[tuple[Instruction, ...], ...]
    specs: tuple[TensorSpecs, ...] = ()
    batch: tuple[int, ...] = ()
    lines: tuple[tuple[int, ...], ...] = field(default=(), compare=False)
    cells: tuple[tuple[str, ...], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check lengths, on which every look-up relies; `runtime.program.deadlock.check` proves the rest."""
        assert len(self.instructions) == self.placement.num_devices
        assert len(self.specs) in (0, self.placement.num_devices)
        assert len(self.batch) in (0, self.num_micro_batches)

    def with_specs(self, spec_between: Callable[[str, str], TensorSpec]) -> Programs:
        """Return the programs with the spec of each message, by producer and consumer, at both ends."""
        specs = tuple(
            {
                (message.producer, message.consumer): spec_between(message.producer, message.consumer)
                for message in program
                if not isinstance(message, Run)
            }
            for program in self.instructions
        )
        return replace(self, specs=specs)

    def changed(self, change: Callable[[int, Instruction], Instruction]) -> Programs:
        """Return the programs with each instruction of each device changed, in order."""
        instructions = tuple(
            tuple(change(device, instruction) for instruction in program)
            for device, program in enumerate(self.instructions)
        )
        return replace(self, instructions=instructions)

    @cached_property
    def chosen(self) -> tuple[Chosen, ...]:
        """For each micro-batch the choice of each decision of the placement; empty where it has none.

        The modes of the forward blocks say so, or which copies of them run, the first choice where none of
        them runs; or the batch.
        """
        if self.batch:
            return tuple((choice,) for choice in self.batch)
        decisions = self.placement.decisions
        if not decisions:
            return ()
        copies = copies_in(self.placement)
        decision_of = self.placement.decision_of if copies else stage_decisions(self.placement)
        choices = [[0] * len(decisions) for _ in range(self.num_micro_batches)]
        for program in self.instructions:
            for run in program:
                if isinstance(run, Run) and run.block in decision_of and run.micro_batch < len(choices):
                    i = decision_of[run.block]
                    if copies:
                        choices[run.micro_batch][i] = copies[run.block].number
                    elif run.mode in decisions[i].names:
                        choices[run.micro_batch][i] = decisions[i].names.index(run.mode)
        return tuple(map(tuple, choices))

    @cached_property
    def left_out(self) -> frozenset[tuple[str, int]]:
        """The blocks that micro-batches leave out, of copies or of a batch: (block, micro-batch) pairs."""
        return left_out(self.placement, self.chosen if self.batch or copies_in(self.placement) else ())

    @property
    def decided(self) -> Placement:
        """The placement with decisions on modes alone: without that on the micro-batches of a batch."""
        return replace(self.placement, decisions=()) if self.batch else self.placement

    def block(self, name: str, micro_batch: int) -> Block:
        """Return a block as a micro-batch runs it."""
        placement = self.placement.as_run(self.chosen[micro_batch]) if self.chosen else self.placement
        return placement.by_name[name]

    @cached_property
    def channels(self) -> tuple[tuple[int, int], ...]:
        """The (source, target) pairs of devices between which anything is sent, ascending.

        Of copies all pairs, so that a micro-batch may take other ones in a later iteration.
        """
        if copies_in(self.placement):
            by_name = self.placement.by_name
            ends = {
                (source, target)
                for block in self.placement.blocks
                for name in block.after
                for source in by_name[name].devices
                for target in block.devices
            }
            return tuple(sorted(pair for pair in ends if pair[0] != pair[1]))
        sends = (
            (device, send.target)
            for device, program in enumerate(self.instructions)
            for send in program
            if isinstance(send, Send)
        )
        return tuple(sorted(set(sends)))

    def __str__(self) -> str:
        """Return the text of all programs, a line for each instruction under a line for its device."""
        lines = []
        for device, program in enumerate(self.instructions):
            lines += [f"device {device}", *(f"    {instruction}" for instruction in program)]
        return "\n".join(lines)


def left_out(placement: Placement, chosen: Sequence[Chosen]) -> frozenset[tuple[str, int]]:
    """Return the blocks that do not run in their micro-batches, as these have chosen."""
    of_each = {choice: not_taken(placement, choice) for choice in set(chosen)}
    return frozenset((name, n) for n, choice in enumerate(chosen) for name in of_each[choice])


def _message_text(message: Send | Receive, end: str) -> str:
    part = "" if message.part is None else f" part {message.part[0]} of {message.part[1]}"
    return f"{quoted(message.producer)} -> {quoted(message.consumer)} #{message.micro_batch} {end}{part}"


def quoted(name: str) -> str:
    """Return a name as one word on one line: in quotes, as in JSON, if it is not of letters and digits."""
    return name if re.fullmatch(r"[\w.@]+", name) else json.dumps(name)


def _unquoted(text: str | None) -> str:
    return "" if text is None else str(json.loads(text)) if text.startswith('"') else text
