"""Shapes that compete: vocabularies on all GPUs, and what is said of all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_profiles import write_profile

from placements.cluster import Cluster, Nodes
from placements.gpus import A100_SXM_80GB
from placements.measured.profile_folder import read_profiled_model
from placements.models.zoo import read_model
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.profiled.layer_profile_costs import LayerProfileCosts
from placements.planners.hybrid.profiled.measured_cluster import read_measured_cluster
from schedsearch.planning.explanation import explain
from schedsearch.planning.planner import plan
from schedsearch.planning.plans import Plans
from schedsearch.planning.shape_plans import SHAPES

LARGE = read_model("gpt_11b", num_layers=8, hidden_size=1024, num_heads=16)
"""Whose table is larger than all layers."""

FEW = PlanOptions(num_plans=1, num_micro_batches=(8,))


def put_first(found: Plans, shape: str) -> Plans:
    """Return the plans with those of a shape before all others."""
    order = sorted(found.proposed, key=lambda each: each.shape != shape)
    return replace(found, proposed=tuple(order))


@pytest.fixture(scope="module")
def large() -> Plans:
    options = replace(FEW, num_stages=(2,))
    return plan(LARGE, "a100_4", 32, options=options, shapes=SHAPES, time_limit_s=12)


def test_a_vocabulary_on_all_gpus_is_explained_and_drawn(large: Plans) -> None:
    found = put_first(large, "m_shape")
    assert found.best.shared is not None
    assert "\n- on all GPUs besides: 1 embedding, 1 output: " in explain(found)
    drawn = {text.get_text() for text in found.plot().axes[0].texts}
    assert {"1 embedding", "1 output"} <= drawn
    # The peaks count what is on all GPUs, as the placement does, whose search may hold less at once.
    placement = found.best.placement
    assert all(
        peak >= held for peak, held in zip(found.best.peaks_mib, placement.static_memory or (), strict=True)
    )


def test_by_the_formula_every_shape_has_its_own_time() -> None:
    """Once an M-shape was taken for as fast as its layers without the vocabulary."""
    found = plan(LARGE, "v100_4", 32, options=FEW, shapes=SHAPES, rank_by="formula")
    shared = next(each for each in found.proposed if each.shape == "m_shape")
    assert shared.formula_ms is not None and shared.formula_ms > shared.rated.time_ms
    assert shared.samples_per_s == pytest.approx(32e3 / shared.formula_ms)
    rates = [each.samples_per_s or 0.0 for each in found.proposed]
    assert rates == sorted(rates, reverse=True)
    waves = [each for each in found.proposed if each.shape in ("loop_shape", "wave_shape")]
    assert all(each.samples_per_s is None for each in waves)


def test_a_shape_fits_where_a_chain_does_not() -> None:
    """No stage has memory for the whole table and its share of the layers."""
    options = PlanOptions(num_plans=1, memory_gib=20.0, gpus_per_stage=(1,))
    found = plan(LARGE, "v100_4", 32, options=options, shapes=("v_shape", "m_shape"), rank_by="formula")
    assert [each.shape for each in found.proposed] == ["m_shape"]
    assert found.left_out[0].startswith("v_shape: memory_gib: 20 GiB less 4 in reserve are too little")


def test_a_file_has_the_record_of_its_gpu() -> None:
    gpu = replace(A100_SXM_80GB, name="mine", memory_gib=60.0)
    cluster = Cluster((Nodes(gpu, 1, 4),), 1.0)
    found = plan("gpt3_125m", cluster, 8, options=FEW, rank_by="formula")
    text = json.dumps(found.to_dict())
    assert '"name": "mine"' in text and '"memory_gib": 60.0' in text


def test_measured_layers_have_an_m_shape(tmp_path: Path) -> None:
    known = read_profiled_model(write_profile(tmp_path / "profile"), "toy")
    where = read_measured_cluster("A100-40_2", known)
    costs = LayerProfileCosts(known, where)
    found = plan(costs.model, where.cluster, 8, costs=costs, shapes=("m_shape",), rank_by="formula")
    best = found.best
    assert best.shared is not None
    assert [layer.name for layer in best.shared.layers] == ["embedding", "head"]
    assert [layer.name for layer in best.rated.plan.model.layers] == ["block", "block"]
