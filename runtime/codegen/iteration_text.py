"""A looped program as the text of a script's `iteration`: warmup, loops, cooldown, an action a line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from placements import Placement
from placements.block import COMPUTE
from runtime.codegen.clock_text import ClockText
from runtime.codegen.literals import string_literal
from runtime.program.any_number import is_late
from runtime.program.calls import VERBS
from runtime.program.instructions import Instruction, Receive, Run
from runtime.program.loops import Loop, LoopedProgram, Straight
from runtime.program.tensor_flow import KEEP

_TOTAL = "num_micro_batches"

_DOCSTRING = (
    '    """Run one iteration of this device, in this order.',
    "",
    "    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.",
    "    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.",
    '    """',
)


@dataclass(frozen=True)
class IterationText:
    """Writes the `iteration` of a device.

    Attributes:
        placement: Says of which kind a block is.
        num_micro_batches: Micro-batches of the program.
        clocks: Each run has its own as an argument.
        is_parametric: Whether to count from the number of micro-batches that the function is given, where
            that makes a difference; otherwise all numbers are constants.
    """

    placement: Placement
    num_micro_batches: int
    clocks: ClockText
    is_parametric: bool

    def of(self, looped: LoopedProgram) -> str:
        """Return the text of the function for a device's program."""
        lines = [
            f"def iteration(device: Device, {_TOTAL}: int) -> None:",
            *_DOCSTRING,
            *(f"    {line}" for line in self.clocks.unrolled(_TOTAL)),
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
            lines.append(f"        {self._action(each, number, each in ahead)}")
        return lines

    def _action(self, each: Instruction, number: str, is_ahead: bool) -> str:
        """Return an instruction as a call of a device's method.

        Args:
            each: What to call; in a loop, that of its first round.
            number: The expression to write for its micro-batch.
            is_ahead: Whether it is a receive posted ahead of other blocks than the one that takes it.
        """
        if isinstance(each, Run):
            verb = VERBS[self.placement.by_name[each.block].kind]
            clock = self.clocks.argument(each, number)
            mode = "" if each.mode == KEEP else f", mode={string_literal(each.mode)}"
            stream = "" if each.stream == COMPUTE else f", stream={string_literal(each.stream)}"
            keep = ", keep_weights=True" if each.keep_weights else ""
            arguments = f"{string_literal(each.block)}, {number}{clock}{mode}{stream}{keep}"
            return f"device.{verb}({arguments}){self._comment(each)}"
        ends = f"{string_literal(each.producer)}, {string_literal(each.consumer)}, {number}"
        part = "" if each.part is None else f", part={each.part}"
        if isinstance(each, Receive):
            return f"device.{'prefetch' if is_ahead else 'receive'}({ends}, source={each.source}{part})"
        return f"device.send({ends}, target={each.target}{part})"

    def _comment(self, run: Run) -> str:
        """Return who runs a block together; nothing where it is one device."""
        devices = self.placement.by_name[run.block].devices
        if len(devices) == 1:
            return ""
        all_devices = len(devices) == self.placement.num_devices
        return "  # on " + ("all devices" if all_devices else f"devices {', '.join(map(str, devices))}")


def _posted_ahead(program: Sequence[Instruction]) -> set[Instruction]:
    """Return the receives after which another block runs before the one that takes them."""
    ahead: set[Instruction] = set()
    following: tuple[str, int] | None = None
    for each in reversed(program):
        if isinstance(each, Run):
            following = each.block, each.micro_batch
        elif isinstance(each, Receive) and following != (each.consumer, each.micro_batch):
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
