"""Savings left where moves take time and instances are taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from schedsearch.cluster.prices.days import PriceConditions
from schedsearch.cluster.prices.study import BASELINE, Reduction, Study


class Disturbed(NamedTuple):
    """A reduction under one restart time and one rate of preemptions.

    Attributes:
        restart_s: After each move and preemption.
        preemptions_per_day: Of every instance, the baseline's too.
        found: Against the baseline under the same conditions.
        of_undisturbed: Against the baseline without preemptions, checkpoints and restarts.
    """

    restart_s: float
    preemptions_per_day: float
    found: Reduction
    of_undisturbed: float


def disturbed(
    study_of: Callable[[PriceConditions], Study],
    conditions: PriceConditions,
    restarts_s: Sequence[float],
    preemptions_per_day: Sequence[float],
    days: float,
) -> Iterator[Disturbed]:
    """Yield the saving of each strategy with jobs of one length, under each restart time and rate."""
    base: dict[str, float] = {}
    for restart_s, rate in product(restarts_s, preemptions_per_day):
        if not base:
            calm = study_of(replace(conditions, restart_s=0.0, preemptions_per_day=0.0, checkpoint_s=0.0))
            costs = [each for each in calm.reductions([days]) if each.strategy == BASELINE.name]
            base = {each.model: each.mean_dollars for each in costs}
        study = study_of(replace(conditions, restart_s=restart_s, preemptions_per_day=rate))
        for found in study.reductions([days]):
            yield Disturbed(restart_s, rate, found, base[found.model] / found.mean_dollars)
