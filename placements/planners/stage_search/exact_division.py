"""The division of layers into stages with the shortest iteration, with few stages solved.

The slowest stage counts once for every micro-batch, so divisions are compared among those whose stages all
take at most a limit, for ever lower limits. A stage that was not solved yet stands in with a bound; only the
stages of the best division at a time are solved. The module does not know where costs come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from placements.planners.stage_search.division import (
    Division,
    Solved,
    StageCost,
    StageCosts,
    check_counts,
    iteration_ms,
    spans,
    traced,
)
from placements.planners.stage_search.stage_problem import ROUNDING
from placements.planners.stage_search.tables import Floats


def exact_partition(
    costs: StageCosts,
    num_layers: int,
    num_stages: int,
    num_micro_batches: int,
    sync_at_once: bool = False,
    bound_ms: Callable[[int, int], float] | None = None,
) -> Division | None:
    """Return the division of the shortest iteration; None where no division fits.

    Args:
        costs: Of a stage, its first layer and the layer after its last; asked once each at most.
        num_layers: In order, to be divided.
        num_stages: Of at least one layer each; they may differ.
        num_micro_batches: Of an iteration.
        sync_at_once: See `iteration_ms`.
        bound_ms: Of a first layer and the layer after the last: what such a stage's time is at least, for
            any stage. Without it every stage there can be is solved.

    Raises:
        StageError: There are fewer layers than stages.
    """
    check_counts(num_layers, num_stages)
    search = _Search(costs, num_layers, num_stages, bound_ms)
    best: tuple[float, tuple[int, ...]] | None = None
    sync_limit = math.inf
    while True:
        found = _best_below(search, num_micro_batches, sync_at_once, sync_limit, best)
        if found is None:
            break
        best = found if best is None or found[0] < best[0] else best
        if not sync_at_once:
            break
        sync_limit = math.nextafter(max(each.sync_ms for each in search.stages(found[1])), -math.inf)
    if best is None:
        return None
    return Division(best[1], search.stages(best[1]), best[0], len(search.solved))


def _best_below(
    search: _Search,
    num_micro_batches: int,
    sync_at_once: bool,
    sync_limit: float,
    known: tuple[float, tuple[int, ...]] | None,
) -> tuple[float, tuple[int, ...]] | None:
    """Return the best division whose exchanges all take at most a limit; None if none is better than known.

    With exchanges at once, the longest is not in the sum that is least here, but is what is limited.
    """
    others = num_micro_batches - 1
    lowest = search.shortest(math.inf, sync_limit, only_slowest=True)
    if lowest is None:
        return None
    least_slowest = max(each.time_ms for each in search.stages(lowest))
    best: tuple[float, tuple[int, ...]] | None = None
    best_ms = math.inf if known is None else known[0]
    limit = math.inf
    for division in (lowest, None):
        while True:
            found = division or search.shortest(limit, sync_limit, with_sync=not sync_at_once)
            if found is None:
                return best
            stages = search.stages(found)
            whole_ms = iteration_ms(stages, num_micro_batches, sync_at_once)
            if whole_ms < best_ms * (1 - 1e-3 * ROUNDING):
                best, best_ms = (whole_ms, found), whole_ms
            if division:
                break
            slowest = max(each.time_ms for each in stages)
            rest = math.fsum(each.time_ms + (0.0 if sync_at_once else each.sync_ms) for each in stages)
            if others * least_slowest + rest >= best_ms or slowest <= least_slowest:
                return best
            limit = math.nextafter(slowest, -math.inf)
    return best
