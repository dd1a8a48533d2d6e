"""Lower bounds on stages and on whole plans, against the stages' actual costs."""

from __future__ import annotations

import math
import random

import pytest
from made_up_costs import MadeUpCosts, small_model
from stages_at_random import every_division

from placements.cluster import read_cluster
from placements.planners.division import spans
from placements.planners.hybrid.decision_trees import TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.pipeline import Pipeline, PlanProblem


@pytest.mark.parametrize("seed", range(30))
def test_bounds_are_never_above_what_stages_cost(seed: int) -> None:
    rng = random.Random(seed)
    costs = MadeUpCosts(seed, small_model(rng))
    count, m = rng.randint(1, 3), rng.choice([1, 2, 4])
    cluster = read_cluster(rng.choice(["a100_2+v100_4", "a100_6"]))
    gib = rng.choice([100.0, 3.0, 1.5, 1.0])
    options = PlanOptions(TreeOptions(), memory_gib=gib, reserve_gib=0.0)
    stages, size = Pipeline(PlanProblem(costs, cluster, 4 * m, options), count, 2, m), len(costs.model.layers)
    bounds_ms = stages.bounds_ms
    assert bounds_ms.shape == (count, size + 1, size - count + 2)
    for stage, end, number in zip(*bounds_ms.nonzero(), strict=True):
        solution = stages.solution(stage, end - number, end) if 0 < number <= end else None
        assert solution is None or bounds_ms[stage, end, number] <= solution.cost * (1 + 1e-9)
    shortest = math.inf
    for division in every_division(size, count):
        solutions = [stages.solution(*span) for span in spans(division)]
        times = [math.inf if solution is None else solution.cost for solution in solutions]
        shortest = min(shortest, (m - 1) * max(times) + sum(times))
    assert stages.min_ms <= shortest * (1 + 1e-9)
