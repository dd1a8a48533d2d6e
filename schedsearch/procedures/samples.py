"""Samples of repetends of one period, with other spans: how warmup and cooldown pack depends on more."""

from __future__ import annotations

from dataclasses import dataclass, replace

from schedsearch.core.budget import Budget
from schedsearch.core.known import OfSize
from schedsearch.core.objective import Objective
from schedsearch.repetend import Repetend

SAMPLES = "samples"
"""Name of what takes samples."""


@dataclass
class Sampler:
    """Asks for one repetend after another.

    Attributes:
        spans: Longest spans in ticks, taken in turn; None for any.
        patience: Samples in a row that may bring nothing before there are enough.
        number: Samples so far; each has a seed of its own.
        in_vain: Those since the last that brought something, which is for the caller to say.
    """

    spans: list[int | None]
    patience: int
    number: int = 0
    in_vain: int = 0

    @property
    def ended(self) -> bool:
        """Whether there are enough."""
        return self.in_vain >= self.patience

    def sample(self, known: OfSize, budget: Budget) -> list[Repetend]:
        """Return some repetend that keeps the limits reached, and the one of its order's least period.

        Args:
            known: What is known of such repetends.
            budget: A quarter of what is left may be spent.
        """
        span, seed = self.spans[self.number % len(self.spans)], self.number
        self.number, self.in_vain = self.number + 1, self.in_vain + 1
        query = known.query(Objective.PERIOD, known.value(Objective.PERIOD))
        if span is not None:
            query = replace(query, span=span if query.span is None else min(span, query.span))
        _, repetend = budget.ask(query, budget.left / 4, seed)
        found = [] if repetend is None else [repetend, repetend.with_min_period(query.period)]
        return [each for each in found if known.keeps_limits(each)]
