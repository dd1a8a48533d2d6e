"""The steady states of a program as loops: found in the instructions, and unrolled back to exactly these.

It reads the program only, not the search's repetend: transfers may make a device's loop begin elsewhere. A
schedule that ends one phase before it begins the next, as GPipe does, has a loop for each.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from runtime.program.instructions import Instruction, Programs, Run, Send


@dataclass(frozen=True)
class Loop:
    """Rounds that differ by their micro-batches only.

    Attributes:
        body: What the first round does.
        rounds: How often it runs; at least 2, when it is found.
        shift: Micro-batches by which each round is later than the one before.
    """

    body: tuple[Instruction, ...]
    rounds: int
    shift: int

    @property
    def first_micro_batch(self) -> int:
        """The lowest one in the first round."""
        return min(instruction.micro_batch for instruction in self.body)

    def unroll(self) -> tuple[Instruction, ...]:
        """Return all rounds, instruction by instruction."""
        rounds = range(self.rounds)
        return tuple(_later(each, turn * self.shift) for turn in rounds for each in self.body)


Straight = tuple[Instruction, ...]
"""Instructions outside of the loops."""


@dataclass(frozen=True)
class LoopedProgram:
    """A program as loops, with what comes before, between and after them.

    Attributes:
        sections: Sections in their order; no straight section is empty or next to another.
    """

    sections: tuple[Straight | Loop, ...]

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, in their order."""
        return tuple(section for section in self.sections if isinstance(section, Loop))

    @property
    def straight(self) -> Straight:
        """All instructions outside of the loops, in their order."""
        return tuple(each for section in self.sections if not isinstance(section, Loop) for each in section)

    @property
    def covered(self) -> int:
        """How many instructions the loops stand for."""
        return sum(len(loop.body) * loop.rounds for loop in self.loops)

    def unroll(self) -> tuple[Instruction, ...]:
        """Return the program, instruction by instruction."""
        sections = (section.unroll() if isinstance(section, Loop) else section for section in self.sections)
        return tuple(each for section in sections for each in section)


def find_loops(instructions: Sequence[Instruction], shift: int = 1) -> LoopedProgram:
    """Find the loop that covers most of a program, then in what is left the next one, and so on.

    Each block and each message is in one loop only: whatever of them is left over beside it is warmup or
    cooldown. Of loops that cover the same, one with the smallest body comes first, then one that does not
    begin with the send of what ran before it, then the earliest.

    A loop of period p goes on as long as each instruction comes again p places on, `shift` micro-batches
    later. In a program each instruction comes once, so it has one possible period, and the time grows
    with the length of the program and the number of loops only.

    Args:
        instructions: Any; a program's, as a rule.
        shift: Micro-batches per round; those of the repetend.

    >>> from runtime.program.instructions import parse_instruction
    >>> lines = ["run F0 #0", "run F0 #1", "run B0 #0", "run F0 #2", "run B0 #1", "run B0 #2"]
    >>> loop = find_loops([parse_instruction(line) for line in lines]).loops[0]
    >>> [str(instruction) for instruction in loop.body], loop.rounds, loop.first_micro_batch
    (['run F0 #1', 'run B0 #0'], 2, 0)
    """
    assert shift >= 1
    sections: list[Straight | Loop] = [tuple(instructions)]
    taken: set[Instruction] = set()
    while found := _best(sections, shift, taken):
        place, (begin, period, rounds) = found
        section = sections[place]
        assert not isinstance(section, Loop)
        loop = Loop(section[begin : begin + period], rounds, shift)
        taken |= set(map(kind, loop.body))
        sections[place : place + 1] = [section[:begin], loop, section[begin + period * rounds :]]
    return LoopedProgram(tuple(section for section in sections if section))


def best_loops(programs: Programs) -> tuple[int, tuple[LoopedProgram, ...]]:
    """Find the loops of programs whose number of micro-batches per round is not known.

    Returns:
        That number, of those up to the number of devices the one whose loops cover most; and by device what
        `find_loops` finds with it.
    """
    shifts = range(1, programs.placement.num_devices + 1)
    candidates = ((shift, loops_of_each(programs, shift)) for shift in shifts)
    return max(candidates, key=lambda each: (sum(looped.covered for looped in each[1]), -each[0]))


def loops_of_each(programs: Programs, shift: int) -> tuple[LoopedProgram, ...]:
    """Return what `find_loops` finds in the program of each device."""
    return tuple(find_loops(program, shift) for program in programs.instructions)


def kind(instruction: Instruction) -> Instruction:
    """Return an instruction without its micro-batch, and without the mode that this one runs in."""
    if isinstance(instruction, Run):
        return Run(instruction.block, 0, stream=instruction.stream)
    return replace(instruction, micro_batch=0)


def _best(
    sections: Sequence[Straight | Loop], shift: int, taken: Container[Instruction]
) -> tuple[int, _Found] | None:
    """Return the place of a straight section, and the loop in it that covers most."""
    found = [
        (_preference(section, loop), -place, loop)
        for place, section in enumerate(sections)
        if not isinstance(section, Loop)
        for loop in _free_loops(section, shift, taken)
    ]
    if not found:
        return None
    _, place, loop = max(found)
    return -place, loop


def _free_loops(section: Straight, shift: int, taken: Container[Instruction]) -> Iterator[_Found]:
    """Yield the loops of a section that have nothing of what is taken."""
    num_taken = list(itertools.accumulate((kind(each) in taken for each in section), initial=0))
    for loop in _loops(section, shift):
        if num_taken[loop.begin] == num_taken[loop.begin + loop.period]:
            yield loop


class _Found(NamedTuple):
    begin: int
    period: int
    rounds: int

    @property
    def covered(self) -> int:
        return self.period * self.rounds


def _preference(program: Sequence[Instruction], loop: _Found) -> tuple[int, int, bool, int]:
    return loop.covered, -loop.period, not isinstance(program[loop.begin], Send), -loop.begin


def _loops(program: Sequence[Instruction], shift: int) -> Iterator[_Found]:
    for period, places in _recurrences(program, shift).items():
        for begin, length in _consecutive(places):
            if length >= period:
                for spare in range(length % period + 1):
                    yield _Found(begin + spare, period, 1 + length // period)


def _recurrences(program: Sequence[Instruction], shift: int) -> dict[int, list[int]]:
    """Return for each period the places whose instruction comes again a period on; ascending."""
    places_of: dict[Instruction, list[int]] = defaultdict(list)
    for place, instruction in enumerate(program):
        places_of[instruction].append(place)
    recurrences: dict[int, list[int]] = defaultdict(list)
    for place, instruction in enumerate(program):
        for again in places_of.get(_later(instruction, shift), ()):
            if again > place:
                recurrences[again - place].append(place)
    return recurrences


def _consecutive(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (begin, length) of each run of consecutive integers in an ascending list.

    >>> list(_consecutive([1, 2, 3, 7]))
    [(1, 3), (7, 1)]
    """
    for _, group in itertools.groupby(enumerate(places), key=lambda each: each[1] - each[0]):
        run = [place for _, place in group]
        yield run[0], len(run)


def _later(instruction: Instruction, micro_batches: int) -> Instruction:
    return replace(instruction, micro_batch=instruction.micro_batch + micro_batches)
