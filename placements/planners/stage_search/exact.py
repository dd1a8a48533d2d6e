"""The cheapest choice of options for a stage's layers that fits its memory, and the least memory of any.

The module knows how to prove a choice best. It does not know pipelines.
"""

from __future__ import annotations

import math
from dataclasses import replace

from placements.planners.stage_search.labels import Bounds, bounds, search
from placements.planners.stage_search.stage_problem import ROUNDING, StageProblem, StageSolution, weigh
from placements.planners.stage_search.tables import Stage, prepare

_FIRST_WIDTH = 48
_WIDTH = 20_000


def solve(problem: StageProblem) -> StageSolution | None:
    """Return the cheapest choice that fits; None where nothing does."""
    stage = prepare(problem)
    limits = bounds(stage, problem.capacity_mib)
    return _proved(stage, limits)


def _proved(stage: Stage, limits: Bounds) -> StageSolution | None:
    problem = stage.problem
    found, dropped = search(stage, problem.capacity_mib, limits, math.inf, _FIRST_WIDTH)
    if not math.isinf(dropped):
        cutoff = math.inf if found is None else found.cost * (1 - ROUNDING * 1e-2)
        better, dropped = search(stage, problem.capacity_mib, limits, cutoff, _WIDTH)
        found = better or found
    if found is None:
        return None
    return weigh(problem, found.choice, min(found.cost, dropped))


def least_memory(problem: StageProblem) -> float:
    """Return the least capacity in which the layers fit, whatever they cost, in MiB."""
    stage = prepare(replace(problem, weights=(0.0, 0.0)))
    lightest = [int(table.index[table.weight_mib.argmin()]) for table in stage.layers]
    enough_mib = weigh(problem, lightest).peak_mib
    limits = bounds(stage, enough_mib)
    found, _ = search(stage, enough_mib, limits, math.inf, _WIDTH, free=True)
    assert found is not None, "the lightest options fit"
    return weigh(problem, found.choice).peak_mib
