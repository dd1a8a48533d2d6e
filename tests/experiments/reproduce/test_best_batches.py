"""Rows of Galvatron-BMW's tables by our planner: the published figures, inclusions, and the comparison."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from experiments.reproduce.galvatron.best_batches import (
    MEMORY_BALANCED,
    METHODS,
    RememberedCosts,
    best_batches,
)
from experiments.reproduce.galvatron.tables import ITEMS, TABLES, published_columns
from experiments.reproduce.item import Row
from placements.cluster import CLUSTERS
from placements.models.zoo import read_model
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts


def test_all_models_clusters_and_methods_are_known() -> None:
    columns = published_columns().values()
    assert [sum(column[0].table == table for column in columns) for table in TABLES] == [32, 24, 4, 8, 3]
    for cells in columns:
        assert CLUSTERS[cells[0].cluster].whole.memory_gib >= cells[0].memory_gb
        assert cells[0].costs.model.layers
        methods = {cell.method for cell in cells}
        assert methods == METHODS.keys() - {"1F1B+Time", MEMORY_BALANCED} or cells[0].table == "V"
    assert len(published_columns(methods=(MEMORY_BALANCED,))) == 8


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


def test_the_agreement_by_hand() -> None:
    papers = {"DP": None, "TP": 1.0, "PP": 2.0, "SDP": 3.0, "DP+TP": 4.0}

    def column(case: str, **ours: float) -> list[Row]:
        rates = {"PP": 9.0, "SDP": 8.0, "DP+TP": 7.0} | ours
        return [
            Row(name, "samples_per_s", rates.get(name), paper, series=name, case=case)
            for name, paper in papers.items()
        ]

    rows = [*column("first"), *column("second", TP=7.5)]
    memory, winners, order = ITEMS[0].trends(rows)
    assert memory.shown_by == "9 of 10 cells"
    assert winners.shown_by == "0 of 2 columns"
    # Ranks 1.5, 1.5, 5, 4, 3 and 1 to 5; then 1, 3, 5, 4, 2 and 1 to 5.
    assert order.shown_by == "0.43 on average, 0.30 at least"
    nothing = [Row("DP", "samples_per_s", None, series="DP", case="none")]
    assert len(ITEMS[0].trends(nothing)) == 1
