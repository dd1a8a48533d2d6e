"""The clocks of a plan as text of a script: an argument of each call, read from a table where it changes.

Every clock stands once, where it is read when the script runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placements import Placement
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks
from runtime.codegen.literals import WIDTH, list_literal, string_literal
from runtime.program.instructions import Run
from runtime.program.loops import LoopedProgram


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


@dataclass(frozen=True)
class ClockText:
    """Writes the clocks of a device's script.

    Attributes:
        clocks: Clocks of the device's blocks in the order in which they first run, if there are any.
        constant: Blocks among these whose calls have their clocks written in them; the others have a row of
            the table.
    """

    clocks: ScriptClocks
    constant: frozenset[str]

    @classmethod
    def of(cls, clocks: ScriptClocks, looped: LoopedProgram) -> ClockText:
        """Return that of a device which runs a program."""
        blocks = dict.fromkeys(each.block for each in looped.unroll() if isinstance(each, Run))
        own = {block: _plain(clocks[block]) for block in blocks if block in clocks}
        return cls(own, frozenset(block for block in own if _is_constant(block, own[block], looped)))

    @property
    def is_periodic(self) -> bool:
        """Whether the table is for any number of micro-batches."""
        return any(isinstance(own, PeriodicClocks) for own in self._table.values())

    @property
    def table(self) -> str:
        """The table; empty where no block needs it."""
        if not self._table:
            return ""
        of = "the first micro-batches, those between, the last" if self.is_periodic else "each micro-batch"
        rows = [_row(block, own) for block, own in self._table.items()]
        return "\n".join([f"CLOCKS = {{  # MHz, of {of}", *rows, "}"])

    def unrolled(self, num_micro_batches: str) -> list[str]:
        """Return the line that makes a table for any number of micro-batches one for each of them."""
        line = f"clocks = unrolled_clocks(CLOCKS, {num_micro_batches})  # MHz, of each micro-batch"
        return [line] * self.is_periodic

    def argument(self, run: Run, number: str) -> str:
        """Return the argument that gives a run its clock, after a comma; nothing where there are no clocks.

        Args:
            run: In a loop, that of the first round.
            number: The expression for its micro-batch.
        """
        own = self.clocks.get(run.block)
        if own is None:
            return ""
        if run.block not in self.constant:
            table = "clocks" if self.is_periodic else "CLOCKS"
            return f", clock_mhz={table}[{string_literal(run.block)}][{number}]"
        return f", clock_mhz={own.constant if isinstance(own, PeriodicClocks) else own[run.micro_batch]}"

    @property
    def _table(self) -> ScriptClocks:
        return {block: own for block, own in self.clocks.items() if block not in self.constant}


def _plain(clocks: Sequence[int] | PeriodicClocks) -> Sequence[int] | PeriodicClocks:
    """Return clocks that have a literal, where they may be numbers of an array."""
    return clocks if isinstance(clocks, PeriodicClocks) else [int(clock) for clock in clocks]


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
        return list_literal(clocks, start, ",")
    steady = str(clocks.steady if isinstance(clocks.steady, int) else [*clocks.steady])
    row = f"{start}PeriodicClocks(first={[*clocks.first]}, steady={steady}, last={[*clocks.last]}),"
    if len(row) <= WIDTH:
        return row
    ends = {"first": clocks.first, "last": clocks.last}
    first, last = (list_literal(own, f"        {name}=", ",") for name, own in ends.items())
    return "\n".join([f"{start}PeriodicClocks(", first, f"        steady={steady},", last, "    ),"])
