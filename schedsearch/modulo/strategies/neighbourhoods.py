"""Large-neighbourhood search for a repetend of a shorter period, where a whole query is too large.

What forbids a shorter period is a cycle of blocks that wait for each other. A neighbourhood begins with a
place of that cycle where a device's order could be another, and grows, cycle by cycle, until none is left
that forbids the period asked for; most neighbourhoods chosen at random would leave one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from schedsearch.modulo.oracle import Oracle
from schedsearch.modulo.result import Objective
from schedsearch.modulo.state import SearchState
from schedsearch.modulo.strategies.strategy import Strategy, Turn
from schedsearch.starts.first_repetends import Start

_WORK_OF_BLOCK = 1e-4
"""Units of work that it takes to choose a neighbourhood, for each block of the repetend."""


@dataclass
class Neighbourhoods(Strategy):
    """Orders parts of the best repetend anew with a solver, with all work that is left in a round.

    Attributes:
        blocks: Blocks of a neighbourhood: of the first, and the most; they grow while nothing is found.
        step: Share of the period by which an answer must be shorter: smallest, first and largest.
        work: Work of one query, in units of about a second.
        max_in_vain: Neighbourhoods in a row that may bring nothing before it ends.
    """

    name: ClassVar[str] = "neighbourhoods"
    turn: ClassVar[Turn] = Turn.LAST
    share_of_few: float = 1.0
    share_of_many: float = 1.0
    share_kept: float = 0.2
    blocks: tuple[float, float] = (12.0, 200.0)
    step: tuple[float, float, float] = (1e-4, 1e-3, 0.5)
    work: float = 1.0
    max_in_vain: int = 200

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield repetends of ever shorter periods, of as many micro-batches."""
        from schedsearch.modulo.strategies.segments import Segments, order_anew  # OR-Tools is slow to load

        if state.best is None or (repetend := state.best.repetend) is None:
            return
        choice, effort = random.Random(state.seed), oracle.effort
        bound = Fraction(state.best.bound[Objective.PERIOD], state.best.micro_batches)
        least = math.ceil(bound * repetend.micro_batches)
        (size, most), (shortest, step, longest), in_vain = self.blocks, self.step, 0
        while repetend.period > least and in_vain < self.max_in_vain and effort.spent < until:
            effort.require_s()
            effort.spend(len(repetend.placement.blocks) * repetend.micro_batches * _WORK_OF_BLOCK)
            in_vain += 1
            period = max(least, repetend.period - max(1, int(repetend.period * step)))
            segments = Segments(repetend)
            if not segments.grow_until_free(period, int(2 * size), choice):
                size, step = min(most, size * 1.005), max(shortest, step / 1.02)
                continue
            segments.grow(int(size), choice)
            found = order_anew(segments, period, effort.budget(self.work, choice.randrange(1 << 30)))
            if found is None:
                size, step = min(most, size * 1.01), max(shortest, step / 1.1)
                continue
            repetend, in_vain, step = found, 0, min(longest, step * 1.5)
            yield Start(repetend, "neighbourhood")
