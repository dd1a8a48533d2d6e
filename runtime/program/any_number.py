"""Programs of any number of micro-batches: the loops run more or fewer rounds, their ends stay as they are.

Whether the programs of another number are safe is not known here: `runtime.program.deadlock.check` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.program.instructions import Instruction, Programs
from runtime.program.loops import Loop, LoopedProgram, Straight, kind


@dataclass(frozen=True)
class ParametricPrograms:
    """The looped programs of all devices, each of whose blocks and messages is in a loop of its device.

    Attributes:
        programs: Programs for their own number of micro-batches.
        looped: Looped programs by device.
        shift: Micro-batches per round.
        least: The fewest micro-batches that they can have.
    """

    programs: Programs
    looped: tuple[LoopedProgram, ...]
    shift: int
    least: int

    def at(self, num_micro_batches: int) -> Programs:
        """Return the programs for at least `least` micro-batches, a whole number of rounds more."""
        more = num_micro_batches - self.programs.num_micro_batches
        assert num_micro_batches >= self.least and more % self.shift == 0

        def moved(looped: LoopedProgram, section: Straight | Loop) -> Straight | Loop:
            if isinstance(section, Loop):
                return replace(section, rounds=section.rounds + more // self.shift)
            return tuple(
                replace(each, micro_batch=each.micro_batch + more) if is_late(looped, each) else each
                for each in section
            )

        instructions = tuple(
            LoopedProgram(tuple(moved(looped, section) for section in looped.sections)).unroll()
            for looped in self.looped
        )
        return replace(self.programs, num_micro_batches=num_micro_batches, instructions=instructions)


def parametric(programs: Programs, looped: Sequence[LoopedProgram], shift: int) -> ParametricPrograms | None:
    """Return looped programs as programs of any number of micro-batches, or None if their loops are not.

    Every block and every message of a device must be in a loop, for every micro-batch of a round. With the
    fewest micro-batches some loop does not run at all, or runs one round if none were left.

    Args:
        programs: Programs of all devices.
        looped: Their loops; see `runtime.program.loops.find_loops`.
        shift: Micro-batches per round.
    """
    if not any(each.loops for each in looped) or not all(_is_whole(each, shift) for each in looped):
        return None
    rounds = min(loop.rounds for each in looped for loop in each.loops)
    least = programs.num_micro_batches - rounds * shift
    return ParametricPrograms(programs, tuple(looped), shift, least or shift)


def is_late(looped: LoopedProgram, instruction: Instruction) -> bool:
    """Tell whether an instruction outside of the loops is of a later micro-batch than its like in a loop."""
    again = [
        each.micro_batch
        for loop in looped.loops
        for each in loop.body
        if kind(each) == kind(instruction) and (each.micro_batch - instruction.micro_batch) % loop.shift == 0
    ]
    return bool(again) and instruction.micro_batch > again[0]


def _is_whole(looped: LoopedProgram, shift: int) -> bool:
    inside: dict[Instruction, list[int]] = {kind(each): [] for each in looped.straight}
    for loop in looped.loops:
        for each in loop.body:
            inside.setdefault(kind(each), []).append(each.micro_batch % shift)
    return all(sorted(residues) == list(range(shift)) for residues in inside.values())
