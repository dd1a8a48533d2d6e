"""The certificate of an answer, which is checked without the search; see `schedsearch.proof.check`."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from placements import Placement
from schedsearch.core.answer import Answer
from schedsearch.proof.check.certificate import Certificate, Refutation, RepetendLimits
from schedsearch.proof.check.states import MinCycleRatio
from schedsearch.proof.load_and_path import period_bounds


def certificate_of(placement: Placement, result: Answer) -> Certificate:
    """Return the certificate of an answer that has a repetend.

    It claims the best bound that the search proved for all sizes asked for, and names only the refuted
    periods that this bound needs.
    """
    assert result.repetend is not None, "there is nothing to certify"
    repetend = replace(result.repetend, placement=placement.per_micro_batch)  # it may know of less memory
    limits = RepetendLimits(**{objective.value: limit for objective, limit in result.limits.items()})
    reasons, min_period = period_bounds(placement), result.min_period
    if min_period is not None and min_period.ticks > reasons[-1].value(placement):
        reasons.append(MinCycleRatio(min_period.ticks, min_period.devices, min_period.cut_out))
    bare = Certificate(placement, result.sizes, repetend, Fraction(0), tuple(reasons), limits)
    proved = [Fraction(attempt.bound, attempt.micro_batches) for attempt in result.tried]
    all_tried = tuple(attempt.micro_batches for attempt in result.tried) == result.sizes
    bound = max([bare.universal_bound, *([min(proved)] if all_tried else [])])
    refutations: list[Refutation] = []
    for size in result.sizes:
        first, end = bare.min_period(size), math.ceil(bound * size)
        periods = range(max(first, end - 1) if limits.keep_monotone else first, end)
        refutations += [Refutation(size, period, result.solver) for period in periods]
    return replace(bare, period_bound=bound, reasons=(*reasons, *refutations))
