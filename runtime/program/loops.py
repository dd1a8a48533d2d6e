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

from runtime.program.instructions import Instruction, Programs, Send


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
class Rolled:
    """A program as loops, with what comes before, between and after them.

    Attributes:
        parts: In their order; no straight part is empty or next to another.
    """

    parts: tuple[Straight | Loop, ...]

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, in their order."""
        return tuple(part for part in self.parts if isinstance(part, Loop))

    @property
    def straight(self) -> Straight:
        """All instructions outside of the loops, in their order."""
        return tuple(each for part in self.parts if not isinstance(part, Loop) for each in part)

    @property
    def covered(self) -> int:
        """How many instructions the loops stand for."""
        return sum(len(loop.body) * loop.rounds for loop in self.loops)

    def unroll(self) -> tuple[Instruction, ...]:
        """Return the program, instruction by instruction."""
        parts = (part.unroll() if isinstance(part, Loop) else part for part in self.parts)
        return tuple(each for part in parts for each in part)


def roll(instructions: Sequence[Instruction], shift: int = 1) -> Rolled:
    """Find the loop that covers most of a program, then in what is left the next one, and so on.

    Each block and each message is in one loop only: whatever of them is left over beside it is warmup or
    cooldown. Of loops that cover the same, one with the smallest body comes first, then one that does not
    begin with the send of what ran before it, then the earliest.

    A loop of period p goes on as long as each instruction comes again p places on, `shift` micro-batches
    later. In a program each instruction comes once, so it has one possible period, and the time grows
    with the length of the program and the number of loops only.

    Args:
        instructions: Any; a program's, as a rule.
        shift: Micro-batches per round; the repetend's number of lanes.

    >>> from runtime.program.instructions import parse_instruction
    >>> lines = ["run F0 #0", "run F0 #1", "run B0 #0", "run F0 #2", "run B0 #1", "run B0 #2"]
    >>> loop = roll([parse_instruction(line) for line in lines]).loops[0]
    >>> [str(instruction) for instruction in loop.body], loop.rounds, loop.first_micro_batch
    (['run F0 #1', 'run B0 #0'], 2, 0)
    """
    assert shift >= 1
    parts: list[Straight | Loop] = [tuple(instructions)]
    taken: set[Instruction] = set()
    while found := _best(parts, shift, taken):
        place, (begin, period, rounds) = found
        part = parts[place]
        assert not isinstance(part, Loop)
        loop = Loop(part[begin : begin + period], rounds, shift)
        taken |= set(map(kind, loop.body))
        parts[place : place + 1] = [part[:begin], loop, part[begin + period * rounds :]]
    return Rolled(tuple(part for part in parts if part))


def roll_all(programs: Programs) -> tuple[int, tuple[Rolled, ...]]:
    """Roll programs whose number of micro-batches per round is not known.

    Returns:
        That number, of those up to the number of devices the one whose loops cover most; and by device what
        `roll` finds with it.
    """
    shifts = range(1, programs.placement.num_devices + 1)
    candidates = ((shift, roll_each(programs, shift)) for shift in shifts)
    return max(candidates, key=lambda each: (sum(rolled.covered for rolled in each[1]), -each[0]))


def roll_each(programs: Programs, shift: int) -> tuple[Rolled, ...]:
    """Return what `roll` finds in the program of each device."""
    return tuple(roll(program, shift) for program in programs.instructions)


def kind(instruction: Instruction) -> Instruction:
    """Return an instruction without its micro-batch."""
    return replace(instruction, micro_batch=0)


def _best(
    parts: Sequence[Straight | Loop], shift: int, taken: Container[Instruction]
) -> tuple[int, _Found] | None:
    """Return the place of a straight part, and the loop in it that covers most."""
    found = [
        (_preference(part, loop), -place, loop)
        for place, part in enumerate(parts)
        if not isinstance(part, Loop)
        for loop in _free_loops(part, shift, taken)
    ]
    if not found:
        return None
    _, place, loop = max(found)
    return -place, loop


def _free_loops(part: Straight, shift: int, taken: Container[Instruction]) -> Iterator[_Found]:
    """Yield the loops of a part that have nothing of what is taken."""
    num_taken = list(itertools.accumulate((kind(each) in taken for each in part), initial=0))
    for loop in _loops(part, shift):
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
        for begin, length in _stretches(places):
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


def _stretches(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (begin, length) of each run of consecutive integers in an ascending list.

    >>> list(_stretches([1, 2, 3, 7]))
    [(1, 3), (7, 1)]
    """
    begin = end = -1
    for place in places:
        if place != end:
            if end > begin:
                yield begin, end - begin
            begin = place
        end = place + 1
    if end > begin:
        yield begin, end - begin


def _later(instruction: Instruction, micro_batches: int) -> Instruction:
    return replace(instruction, micro_batch=instruction.micro_batch + micro_batches)
