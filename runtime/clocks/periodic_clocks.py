"""A block's clocks over any number of micro-batches: two ends, and what repeats between them; plain data."""

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
        last: Clocks of the last micro-batches; the last entry is that of the last one.

    >>> clocks = PeriodicClocks(first=[1410, 1395], steady=1200, last=[1410])
    >>> [clocks.at(n, 5) for n in range(5)]
    [1410, 1395, 1200, 1200, 1410]
    """

    first: Sequence[int]
    steady: int | Sequence[int]
    last: Sequence[int]

    def at(self, micro_batch: int, num_micro_batches: int) -> int:
        """Return the clock of a micro-batch in MHz.

        Args:
            micro_batch: Number of the micro-batch.
            num_micro_batches: Micro-batches of the iteration.
        """
        before, after = micro_batch, num_micro_batches - 1 - micro_batch
        ends = [self.first[before]] if 0 <= before < len(self.first) else []
        ends += [self.last[-1 - after]] if 0 <= after < len(self.last) else []
        if ends:
            return max(ends)
        steady = self._steady
        return steady[micro_batch % len(steady)]

    def unrolled(self, num_micro_batches: int) -> list[int]:
        """Return the clocks of all micro-batches."""
        return [self.at(n, num_micro_batches) for n in range(num_micro_batches)]

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
        block: own.unrolled(num_micro_batches) if isinstance(own, PeriodicClocks) else [*own]
        for block, own in clocks.items()
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
    each = micro_batches_per_round
    return {
        block: _of_block(
            _padded(warmup.get(block, ()), each),
            _padded(steady.get(block, ()), each),
            _padded(cooldown.get(block, ()), each),
            num_micro_batches,
        )
        for block in dict.fromkeys([*warmup, *steady, *cooldown])
    }


def _padded(rounds: RoundClocks, number: int) -> RoundClocks:
    """Return the clocks of a phase with an empty list for each micro-batch of a round that has none."""
    return [*rounds, *[[]] * (number - len(rounds))]


def _of_block(
    warmup: RoundClocks, steady: RoundClocks, cooldown: RoundClocks, num_micro_batches: int
) -> Sequence[int] | PeriodicClocks:
    each, last = len(steady), num_micro_batches - 1
    past = last % each  # of the last round, before its last micro-batch
    by_begin = {turn * each + n: mhz for n, own in enumerate(warmup) for turn, mhz in enumerate(own)}
    by_end = {turn * each + past - n: mhz for n, own in enumerate(cooldown) for turn, mhz in enumerate(own)}
    if not all(steady):
        ends = [[by_begin.get(n, 0), by_end.get(last - n, 0)] for n in range(num_micro_batches)]
        return [max(clocks) or steady[n % each][0] for n, clocks in enumerate(ends)]
    between = [own[0] for own in steady]
    return PeriodicClocks(
        [by_begin.get(n, between[n % each]) for n in range(max(by_begin, default=-1) + 1)],
        between[0] if len({*between}) == 1 else between,
        [by_end.get(n, between[(past - n) % each]) for n in reversed(range(max(by_end, default=-1) + 1))],
    )
