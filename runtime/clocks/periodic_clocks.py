"""A block's clocks for any number of micro-batches: first, repeated and last clocks; plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RoundClocks = Sequence[Sequence[int]]
"""For each micro-batch of a round its clocks in MHz."""


@dataclass(frozen=True)
class PeriodicClocks:
    """The clock in MHz of a block for each of any number of micro-batches, as scripts have it in a table.

    Where there are so few micro-batches that the ends overlap, the higher clock counts.

    Attributes:
        first: Clocks of the first micro-batches.
        steady: Clock of each micro-batch between; of several, for a round of as many, each has its turn.
        last: Clocks of the last micro-batches, ending with the last one.

    >>> clocks = PeriodicClocks(first=[1410, 1395], steady=1200, last=[1410])
    >>> clocks.unrolled(5)
    [1410, 1395, 1200, 1200, 1410]
    """

    first: Sequence[int]
    steady: int | Sequence[int]
    last: Sequence[int]

    def unrolled(self, num_micro_batches: int) -> list[int]:
        """Return the clocks of all micro-batches in MHz."""
        steady, at_end = self._steady, num_micro_batches - len(self.last)
        clocks = []
        for n in range(num_micro_batches):
            ends = [*self.first[n : n + 1], *(self.last[n - at_end :][:1] if n >= at_end else ())]
            clocks.append(max(ends) if ends else steady[n % len(steady)])
        return clocks

    @property
    def constant(self) -> int | None:
        """The clock of all micro-batches, if they have but one."""
        clocks = {*self.first, *self._steady, *self.last}
        return clocks.pop() if len(clocks) == 1 else None

    @property
    def _steady(self) -> Sequence[int]:
        return self.steady if isinstance(self.steady, Sequence) else [self.steady]


ScriptClocks = Mapping[str, Sequence[int] | PeriodicClocks]
"""For each block its clock for each micro-batch in MHz; or for any number of them."""


def unrolled_clocks(clocks: ScriptClocks, num_micro_batches: int) -> dict[str, list[int]]:
    """Return for each block a clock for each of the micro-batches."""
    return {
        block: of_block.unrolled(num_micro_batches) if isinstance(of_block, PeriodicClocks) else [*of_block]
        for block, of_block in clocks.items()
    }


def clocks_of_rounds(
    warmup: Mapping[str, RoundClocks],
    steady: Mapping[str, RoundClocks],
    cooldown: Mapping[str, RoundClocks],
    micro_batches_per_round: int,
    num_micro_batches: int,
) -> ScriptClocks:
    """Return the clocks of a ``periodic.json``; see there.

    Args:
        warmup: Clocks by block: of each micro-batch of a round, from its first one on.
        steady: Clocks by block: one of each; none where every micro-batch is warmup or cooldown.
        cooldown: Clocks by block: of each micro-batch of a round, from its last one backwards.
        micro_batches_per_round: Micro-batches of a round of the loop.
        num_micro_batches: Micro-batches of the iteration; any number of whole rounds more or less gives the
            same. A block without a steady clock gets clocks for exactly this number.
    """
    size, last = micro_batches_per_round, num_micro_batches - 1
    past = last % size  # of the last round, before its last micro-batch
    clocks: dict[str, Sequence[int] | PeriodicClocks] = {}
    for block in dict.fromkeys([*warmup, *steady, *cooldown]):
        begins, ends = warmup.get(block, ()), cooldown.get(block, ())
        by_begin = {turn * size + n: mhz for n, row in enumerate(begins) for turn, mhz in enumerate(row)}
        by_end = {turn * size + past - n: mhz for n, row in enumerate(ends) for turn, mhz in enumerate(row)}
        between = [*steady.get(block, ()), *[()] * size][:size]
        if all(between):
            middle = [row[0] for row in between]
            clocks[block] = PeriodicClocks(
                [by_begin.get(n, middle[n % size]) for n in range(max(by_begin, default=-1) + 1)],
                middle[0] if len({*middle}) == 1 else middle,
                [
                    by_end.get(n, middle[(past - n) % size])
                    for n in reversed(range(max(by_end, default=-1) + 1))
                ],
            )
        else:
            both_ends = [max(by_begin.get(n, 0), by_end.get(last - n, 0)) for n in range(num_micro_batches)]
            clocks[block] = [mhz or between[n % size][0] for n, mhz in enumerate(both_ends)]
    return clocks
