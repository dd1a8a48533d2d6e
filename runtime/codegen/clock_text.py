"""The clocks of a plan as text of a script: an argument of each call, read from a table where it changes.

Every clock stands once, where it is read when the script runs.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from placements import Placement
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks
from runtime.program.instructions import Run
from runtime.program.loops import LoopedProgram

_WIDTH = 110
"""Columns of a script's line, but for names and calls that need more."""


class ClockPlanError(ValueError):
    """The clocks do not fit the programs; the message names the block, the value and the remedy."""


def check_clocks(placement: Placement, num_micro_batches: int, clocks: ScriptClocks) -> None:
    """Ensure that clocks, if there are any, are for every block of every micro-batch.

    Raises:
        ClockPlanError: There is no such block, or one lacks clocks or has not one for each micro-batch.
    """
    for name in clocks:
        if name not in placement.by_name:
            raise ClockPlanError(
                f"clock_mhz: {placement.name} has no block {name!r}; use the names of the placement"
            )
    for block in placement.blocks if clocks else ():
        own = clocks.get(block.name, ())
        if not isinstance(own, PeriodicClocks) and len(own) != num_micro_batches:
            raise ClockPlanError(
                f"clock_mhz: has {len(own) or 'no'} clocks for block {block.name!r}; give one for each of "
                f"the {num_micro_batches} micro-batches"
            )


class ClockText:
    """Clocks of the script of a looped program, of those of all blocks.

    Attributes:
        is_periodic: Whether the table is for any number of micro-batches.
    """

    def __init__(self, clocks: ScriptClocks, looped: LoopedProgram) -> None:
        runs = [each for each in looped.unroll() if isinstance(each, Run)]
        self._clocks = {run.block: clocks[run.block] for run in runs if run.block in clocks}
        self._table = {
            block: own for block, own in self._clocks.items() if not _is_constant(block, own, looped)
        }
        self.is_periodic = any(isinstance(own, PeriodicClocks) for own in self._table.values())

    @property
    def table(self) -> str:
        """The table; empty where no block needs it."""
        if not self._table:
            return ""
        of = "the first micro-batches, those between, the last" if self.is_periodic else "each micro-batch"
        rows = [_row(block, own) for block, own in self._table.items()]
        return "\n".join([f"CLOCKS = {{  # MHz, of {of}", *rows, "}"])

    def argument(self, run: Run, number: str) -> str:
        """Return the argument that gives a run its clock, after a comma; nothing where there are no clocks.

        In a loop the run is that of the first round; the number is the expression for its micro-batch.
        """
        own = self._clocks.get(run.block)
        if own is None:
            return ""
        if run.block in self._table:
            table = "clocks" if self.is_periodic else "CLOCKS"
            return f", clock_mhz={table}[{string_literal(run.block)}][{number}]"
        return f", clock_mhz={own.constant if isinstance(own, PeriodicClocks) else own[run.micro_batch]}"


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
        len({clocks[each.micro_batch + turn * loop.shift] for turn in range(loop.rounds)}) == 1
        for loop in looped.loops
        for each in loop.body
        if isinstance(each, Run) and each.block == block
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
