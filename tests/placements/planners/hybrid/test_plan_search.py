"""Plans that are searched, against all plans there are, and what must hold of any."""

from __future__ import annotations

import math
import random

import pytest
from made_up_costs import EveryPlan, MadeUpCosts, small_model

from placements.cluster import Cluster, read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import Paradigm, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.stage_tables import LayerCosts

NEAR = pytest.approx

TREES = (
    TreeOptions((Paradigm.DP, Paradigm.TP), ("none",)),
    TreeOptions((Paradigm.DP, Paradigm.SDP), ("none", "full")),
    TreeOptions((Paradigm.DP,), ("none", "selective", "full")),
)


def some_cluster(rng: random.Random) -> Cluster:
    return rng.choice(
        [
            read_cluster("a100_2"),
            read_cluster("a100_3", gpus_per_node=1),
            read_cluster("a100_4"),
            read_cluster("a100_4", gpus_per_node=2),
            read_cluster("a100_2+v100_2"),
        ]
    )


def least_ms(costs: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions) -> float:
    found = search_plans(costs, cluster, batch, options)
    return found.plans[0].time_ms if found.plans else math.inf


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_of_made_up_costs_is_shorter(seed: int) -> None:
    rng = random.Random(seed)
    costs, cluster, batch = MadeUpCosts(seed, small_model(rng)), some_cluster(rng), rng.randint(1, 4)
    for gib in (100.0, rng.uniform(2, 5), rng.uniform(1, 2), rng.uniform(0.2, 1)):
        options = PlanOptions(trees=TREES[seed % 3], memory_gib=gib, reserve_gib=0.0)
        expected = EveryPlan(costs, cluster, batch, options).least_ms()
        assert least_ms(costs, cluster, batch, options) == NEAR(expected), gib


@pytest.mark.parametrize("gib", [80, 6.0, 3.0, 2.6, 2.3, 2.0, 1.5])
@pytest.mark.parametrize("name", ["a100_2", "a100_4"])
def test_no_plan_of_a_model_is_shorter(name: str, gib: float) -> None:
    costs = ShapeCosts(read_model("gpt3_125m", num_layers=2))
    trees = TreeOptions() if name == "a100_2" else TREES[0]
    options = PlanOptions(trees=trees, memory_gib=gib, reserve_gib=0.5)
    cluster = read_cluster(name)
    assert least_ms(costs, cluster, 4, options) == NEAR(EveryPlan(costs, cluster, 4, options).least_ms())


GPT = ShapeCosts(read_model("gpt3_1.3b", num_layers=8))


def fastest(costs: LayerCosts, cluster: str, batch: int, **options: object) -> float:
    """Return the throughput of the best plan; 0 where none fits."""
    found = search_plans(costs, read_cluster(cluster), batch, PlanOptions(num_plans=1, **options))  # type: ignore[arg-type]
    return found.plans[0].samples_per_s if found.plans else 0.0


@pytest.mark.parametrize("batch", [8, 24])
@pytest.mark.parametrize("model", ["gpt3_1.3b", "bert_large", "swin_huge_32"])
def test_more_gpus_are_never_worse(model: str, batch: int) -> None:
    costs = ShapeCosts(read_model(model))
    rates = [fastest(costs, f"a100_{count}", batch) for count in (2, 4, 8, 16, 24, 32, 48, 64)]
    assert rates == sorted(rates)


def test_more_nodes_of_four_are_never_worse() -> None:
    rates = [
        search_plans(GPT, read_cluster(f"a100_{count}", gpus_per_node=4), 12).plans[0].samples_per_s
        for count in (4, 8, 12, 16)
    ]
    assert rates == sorted(rates)
