"""Programs of any number of micro-batches: the loops run more or fewer rounds, their ends stay as they are.

Whether the programs of another number are safe is not known here: `runtime.deadlock.check` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.program import Instruction, Programs
from runtime.roll import Rolled


@dataclass(frozen=True)
class Stretch:
    """The rolled programs of all devices, each of whose blocks and messages is in its device's loop.

    Attributes:
        programs: As they were rolled.
        rolled: By device.
        shift: Micro-batches per round.
    """

    programs: Programs
    rolled: tuple[Rolled, ...]
    shift: int

    @property
    def least(self) -> int:
        """The number of micro-batches for which some loop does not run at all, and none less than that."""
        number = self.programs.num_micro_batches
        return max(number - rolled.rounds * self.shift for rolled in self.rolled if rolled.body)

    def is_late(self, device: int, instruction: Instruction) -> bool:
        """Tell whether an instruction outside of the loop is of a micro-batch counted from the last one."""
        return is_late(self.rolled[device], self.shift, instruction)

    def at(self, num_micro_batches: int) -> Programs:
        """Return the programs for so many micro-batches.

        Args:
            num_micro_batches: At least `least`, and a whole number of rounds more.
        """
        more = num_micro_batches - self.programs.num_micro_batches
        assert num_micro_batches >= self.least and more % self.shift == 0
        instructions = tuple(
            self._stretched(device, rolled, more) for device, rolled in enumerate(self.rolled)
        )
        return replace(self.programs, num_micro_batches=num_micro_batches, instructions=instructions)

    def _stretched(self, device: int, rolled: Rolled, more: int) -> tuple[Instruction, ...]:
        def moved(part: Sequence[Instruction]) -> tuple[Instruction, ...]:
            return tuple(
                replace(each, micro_batch=each.micro_batch + more) if self.is_late(device, each) else each
                for each in part
            )

        if not rolled.body:
            return rolled.warmup
        rounds = rolled.rounds + more // self.shift
        return replace(
            rolled, warmup=moved(rolled.warmup), rounds=rounds, cooldown=moved(rolled.cooldown)
        ).unroll()


def stretch(programs: Programs, rolled: Sequence[Rolled], shift: int) -> Stretch | None:
    """Return rolled programs as programs of any number of micro-batches, or None if their loops are not.

    Every block and every message of a device must be in its loop, for every micro-batch of a round.

    Args:
        programs: Of all devices.
        rolled: What `runtime.roll.roll` found in each.
        shift: Micro-batches per round.
    """
    if not any(each.body for each in rolled) or not all(_is_whole(each, shift) for each in rolled):
        return None
    return Stretch(programs, tuple(rolled), shift)


def is_late(rolled: Rolled, shift: int, instruction: Instruction) -> bool:
    """Tell whether an instruction outside of the loop is of a later micro-batch than those in the loop."""
    again = [
        each.micro_batch
        for each in rolled.body
        if _kind(each) == _kind(instruction) and (each.micro_batch - instruction.micro_batch) % shift == 0
    ]
    return bool(again) and instruction.micro_batch > again[0]


def _is_whole(rolled: Rolled, shift: int) -> bool:
    outside = {_kind(each) for each in (*rolled.warmup, *rolled.cooldown)}
    inside: dict[Instruction, list[int]] = {kind: [] for kind in outside}
    for each in rolled.body:
        inside.setdefault(_kind(each), []).append(each.micro_batch % shift)
    return all(sorted(residues) == list(range(shift)) for residues in inside.values())


def _kind(instruction: Instruction) -> Instruction:
    """Return an instruction without its micro-batch."""
    return replace(instruction, micro_batch=0)
