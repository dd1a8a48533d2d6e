"""Samples of repetends of one period: how well warmup and cooldown pack depends on more than the span."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from schedsearch.core.budget import Budget
from schedsearch.core.known import OfSize
from schedsearch.core.objective import Objective
from schedsearch.procedures.queries import Bisection
from schedsearch.repetend import Repetend

_PATIENCE = 12
"""Repetends in a row that may bring no shorter makespan before the search for one ends."""

_MAX_INSTANCES = 600
"""Blocks times micro-batches of the largest repetend that is sampled; with more, a question takes long."""

_MAX_UNROLLED = 100_000
"""Blocks of the longest schedule for which repetends are sampled: each sample is unrolled."""

Quality = Callable[[Repetend], tuple[int, int, int, int]]
"""Period, value of the unrolled schedule, and what else makes one repetend better than another: less."""


@dataclass
class Samples:
    """Samples repetends of the best period; keeps the one that unrolls to the shortest schedule.

    Where two are equally short, the one with more slack is better, since lower clocks can use it.

    Attributes:
        number: Samples so far.
        in_vain: Those since the last that was better.
        span: Ticks of the repetend of which other spans are taken; 0 before there is one.
        ended: Whether there are enough.
    """

    name: ClassVar[str] = "samples"
    number: int = 0
    in_vain: int = 0
    span: int = 0
    ended: bool = False

    def run(
        self,
        known: OfSize,
        unrolled: int,
        quality_of: Quality,
        bound: int,
        bisection: Bisection,
        budget: Budget,
    ) -> Iterator[tuple[OfSize, int | None]]:
        """Yield what is known, after each sample with the least value so far.

        Args:
            known: What is known of such repetends.
            unrolled: Blocks of the unrolled schedule.
            quality_of: What makes one better than another.
            bound: Value that no schedule beats.
            bisection: What was asked of repetends of this period.
            budget: When to stop.
        """
        instances = len(known.placement.blocks) * known.micro_batches
        self.ended = instances > _MAX_INSTANCES or unrolled > _MAX_UNROLLED
        if self.ended or budget.is_over:
            return
        if Objective.SPAN not in known.limit and not self.number:
            for each in bisection.minimise(known, Objective.SPAN, budget):
                known = each.without_limits([Objective.SPAN])
                yield known, None
        repetend = known.repetend
        assert repetend is not None
        period, best = repetend.period, quality_of(repetend)
        span = self.span = self.span or repetend.span
        limits = (None, span, span + period // 2, span + period, span + 2 * period)
        while best[1] > bound and self.in_vain < _PATIENCE and not budget.is_over:
            number, limit = self.number, limits[self.number % len(limits)]
            self.number, self.in_vain = number + 1, self.in_vain + 1
            for candidate in sample(known, limit, number, budget):
                if (quality := quality_of(candidate)) < best:
                    self.in_vain = 0 if quality[:2] < best[:2] else self.in_vain
                    known = replace(known, repetend=candidate).with_tightened_limits()
                    best = quality
            yield known, best[1]
        self.ended = best[1] <= bound or self.in_vain >= _PATIENCE


def sample(known: OfSize, span: int | None, seed: int, budget: Budget) -> list[Repetend]:
    """Return some repetend that keeps the limits reached, and the one of its order's least period.

    Args:
        known: What is known of such repetends.
        span: Its longest span in ticks; None for any that the limits allow.
        seed: Other seeds make other samples.
        budget: A quarter of what is left may be spent.
    """
    query = known.query(Objective.PERIOD, known.value(Objective.PERIOD))
    if span is not None:
        query = replace(query, span=span if query.span is None else min(span, query.span))
    _, repetend = budget.ask(query, budget.left / 4, seed)
    found = [] if repetend is None else [repetend, repetend.with_min_period(query.period)]
    return [each for each in found if known.keeps_limits(each)]
