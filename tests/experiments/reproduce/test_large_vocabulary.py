"""V-shapes beside M- and NN-shapes of large vocabularies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.reproduce.tessel.large_vocabulary import (
    CASES,
    VocabularyPlans,
    VocabularyRow,
    cluster_of,
    compare_shapes,
    model_of,
    speedup,
)
from experiments.reproduce.tessel.vocabulary_item import files, plan_rows
from placements.cluster import read_cluster
from placements.models.chain import ModelShape
from placements.models.zoo import read_model
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.shape_costs import ShapeCosts

GPT = read_model("gpt_11b", num_layers=8, hidden_size=2048, num_heads=16)
T5 = read_model("mt5_9.5b", num_layers=8, hidden_size=2048, num_heads=16, second_lookup=True)


@pytest.mark.parametrize(("model", "shape"), [(GPT, "m_shape"), (T5, "nn_shape")])
def test_over_slow_links_the_shared_vocabulary_is_faster_and_smaller(model: ModelShape, shape: str) -> None:
    """In a V-shape the first stage has the table, so that few stages fit; these go over several nodes."""
    cluster = read_cluster("v100_8", gpus_per_node=2, node_bandwidth_gb_s=12.5)
    options = PlanOptions(num_plans=1, num_micro_batches=(16,), memory_gib=14.0)
    rows = compare_shapes(model, cluster, shape, 16, options=options, work_limit=2.5)
    assert [(row.shape, row.plan) for row in rows] == [
        ("v_shape", "best"),
        (shape, "best"),
        ("v_shape", "same_stages"),
    ]
    best, shared, alike = rows
    ratio = speedup(rows)
    assert ratio is not None and ratio > 1
    assert (alike.num_stages, alike.gpus_per_stage) == (shared.num_stages, shared.gpus_per_stage)
    assert shared.least_memory_gib is not None and alike.least_memory_gib is not None
    assert shared.least_memory_gib < alike.least_memory_gib
    for row in (best, shared):
        assert row.iteration_ms is not None and row.iteration_bound_ms is not None
        assert row.iteration_bound_ms <= row.iteration_ms * (1 + 1e-9)
        assert row.peak_mib is not None and row.peak_mib <= (14 - options.reserve_gib) * 1024


def test_within_a_server_the_shared_vocabulary_gains_less() -> None:
    """Tensor-parallel GPUs of a V-shape's stage share the table; only over slow links that costs much."""
    options = PlanOptions(num_plans=1, num_micro_batches=(16,), memory_gib=14.0, idle_gpus=False)

    def gain(gpus_per_node: int) -> float:
        cluster = read_cluster("v100_8", gpus_per_node=gpus_per_node, node_bandwidth_gb_s=12.5)
        plans = VocabularyPlans(ShapeCosts(T5), cluster, 16, "nn_shape", options)
        ordinary, shared = (next(found) for found in (plans.ordinary(), plans.shared()))
        return ordinary.iteration_ms(ordinary.searched(2.5)) / shared.iteration_ms(shared.searched(2.5))

    assert gain(8) < 1.1 < 1.3 < gain(2)


def test_each_case_has_its_vocabulary() -> None:
    for case in CASES.values():
        assert cluster_of(case).num_gpus == case.num_gpus
        assert len(model_of(case).runs) == {"m_shape": 3, "nn_shape": 5}[case.shape]


def test_rows_as_csv() -> None:
    empty = VocabularyRow("v_shape", "same_stages", 4, 2, 128, 40.3125)
    rows = [replace(row, case="gpt_11b") for row in plan_rows(empty)]
    names, line = files(rows)["vocabulary.csv"].splitlines()
    assert names.startswith("model,num_gpus,shape,plan,num_stages,")
    assert line == "gpt_11b,8,v_shape,same_stages,4,2,128,40.3125,,,,,"
    assert speedup([empty]) is None
