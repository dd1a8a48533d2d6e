"""Bounds on stages and on all of them together, against what stages really cost."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from made_up_costs import MadeUpCosts, small_model

from placements.cluster import read_cluster
from placements.planners.hybrid.decision_trees import TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.pipeline_stages import Kinds, PipelineProblem, PipelineStages
from placements.planners.hybrid.search.plan_bounds import contents_of, stage_bounds_ms
from placements.planners.hybrid.stage_tables import make_table


def some_stages(rng: random.Random, seed: int) -> tuple[PipelineStages, Kinds]:
    costs = MadeUpCosts(seed, small_model(rng))
    kinds = Kinds(costs.model.layers)
    num_stages, m = rng.randint(1, 3), rng.choice([1, 2, 4])
    cluster = read_cluster(rng.choice(["a100_2+v100_4", "a100_6"]))
    trees = TreeOptions()
    options = PlanOptions(trees=trees, memory_gib=rng.choice([100.0, 3.0, 1.5, 1.0]), reserve_gib=0.0)
    groups = [cluster.group(2 * stage, 2) for stage in range(num_stages)]
    tables = [make_table(costs, kinds.layers, trees, 4, m, group) for group in groups]
    return PipelineStages(PipelineProblem(costs, kinds, 4 * m, options), groups, tables, m), kinds


@pytest.mark.parametrize("seed", range(30))
def test_bounds_are_never_above_what_stages_cost(seed: int) -> None:
    stages, kinds = some_stages(random.Random(seed), seed)
    size, count = kinds.num_layers, len(stages.groups)
    own = kinds.of_stage(0, size)
    bounds_ms = stage_bounds_ms(stages.rooms, own, contents_of(own, size))
    assert bounds_ms.shape == (count, size + 1, size + 1)
    for stage, first in itertools.product(range(count), range(size)):
        for end in range(first + 1, size + 1):
            found = stages.solution(stage, first, end)
            assert found is None or bounds_ms[stage, end, end - first] <= found.cost * (1 + 1e-9)
    shortest = math.inf
    for cuts in itertools.combinations(range(1, size), count - 1):
        spans = itertools.pairwise((0, *cuts, size))
        found_all = [stages.solution(stage, *span) for stage, span in enumerate(spans)]
        costs = [math.inf if each is None else each.cost for each in found_all]
        shortest = min(shortest, (stages.num_micro_batches - 1) * max(costs) + sum(costs))
    assert stages.min_ms <= shortest * (1 + 1e-9)


def test_the_bound_counts_memory() -> None:
    """With less memory an iteration is longer, and so is the bound."""
    rng = random.Random(3)
    costs = MadeUpCosts(3, small_model(rng))
    kinds = Kinds(costs.model.layers)
    group = read_cluster("a100_2").group(0, 2)
    table = make_table(costs, kinds.layers, TreeOptions(), 4, 2, group)
    bounds = []
    for gib in (100.0, 0.4, 0.3):
        problem = PipelineProblem(costs, kinds, 8, PlanOptions(memory_gib=gib, reserve_gib=0.0))
        bounds.append(PipelineStages(problem, [group], [table], 2).min_ms)
    min_ms = float(table.min_ms @ kinds.counts)
    assert bounds[0] == pytest.approx(2 * min_ms)
    assert bounds[0] < bounds[1] < bounds[2]
