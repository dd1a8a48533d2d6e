"""What is left of a reduction where moves take time and instances are taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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
    """Yield what each strategy saves with jobs of one length, under each restart time and rate."""
    calm = replace(conditions, restart_s=0.0, preemptions_per_day=0.0, checkpoint_s=0.0)
    studies = [
        study_of(replace(conditions, restart_s=restart_s, preemptions_per_day=rate))
        for restart_s in restarts_s
        for rate in preemptions_per_day
    ]
    costs = study_of(calm).reductions([days]) if studies else ()
    base = {each.model: each.mean_dollars for each in costs if each.strategy == BASELINE.name}
    for under, study in ((each.conditions, each) for each in studies):
        for found in study.reductions([days]):
            ratio = base[found.model] / found.mean_dollars
            yield Disturbed(under.restart_s, under.preemptions_per_day, found, ratio)
