"""A program's steady state as a loop: found in the instructions, and unrolled back to exactly these.

It reads the program only, not the search's repetend: transfers may make a device's loop begin elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from runtime.program import Instruction, Send


@dataclass(frozen=True)
class Rolled:
    """A program as warmup, a loop and cooldown.

    Attributes:
        warmup: What comes before the loop; everything if there is no loop.
        body: What the loop's first round does.
        rounds: How often the loop runs; 0, or at least 2.
        shift: Micro-batches by which each round is later than the one before.
        first_micro_batch: The lowest one in the first round; 0 if there is no loop.
        cooldown: What comes after the loop.
    """

    warmup: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    rounds: int
    shift: int
    first_micro_batch: int
    cooldown: tuple[Instruction, ...]

    def unroll(self) -> tuple[Instruction, ...]:
        """Return the program, instruction by instruction."""
        rounds = (
            _later(instruction, turn * self.shift) for turn in range(self.rounds) for instruction in self.body
        )
        return (*self.warmup, *rounds, *self.cooldown)


def roll(instructions: Sequence[Instruction], shift: int = 1) -> Rolled:
    """Find the loop that covers most of a program.

    Of loops that cover the same, one with the smallest body comes first, then one that does not begin
    with the send of what ran before it, then the earliest.

    A loop of period p goes on as long as each instruction comes again p places on, `shift` micro-batches
    later. In a program each instruction comes once, so it has one possible period, and the time grows
    with the length of the program only.

    Args:
        instructions: Any; a program's, as a rule.
        shift: Micro-batches per round; the repetend's number of lanes.

    >>> from runtime.program import parse_instruction
    >>> lines = ["run F0 #0", "run F0 #1", "run B0 #0", "run F0 #2", "run B0 #1", "run B0 #2"]
    >>> rolled = roll([parse_instruction(line) for line in lines])
    >>> [str(instruction) for instruction in rolled.body], rolled.rounds, rolled.first_micro_batch
    (['run F0 #1', 'run B0 #0'], 2, 0)
    """
    assert shift >= 1
    program = tuple(instructions)
    loop = max(_loops(program, shift), key=lambda loop: _preference(program, loop), default=None)
    if loop is None:
        return Rolled(program, (), 0, shift, 0, ())
    body = program[loop.begin : loop.begin + loop.period]
    first = min(instruction.micro_batch for instruction in body)
    return Rolled(
        program[: loop.begin], body, loop.rounds, shift, first, program[loop.begin + loop.covered :]
    )


class _Loop(NamedTuple):
    begin: int
    period: int
    rounds: int

    @property
    def covered(self) -> int:
        return self.period * self.rounds


def _preference(program: Sequence[Instruction], loop: _Loop) -> tuple[int, int, bool, int]:
    return loop.covered, -loop.period, not isinstance(program[loop.begin], Send), -loop.begin


def _loops(program: Sequence[Instruction], shift: int) -> Iterator[_Loop]:
    for period, places in _recurrences(program, shift).items():
        for begin, length in _stretches(places):
            if length >= period:
                for spare in range(length % period + 1):
                    yield _Loop(begin + spare, period, 1 + length // period)


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
