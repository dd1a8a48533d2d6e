"""Rows of Galvatron-BMW's tables by our planner: inclusions of search spaces, and even divisions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from experiments.reproduce.galvatron.best_batches import (
    MEMORY_BALANCED,
    METHODS,
    RememberedCosts,
    best_batches,
)
from placements.cluster import CLUSTERS
from placements.models.zoo import read_model
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts


def test_a_division_even_in_memory_is_more_even_in_memory_than_one_even_in_time() -> None:
    """The first stage holds two micro-batches, so that it gets fewer layers."""
    costs, cluster = ShapeCosts(read_model("bert_huge_32")), CLUSTERS["galvatron_a100_16"]

    def stages(method: str) -> tuple[int, float]:
        options = replace(METHODS[method], num_stages=(2,), num_micro_batches=(4,))
        plan = search_plans(costs, cluster, 32, options).plans[0]
        peaks = [stage.peak_mib for stage in plan.stages]
        return len(plan.plan.stages[0].layers), max(peaks) / min(peaks)

    (fewer, even), (more, uneven) = stages(MEMORY_BALANCED), stages("1F1B+Time")
    assert fewer < more and even < uneven


def test_a_larger_search_space_is_never_worse() -> None:
    memory_gib, model = 3.0, read_model("t5_512_4_32", num_layers=6)
    costs = RememberedCosts(model)
    best_of = best_batches(costs, CLUSTERS["galvatron_titan_8"], memory_gib, METHODS, most=32)
    assert list(best_of) == list(METHODS)
    assert best_of["Galvatron-BMW"] is not None
    rates = {method: best.samples_per_s if best else 0.0 for method, best in best_of.items()}
    chains = ["DP DP+TP Galvatron Galvatron-Base Galvatron-BMW", "DP DP+PP", "TP DP+TP", "SDP Galvatron"]
    chains += ["PP DP+PP Galvatron 1F1B+Bi-obj Galvatron-BMW", "1F1B+Time 1F1B+Bi-obj"]
    for smaller, larger in (pair for chain in chains for pair in pairwise(chain.split())):
        assert rates[larger] >= rates[smaller] * (1 - 1e-9)
    # Remembered costs are the same ones.
    plain = best_batches(ShapeCosts(model), CLUSTERS["galvatron_titan_8"], memory_gib, ["DP", "SDP"], most=32)
    assert plain == {method: best_of[method] for method in ("DP", "SDP")}
