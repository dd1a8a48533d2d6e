"""A looped program as the text of a script's `iteration`: warmup, loops, cooldown, an action a line."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from placements import Placement
from runtime.clocks.periodic_clocks import PeriodicClocks
from runtime.codegen.job import Clocks, clock_of
from runtime.program.any_number import is_late
from runtime.program.calls import VERBS
from runtime.program.instructions import Instruction, Receive, Run
from runtime.program.loops import Loop, LoopedProgram, Straight

_TOTAL = "num_micro_batches"

_DOCSTRING = (
    '    """Run one iteration of this device, in this order.',
    "",
    "    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.",
    "    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.",
    '    """',
)

_MOST_NAMED = 3
"""Clocks that a line names; of more it gives the lowest and the highest."""


@dataclass(frozen=True)
class IterationText:
    """Writes the `iteration` of programs.

    Attributes:
        placement: Says of which kind a block is.
        num_micro_batches: Of the programs.
        clocks: Planned ones; each run names its own in a comment.
        is_parametric: Whether to count from the number of micro-batches that the function is given, where
            that makes a difference; otherwise all numbers are constants.
    """

    placement: Placement
    num_micro_batches: int
    clocks: Clocks
    is_parametric: bool

    def of(self, looped: LoopedProgram) -> str:
        """Return the text of the function for a device's program."""
        lines = [
            f"def iteration(device: Device, {_TOTAL}: int) -> None:",
            *_DOCSTRING,
        ]
        ahead = _posted_ahead(looped.unroll())
        for place, section in enumerate(looped.sections):
            if isinstance(section, Loop):
                lines += self._loop(section, looped, ahead)
            else:
                lines.append(f"    # {_title(looped, place)}")
                lines += self._straight(section, looped, ahead)
        return "\n".join(lines)

    def _straight(
        self, section: Straight, looped: LoopedProgram, ahead: Collection[Instruction]
    ) -> list[str]:
        lines = []
        for each in section:
            number = str(each.micro_batch)
            if self.is_parametric and is_late(looped, each):
                number = _from_end(self.num_micro_batches - each.micro_batch)
            lines.append(f"    {self._action(each, number, each in ahead)}")
        return lines

    def _loop(self, loop: Loop, looped: LoopedProgram, ahead: Collection[Instruction]) -> list[str]:
        """Return the loop over n, the lowest micro-batch of each round."""
        first, shift = loop.first_micro_batch, loop.shift
        after_last = first + loop.rounds * shift
        last = _from_end(self.num_micro_batches - after_last) if self.is_parametric else str(after_last)
        bounds = f"{first}, {last}, {shift}" if shift > 1 else f"{first}, {last}" if first else last
        size = "one micro-batch" if shift == 1 else f"{shift} micro-batches"
        what = "Repetend" if _has_all_blocks(loop, looped) else "Loop"
        lines = [f"    # {what}: {size} per round.", f"    for n in range({bounds}):"]
        for each in loop.body:
            offset = each.micro_batch - first
            number = f"n + {offset}" if offset else "n"
            lines.append(f"        {self._action(each, number, each in ahead, loop)}")
        return lines

    def _action(self, each: Instruction, number: str, is_ahead: bool, loop: Loop | None = None) -> str:
        """Return an instruction as a call of a device's method.

        Args:
            each: What to call; in a loop, that of its first round.
            number: The expression to write for its micro-batch.
            is_ahead: Whether it is a receive posted ahead of other blocks than the one that takes it.
            loop: Where it is in one.
        """
        if isinstance(each, Run):
            verb = VERBS[self.placement.by_name[each.block].kind]
            return f"device.{verb}({_text(each.block)}, {number}){self._comment(each, loop)}"
        ends = f"{_text(each.producer)}, {_text(each.consumer)}, {number}"
        if isinstance(each, Receive):
            return f"device.{'prefetch' if is_ahead else 'receive'}({ends}, source={each.source})"
        return f"device.send({ends}, target={each.target})"

    def _comment(self, run: Run, loop: Loop | None) -> str:
        """Return the planned clock of a run, and who runs it together; nothing where there is neither."""
        devices = self.placement.by_name[run.block].devices
        all_devices = len(devices) == self.placement.num_devices
        team = "on all devices" if all_devices else f"on devices {_list(devices)}"
        said = [self._clock_text(run, loop), team if len(devices) > 1 else ""]
        return f"  # {'; '.join(filter(None, said))}" if any(said) else ""

    def _clock_text(self, run: Run, loop: Loop | None) -> str:
        """Return the planned clock of a run, or those of all rounds; nothing where none is planned."""
        last = run.micro_batch + (loop.rounds * loop.shift if loop else 1)
        rounds = range(run.micro_batch, last, loop.shift if loop else 1)
        planned = (clock_of(self.clocks, run.block, n, self.num_micro_batches) for n in rounds)
        found = list(dict.fromkeys(int(clock) for clock in planned if clock is not None))
        if not found:
            return ""
        if loop and (steady := self._steady(run)):
            others = [clock for clock in found if clock != steady]
            return f"{steady} MHz" + (f", at the ends {_clocks_text(others)}" if others else "")
        return f"{_clocks_text(found)} MHz"

    def _steady(self, run: Run) -> int | None:
        """Return the clock that repeats, if the clocks do."""
        if not isinstance(self.clocks, PeriodicClocks) or run.block not in self.clocks.steady:
            return None
        of_round = self.clocks.steady[run.block][run.micro_batch % self.clocks.micro_batches_per_round]
        return int(of_round[0]) if of_round else None


def _posted_ahead(program: Sequence[Instruction]) -> set[Instruction]:
    """Return the receives after which another block runs before the one that takes them."""
    ahead: set[Instruction] = set()
    following: Run | None = None
    for each in reversed(program):
        if isinstance(each, Run):
            following = each
        elif isinstance(each, Receive) and following != Run(each.consumer, each.micro_batch):
            ahead.add(each)
    return ahead


def _title(looped: LoopedProgram, place: int) -> str:
    """Return what to call a section outside of the loops."""
    if not looped.loops:
        return "Nothing repeats."
    return {0: "Warmup.", len(looped.sections) - 1: "Cooldown."}.get(place, "Between the loops.")


def _has_all_blocks(loop: Loop, looped: LoopedProgram) -> bool:
    """Tell whether a round runs all blocks of the device, as a steady state does."""
    blocks = {each.block for each in looped.unroll() if isinstance(each, Run)}
    return blocks == {each.block for each in loop.body if isinstance(each, Run)}


def _from_end(number: int) -> str:
    return f"{_TOTAL} - {number}" if number else _TOTAL


def _clocks_text(clocks: Sequence[int]) -> str:
    if len(clocks) > _MOST_NAMED:
        return f"{min(clocks)} to {max(clocks)}"
    return _list(clocks)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _text(name: str) -> str:
    """Return a string literal on one line, in double quotes where that needs no escapes."""
    name = "".join(name)  # a plain string also where an enumeration's member is given
    if name.isprintable() and '"' not in name:
        return json.dumps(name, ensure_ascii=False)
    return repr(name) if name.isprintable() else ascii(name)
