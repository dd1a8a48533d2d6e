"""A looped program as the text of a script's `iteration`: warmup, loops, cooldown, an action a line."""

from __future__ import annotations

from collections.abc import Sequence

from placements import Placement
from placements.block import COMPUTE
from runtime.codegen.clock_text import ClockText, string_literal
from runtime.program.any_number import is_late
from runtime.program.calls import VERBS
from runtime.program.instructions import Instruction, Receive, Run
from runtime.program.loops import Loop, LoopedProgram
from runtime.program.tensor_flow import KEEP

_HEAD = '''def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device, in this order.

    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.
    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.
    """'''

_UNROLLED = "    clocks = unrolled_clocks(CLOCKS, num_micro_batches)  # MHz, of each micro-batch"


class IterationText:
    """The `iteration` of a device's looped program.

    Where it is parametric it counts from the number of micro-batches that the function is given, where that
    makes a difference; otherwise all numbers are constants.
    """

    def __init__(
        self,
        placement: Placement,
        num_micro_batches: int,
        looped: LoopedProgram,
        clocks: ClockText,
        is_parametric: bool,
    ) -> None:
        self._placement, self._num_micro_batches, self._looped = placement, num_micro_batches, looped
        self._clocks, self._is_parametric = clocks, is_parametric
        program = looped.unroll()
        self._ahead = _posted_ahead(program)
        self._blocks = {each.block for each in program if isinstance(each, Run)}

    def text(self) -> str:
        """Return the text of the function."""
        sections = self._looped.sections
        lines = [_HEAD, *([_UNROLLED] if self._clocks.is_periodic else [])]
        for place, section in enumerate(sections):
            if isinstance(section, Loop):
                lines += self._loop(section)
                continue
            title = {0: "Warmup.", len(sections) - 1: "Cooldown."}.get(place, "Between the loops.")
            lines.append(f"    # {title if self._looped.loops else 'Nothing repeats.'}")
            for each in section:
                number = str(each.micro_batch)
                if self._is_parametric and is_late(self._looped, each):
                    number = _from_end(self._num_micro_batches - each.micro_batch)
                lines.append(f"    {self._action(each, number)}")
        return "\n".join(lines)

    def _loop(self, loop: Loop) -> list[str]:
        """Return the loop over n, the lowest micro-batch of each round."""
        first, shift = loop.first_micro_batch, loop.shift
        end = first + loop.rounds * shift
        last = _from_end(self._num_micro_batches - end) if self._is_parametric else str(end)
        bounds = f"{first}, {last}, {shift}" if shift > 1 else f"{first}, {last}" if first else last
        size = "one micro-batch" if shift == 1 else f"{shift} micro-batches"
        runs_all = self._blocks == {each.block for each in loop.body if isinstance(each, Run)}
        what = "Repetend" if runs_all else "Loop"
        lines = [f"    # {what}: {size} per round.", f"    for n in range({bounds}):"]
        for each in loop.body:
            offset = each.micro_batch - first
            lines.append(f"        {self._action(each, f'n + {offset}' if offset else 'n')}")
        return lines

    def _action(self, each: Instruction, number: str) -> str:
        """Return an instruction, of a loop's first round, as a call whose micro-batch is an expression."""
        if isinstance(each, Run):
            block = self._placement.by_name[each.block]
            clock = self._clocks.argument(each, number)
            mode = "" if each.mode == KEEP else f", mode={string_literal(each.mode)}"
            stream = "" if each.stream == COMPUTE else f", stream={string_literal(each.stream)}"
            keep = ", keep_weights=True" if each.keep_weights else ""
            together = ""
            if len(block.devices) > 1:
                is_on_all = len(block.devices) == self._placement.num_devices
                on = "all devices" if is_on_all else f"devices {', '.join(map(str, block.devices))}"
                together = f"  # on {on}"
            arguments = f"{string_literal(each.block)}, {number}{clock}{mode}{stream}{keep}"
            return f"device.{VERBS[block.kind]}({arguments}){together}"
        ends = f"{string_literal(each.producer)}, {string_literal(each.consumer)}, {number}"
        part = "" if each.part is None else f", part={each.part}"
        if isinstance(each, Receive):
            verb = "prefetch" if each in self._ahead else "receive"
            return f"device.{verb}({ends}, source={each.source}{part})"
        return f"device.send({ends}, target={each.target}{part})"


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


def _from_end(number: int) -> str:
    return f"num_micro_batches - {number}" if number else "num_micro_batches"
