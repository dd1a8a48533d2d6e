"""Megatron's rules: layers shared in a node first, just enough stages, the rest replicas."""

from __future__ import annotations

import pytest

from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.search.rules_of_thumb import rules_of_thumb
from placements.planners.hybrid.shape_costs import ShapeCosts


def decided(model: str, cluster: str, options: PlanOptions) -> RatedPlan | None:
    found = rules_of_thumb(ShapeCosts(read_model(model)), read_cluster(cluster), 64, options)
    return found.plans[0] if found.plans else None


@pytest.mark.parametrize("memory_gib", [80.0, 40.0, 20.0])
def test_no_smaller_product_of_both_degrees_fits(memory_gib: float) -> None:
    """Takeaways 1 and 2: t up to the node before stages, and neither larger than needed."""
    options = PlanOptions(TreeOptions(PAPER), memory_gib=memory_gib, reserve_gib=1.0)
    rated = decided("gpt3_6.7b", "a100_32", options)
    assert rated is not None
    plan = rated.plan
    degrees = {(s.tensor_parallel, s.data_parallel, s.zero) for s in plan.strategies}
    assert len(degrees) == 1, "all layers are shared alike"
    t, d, zero = degrees.pop()
    assert (t * d * plan.num_stages, zero) == (32, 0)
    assert t == 8 or plan.num_stages == 1
    smaller = rules_of_thumb(ShapeCosts(read_model("gpt3_6.7b")), read_cluster("a100_32"), 64, options).trials
    before = [
        trial for trial in smaller if (trial.num_stages, trial.gpus_per_stage) != (plan.num_stages, t * d)
    ]
    assert all(trial.time_ms is None for trial in before)


def test_less_memory_needs_more_sharing() -> None:
    sharing = []
    for memory_gib in (80.0, 24.0, 10.0):
        options = PlanOptions(
            TreeOptions(PAPER, ("none",)), memory_gib=memory_gib, reserve_gib=1.0, num_plans=1
        )
        rated = decided("gpt3_2.7b", "a100_32", options)
        assert rated is not None
        sharing.append(rated.plan.strategies[1].tensor_parallel * rated.plan.num_stages)
    assert sharing == sorted(sharing) and len(set(sharing)) == 3


def test_the_search_is_never_worse() -> None:
    for memory_gib in (80.0, 30.0):
        options = PlanOptions(memory_gib=memory_gib, reserve_gib=1.0, num_plans=1)
        rules = decided("gpt3_6.7b", "a100_16", options)
        costs, cluster = ShapeCosts(read_model("gpt3_6.7b")), read_cluster("a100_16")
        best = search_plans(costs, cluster, 64, options).plans[0]
        assert rules is not None
        assert best.time_ms <= rules.time_ms * (1 + 1e-9)


def test_nothing_fits() -> None:
    found = rules_of_thumb(ShapeCosts(read_model("gpt3_175b")), read_cluster("a100_8"), 8, PlanOptions())
    assert not found.plans
    assert any("out of memory" in trial.reason for trial in found.trials)


def test_optimizer_states_are_sharded_where_that_is_allowed() -> None:
    rated = decided("gpt3_6.7b", "a100_32", PlanOptions(memory_gib=40.0, reserve_gib=1.0))
    assert rated is not None
    assert {strategy.zero for strategy in rated.plan.strategies} == {1}
