"""A looped program as the text of a script's `iteration`: warmup, loops, cooldown, an action a line.

The clocks of a plan are an argument of each call, read from a table where it changes: every clock stands
once, where it is read when the script runs.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from placements import Placement
from placements.block import COMPUTE
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks
from runtime.program.calls import VERBS
from runtime.program.instructions import Instruction, Receive, Run
from runtime.program.loops import Loop, LoopedProgram, is_late
from runtime.program.tensor_flow import KEEP

_WIDTH = 110
"""Columns of a script's line, but for names and calls that need more."""

_HEAD = '''def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device, in this order.

    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.
    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.
    """'''

_UNROLLED = "    clocks = unrolled_clocks(CLOCKS, num_micro_batches)  # MHz, of each micro-batch"


class ClockPlanError(ValueError):
    """The clocks do not fit the programs; the message names the block, the value and the remedy."""


def check_clocks(placement: Placement, num_micro_batches: int, clocks: ScriptClocks) -> None:
    """Ensure that clocks, if there are any, are for every block of every micro-batch."""
    for name in clocks:
        if name not in placement.by_name:
            raise ClockPlanError(
                f"clock_mhz: {placement.name} has no block {name!r}; use the names of the placement"
            )
    for block in placement.blocks if clocks else ():
        mhz = clocks.get(block.name, ())
        if not isinstance(mhz, PeriodicClocks) and len(mhz) != num_micro_batches:
            raise ClockPlanError(
                f"clock_mhz: has {len(mhz) or 'no'} clocks for block {block.name!r}; give one for each of "
                f"the {num_micro_batches} micro-batches"
            )


class IterationText:
    """The `iteration` of a device's looped program, with the clocks of its blocks, if there are any.

    Where it is parametric it counts from the number of micro-batches that the function is given, where that
    makes a difference; otherwise all numbers are constants.

    Attributes:
        is_periodic: Whether the table of clocks is for any number of micro-batches.
    """

    def __init__(
        self,
        placement: Placement,
        num_micro_batches: int,
        looped: LoopedProgram,
        clocks: ScriptClocks,
        is_parametric: bool,
    ) -> None:
        self._placement, self._num_micro_batches, self._looped = placement, num_micro_batches, looped
        self._is_parametric = is_parametric
        program = looped.unroll()
        self._ahead = _posted_ahead(program)
        self._blocks = dict.fromkeys(run.block for run in program if isinstance(run, Run))
        self._clocks = {block: clocks[block] for block in self._blocks if block in clocks}
        self._table = {
            block: mhz for block, mhz in self._clocks.items() if not _is_constant(block, mhz, looped)
        }
        self.is_periodic = any(isinstance(mhz, PeriodicClocks) for mhz in self._table.values())

    @property
    def table(self) -> str:
        """The table; empty where no block needs it."""
        if not self._table:
            return ""
        of = "the first micro-batches, those between, the last" if self.is_periodic else "each micro-batch"
        rows = [_row(block, mhz) for block, mhz in self._table.items()]
        return "\n".join([f"CLOCKS = {{  # MHz, of {of}", *rows, "}"])

    def text(self) -> str:
        """Return the text of the function."""
        sections = self._looped.sections
        lines = [_HEAD, *([_UNROLLED] if self.is_periodic else [])]
        for place, section in enumerate(sections):
            if isinstance(section, Loop):
                lines += self._loop(section)
                continue
            title = {0: "Warmup.", len(sections) - 1: "Cooldown."}.get(place, "Between the loops.")
            lines.append(f"    # {title if self._looped.loops else 'Nothing repeats.'}")
            for instruction in section:
                number = str(instruction.micro_batch)
                if self._is_parametric and is_late(self._looped, instruction):
                    number = _from_end(self._num_micro_batches - instruction.micro_batch)
                lines.append(f"    {self._action(instruction, number)}")
        return "\n".join(lines)

    def _loop(self, loop: Loop) -> list[str]:
        """Return the loop over n, the lowest micro-batch of each round."""
        first, shift = loop.first_micro_batch, loop.shift
        end = first + loop.rounds * shift
        last = _from_end(self._num_micro_batches - end) if self._is_parametric else str(end)
        bounds = f"{first}, {last}, {shift}" if shift > 1 else f"{first}, {last}" if first else last
        size = "one micro-batch" if shift == 1 else f"{shift} micro-batches"
        runs_all = self._blocks.keys() == {run.block for run in loop.body if isinstance(run, Run)}
        what = "Repetend" if runs_all else "Loop"
        lines = [f"    # {what}: {size} per round.", f"    for n in range({bounds}):"]
        for instruction in loop.body:
            offset = instruction.micro_batch - first
            lines.append(f"        {self._action(instruction, f'n + {offset}' if offset else 'n')}")
        return lines

    def _clock(self, run: Run, number: str) -> str:
        """Return the argument that gives a run its clock, after a comma; nothing where there are no clocks.

        In a loop the run is that of the first round; the number is the expression for its micro-batch.
        """
        mhz = self._clocks.get(run.block)
        if mhz is None:
            return ""
        if run.block in self._table:
            table = "clocks" if self.is_periodic else "CLOCKS"
            return f", clock_mhz={table}[{string_literal(run.block)}][{number}]"
        return f", clock_mhz={mhz.constant if isinstance(mhz, PeriodicClocks) else mhz[run.micro_batch]}"

    def _action(self, instruction: Instruction, number: str) -> str:
        """Return an instruction, of a loop's first round, as a call whose micro-batch is an expression."""
        if isinstance(instruction, Run):
            block = self._placement.by_name[instruction.block]
            clock = self._clock(instruction, number)
            mode = "" if instruction.mode == KEEP else f", mode={string_literal(instruction.mode)}"
            stream = "" if instruction.stream == COMPUTE else f", stream={string_literal(instruction.stream)}"
            together = ""
            if len(block.devices) > 1:
                is_on_all = len(block.devices) == self._placement.num_devices
                on = "all devices" if is_on_all else f"devices {', '.join(map(str, block.devices))}"
                together = f"  # on {on}"
            arguments = f"{string_literal(instruction.block)}, {number}{clock}{mode}{stream}"
            return f"device.{VERBS[block.kind]}({arguments}){together}"
        ends = f"{string_literal(instruction.producer)}, {string_literal(instruction.consumer)}, {number}"
        part = "" if instruction.part is None else f", part={instruction.part}"
        if isinstance(instruction, Receive):
            verb = "prefetch" if instruction in self._ahead else "receive"
            return f"device.{verb}({ends}, source={instruction.source}{part})"
        return f"device.send({ends}, target={instruction.target}{part})"


def string_literal(name: str) -> str:
    """Return a string literal on one line, in double quotes where that needs no escapes."""
    name = "".join(name)  # a plain string also where an enumeration's member is given
    if name.isprintable() and '"' not in name:
        return json.dumps(name, ensure_ascii=False)
    return repr(name) if name.isprintable() else ascii(name)


def _is_constant(block: str, clocks: Sequence[int] | PeriodicClocks, looped: LoopedProgram) -> bool:
    """Tell whether each call of a block in a program has one clock, however often it runs."""
    if isinstance(clocks, PeriodicClocks):
        return clocks.constant is not None
    return all(
        len({clocks[run.micro_batch + turn * loop.shift] for turn in range(loop.rounds)}) == 1
        for loop in looped.loops
        for run in loop.body
        if isinstance(run, Run) and run.block == block
    )


def _row(block: str, clocks: Sequence[int] | PeriodicClocks) -> str:
    """Return a block's row of the table; one that is too long for a line has one for each end."""
    start = f"    {string_literal(block)}: "
    if not isinstance(clocks, PeriodicClocks):
        return _list(clocks, start)
    steady = str(clocks.steady if isinstance(clocks.steady, int) else [*clocks.steady])
    row = f"{start}PeriodicClocks(first={[*clocks.first]}, steady={steady}, last={[*clocks.last]}),"
    if len(row) <= _WIDTH:
        return row
    first, last = _list(clocks.first, "        first="), _list(clocks.last, "        last=")
    return "\n".join([f"{start}PeriodicClocks(", first, f"        steady={steady},", last, "    ),"])


def _list(numbers: Sequence[int], start: str) -> str:
    """Return a line with a list after a text; one that is too long for it has lines of its own inside.

    >>> print(_list([12345] * 15, "    last="))
        last=[
            12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345,
            12345
        ],
    """
    items = ", ".join(str(int(number)) for number in numbers)
    if len(line := f"{start}[{items}],") <= _WIDTH:
        return line
    indent = " " * (len(start) - len(start.lstrip()))
    inside = textwrap.indent(textwrap.fill(items, _WIDTH - len(indent) - 4), f"{indent}    ")
    return f"{start}[\n{inside}\n{indent}],"


def _posted_ahead(program: Sequence[Instruction]) -> set[Instruction]:
    """Return the receives after which other blocks run before their consumer."""
    ahead: set[Instruction] = set()
    following: tuple[str, int] | None = None
    for step in reversed(program):
        if isinstance(step, Run):
            following = step.block, step.micro_batch
        elif isinstance(step, Receive) and following != (step.consumer, step.micro_batch):
            ahead.add(step)
    return ahead


def _from_end(number: int) -> str:
    return f"num_micro_batches - {number}" if number else "num_micro_batches"
