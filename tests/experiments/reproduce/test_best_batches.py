"""Rows of Galvatron-BMW's tables by our planner: the published figures, inclusions, and the comparison."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from places import SHARED_DATA

from experiments.reproduce.galvatron.best_batches import METHODS, RememberedCosts, best_batches
from experiments.reproduce.galvatron.columns import (
    LARGER,
    PURE,
    ReproducedColumn,
    rank_correlation,
    same_memory,
    same_order,
    same_winners,
)
from experiments.reproduce.galvatron.plans import kind_of
from experiments.reproduce.galvatron.published_columns import (
    DEEPSPEED,
    MEMORY_BALANCED,
    TABLES,
    Best,
    PublishedColumn,
    published_columns,
)
from placements.cluster import CLUSTERS
from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts

PAPER = SHARED_DATA / "galvatron" / "paper_tables.json"

PAPER_NAMES = {
    "DP": "PyTorch DDP (DP)",
    "TP": "Megatron (TP)",
    "PP": "PyTorch GPipe (PP)",
    "SDP": "FSDP/ZeRO-3 (SDP)",
    "DP+TP": "Galvatron (DP+TP)",
    "DP+PP": "Galvatron (DP+PP)",
    "1F1B+Time": "Galvatron (1F1B+Time)",
    MEMORY_BALANCED: "Galvatron (1F1B+Mem)",
    "1F1B+Bi-obj": "Galvatron (1F1B+Bi-obj)",
}


def test_all_models_clusters_and_methods_are_known() -> None:
    columns = published_columns()
    assert [sum(each.table == table for each in columns) for table in TABLES] == [32, 24, 4, 8, 3]
    for column in columns:
        assert column.model_name in MODELS
        assert CLUSTERS[column.cluster].whole.memory_gib >= column.memory_gb
        assert set(column.best) <= set(METHODS)
        others = {"1F1B+Time", DEEPSPEED, MEMORY_BALANCED}
        assert set(column.best) == set(METHODS) - others or column.table == "V"
    assert len(published_columns(only=(DEEPSPEED,))) == 63
    assert len(published_columns(only=(MEMORY_BALANCED,))) == 8


@pytest.mark.skipif(not PAPER.exists(), reason="the shared data are not here")
def test_the_published_figures_are_the_papers() -> None:
    papers = {
        (table, row["model"], row["memGB"], row["strategy"], row.get("cluster", "")): row
        for table, rows in zip(TABLES, list(json.loads(PAPER.read_text()).values())[1:], strict=False)
        for row in rows
    }
    clusters = {"galvatron_titan_16": "16xRTX-TITAN(low)", "galvatron_a100_16": "16xA100(high)"}
    for column in (*published_columns(), *published_columns(only=(DEEPSPEED, MEMORY_BALANCED))):
        cluster = clusters[column.cluster] if column.table == "III" else ""
        for method, best in column.best.items():
            name = PAPER_NAMES.get(method, method)
            row = papers[column.table, column.model, column.memory_gb, name, cluster]
            assert best == (None if row["oom"] else (row["batch"], row["samples_per_s"]))


def test_deepspeed_has_two_stages_and_pairs_that_share_each_layer() -> None:
    costs, cluster = ShapeCosts(read_model("bert_huge_32", num_layers=4)), CLUSTERS["galvatron_titan_8"]
    plan = search_plans(costs, cluster, 8, METHODS[DEEPSPEED]).plans[0].plan
    assert len(plan.stages) == 2
    strategies = {each for stage in plan.stages for each in stage.strategies}
    assert {(each.tensor_parallel, each.data_parallel, each.zero) for each in strategies} == {(2, 2, 0)}
    assert {kind_of(each, 2) for each in strategies} == {"PP+DP+TP"}


def test_a_division_even_in_memory_is_more_even_in_memory_than_one_even_in_time() -> None:
    """The first stage holds two micro-batches, so that it gets fewer layers."""
    costs, cluster = ShapeCosts(read_model("bert_huge_32")), CLUSTERS["galvatron_a100_16"]

    def stages(method: str) -> tuple[int, float]:
        options = replace(METHODS[method], num_stages=(2,), num_micro_batches=(4,))
        found = search_plans(costs, cluster, 32, options).plans[0]
        peaks = [stage.peak_mib for stage in found.stages]
        return len(found.plan.stages[0].layers), max(peaks) / min(peaks)

    (fewer, even), (more, uneven) = stages(MEMORY_BALANCED), stages("1F1B+Time")
    assert fewer < more and even < uneven


def test_a_larger_search_space_is_never_worse() -> None:
    memory_gib, model = 3.0, read_model("t5_512_4_32", num_layers=6)
    costs = RememberedCosts(ShapeCosts(model))
    found = best_batches(costs, CLUSTERS["galvatron_titan_8"], memory_gib, METHODS, most=32)
    assert list(found) == list(METHODS)
    assert found["Galvatron-BMW"] is not None
    column = ReproducedColumn(PublishedColumn("II", "", "", 8, found), found)
    assert len(column.compared) == len(LARGER)
    assert column.broken == []
    # Remembered costs are the same ones.
    plain = best_batches(costs.costs, CLUSTERS["galvatron_titan_8"], memory_gib, ["DP", "SDP"], most=32)
    assert plain == {method: found[method] for method in ("DP", "SDP")}


def test_more_memory_is_never_worse() -> None:
    costs = RememberedCosts(ShapeCosts(read_model("bert_huge_32", num_layers=8)))
    rates = []
    for memory_gib in (3.0, 6.0, 12.0):
        found = best_batches(costs, CLUSTERS["galvatron_titan_8"], memory_gib, ["Galvatron-BMW"], most=32)
        rates.append(found["Galvatron-BMW"].samples_per_s if found["Galvatron-BMW"] else 0.0)
    assert 0 < rates[0] <= rates[1] <= rates[2]


def test_the_agreement_by_hand() -> None:
    papers = {"DP": None, "TP": Best(8, 1.0), "PP": Best(8, 2.0), "SDP": Best(8, 3.0), "DP+TP": Best(8, 4.0)}
    ours = {"DP": None, "TP": None, "PP": Best(8, 9.0), "SDP": Best(16, 8.0), "DP+TP": Best(8, 7.0)}
    first = ReproducedColumn(PublishedColumn("II", "BERT-Huge-32", "galvatron_titan_8", 8, papers), ours)
    broken = ReproducedColumn(first.published, ours | {"TP": Best(8, 7.5)})
    assert first.winners == ("PP", "SDP") and broken.broken == [("DP+TP", "TP")]
    assert len(first.compared) == 2 and first.broken == []
    assert same_memory([first, broken]).shown_by == "9 of 10 cells"
    assert [trend.shown_by for trend in same_winners([first, broken])] == ["0 of 2 columns"]
    nothing = ReproducedColumn(PublishedColumn("II", "", "", 8, dict.fromkeys(PURE)), dict.fromkeys(PURE))
    assert nothing.winners is None and [*same_winners([nothing]), *same_order([nothing], 0.8)] == []
    assert dict(first.lines)["TP"] == ("true", "", "", "false", "8", "1")
    rows = [replace(row, case="BERT") for row in first.rows()]
    assert ReproducedColumn.read(first.published, rows, "BERT") == first


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # Ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3.
    assert rank_correlation([0, 5, 5, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert math.isnan(rank_correlation([1, 1], [1, 2]))
