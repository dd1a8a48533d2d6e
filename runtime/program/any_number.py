"""Programs of any number of micro-batches: the loops run more or fewer rounds, their ends stay as they are.

Whether the programs of another number are safe is not known here: `runtime.program.deadlock.check` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.program.instructions import Instruction, Programs
from runtime.program.loops import Loop, Rolled, Straight, kind


@dataclass(frozen=True)
class Stretch:
    """The rolled programs of all devices, each of whose blocks and messages is in a loop of its device.

    Attributes:
        programs: As they were rolled.
        rolled: By device.
        shift: Micro-batches per round.
        least: The fewest micro-batches that they can have.
    """

    programs: Programs
    rolled: tuple[Rolled, ...]
    shift: int
    least: int

    def at(self, num_micro_batches: int) -> Programs:
        """Return the programs for so many micro-batches.

        Args:
            num_micro_batches: At least `least`, and a whole number of rounds more.
        """
        more = num_micro_batches - self.programs.num_micro_batches
        assert num_micro_batches >= self.least and more % self.shift == 0
        instructions = tuple(self._stretched(rolled, more) for rolled in self.rolled)
        return replace(self.programs, num_micro_batches=num_micro_batches, instructions=instructions)

    def _stretched(self, rolled: Rolled, more: int) -> tuple[Instruction, ...]:
        def moved(part: Straight | Loop) -> Straight | Loop:
            if isinstance(part, Loop):
                return replace(part, rounds=part.rounds + more // self.shift)
            return tuple(
                replace(each, micro_batch=each.micro_batch + more) if is_late(rolled, each) else each
                for each in part
            )

        return Rolled(tuple(map(moved, rolled.parts))).unroll()


def stretch(programs: Programs, rolled: Sequence[Rolled], shift: int) -> Stretch | None:
    """Return rolled programs as programs of any number of micro-batches, or None if their loops are not.

    The fewest are those for which some loop does not run at all, but a round if those would be none.

    Every block and every message of a device must be in a loop, for every micro-batch of a round.

    Args:
        programs: Of all devices.
        rolled: What `runtime.program.loops.roll` found in each.
        shift: Micro-batches per round.
    """
    if not any(each.loops for each in rolled) or not all(_is_whole(each, shift) for each in rolled):
        return None
    rounds = min(loop.rounds for each in rolled for loop in each.loops)
    least = programs.num_micro_batches - rounds * shift
    return Stretch(programs, tuple(rolled), shift, least or shift)


def is_late(rolled: Rolled, instruction: Instruction) -> bool:
    """Tell whether an instruction outside of the loops is of a later micro-batch than its like in a loop."""
    again = [
        each.micro_batch
        for loop in rolled.loops
        for each in loop.body
        if kind(each) == kind(instruction) and (each.micro_batch - instruction.micro_batch) % loop.shift == 0
    ]
    return bool(again) and instruction.micro_batch > again[0]


def _is_whole(rolled: Rolled, shift: int) -> bool:
    inside: dict[Instruction, list[int]] = {kind(each): [] for each in rolled.straight}
    for loop in rolled.loops:
        for each in loop.body:
            inside.setdefault(kind(each), []).append(each.micro_batch % shift)
    return all(sorted(residues) == list(range(shift)) for residues in inside.values())
