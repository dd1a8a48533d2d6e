"""Costs of layers by profiles of Galvatron, and plans by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from one_line_errors import raises_line
from places import SHARED_DATA
from small_profiles import galvatron_memory, galvatron_times, write_galvatron

from placements.block import PlacementError
from placements.cluster import read_cluster
from placements.forms.texts import write_text
from placements.measured.galvatron_profile import (
    GalvatronProfileError,
    is_galvatron_folder,
    read_galvatron_profile,
)
from placements.measured.layer_profile import NotProfiledError
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.hybrid.decision_trees import Paradigm, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.profiled.galvatron_costs import GalvatronCosts
from placements.planners.hybrid.search.plan_search import search_plans

SHIPPED = SHARED_DATA / "galvatron" / "llama2_2026"

MIB = 2**20


@pytest.fixture
def costs(tmp_path: Path) -> GalvatronCosts:
    profile = read_galvatron_profile(write_galvatron(tmp_path), "toy-1b")
    return GalvatronCosts(profile, read_cluster("a100_4"), 3, MIB)


def cost_of(costs: GalvatronCosts, strategy: LayerStrategy, samples: int, m: int = 1, layer: int = 1) -> Cost:
    return costs.cost(
        costs.model.layers[layer], strategy, samples, m, costs.cluster.group(0, strategy.num_gpus)
    )


def test_the_model_has_ends_and_equal_layers(costs: GalvatronCosts) -> None:
    model = costs.model
    names = [(count, layer.name) for count, layer in model.runs]
    assert names == [(1, "embedding"), (3, "block"), (1, "head")]
    assert model.runs[1][1].num_parameters == 25 * MIB
    assert model.runs[2][1].num_parameters == round(12.5 * MIB)
    assert is_galvatron_folder(SHIPPED) == SHIPPED.is_dir()


def test_times_are_a_line_over_the_samples_of_a_gpu(costs: GalvatronCosts) -> None:
    """A batch takes 1 ms, each of its samples 4."""
    one = cost_of(costs, LayerStrategy(), 3)
    assert (one.forward.time_ms, one.backward.time_ms) == pytest.approx((13, 26))
    assert cost_of(costs, LayerStrategy(1, 2), 6).forward.time_ms == pytest.approx(13)
    assert cost_of(costs, LayerStrategy(), 2, layer=4).forward.time_ms == pytest.approx(6)
    again = cost_of(costs, LayerStrategy(recompute="full"), 3)
    assert again.backward.time_ms == pytest.approx(39)


def test_tensor_parallel_gpus_all_reduce_two_boundaries_in_each_pass(costs: GalvatronCosts) -> None:
    """Of 2 MB a sample; two neighbours send as much as that, 100 MB in a ms, and other pairs 50."""
    near = LayerStrategy(2, sequence="megatron")
    cost = cost_of(costs, near, 4)
    assert cost.forward.product_ms == pytest.approx(1 + 4 * 2)
    assert (cost.forward.copy_ms, cost.backward.copy_ms) == pytest.approx((2 * 8 / 100, 2 * 8 / 100))
    again = cost_of(costs, LayerStrategy(2, recompute="full", sequence="megatron"), 4)
    assert again.backward.copy_ms == pytest.approx(4 * 8 / 100)
    apart = cost_of(costs, LayerStrategy(2, 2, sequence="megatron", tensor_innermost=False), 8)
    assert apart.forward.copy_ms == pytest.approx(2 * 8 / 50)
    head = cost_of(costs, near, 4, layer=4)
    assert (head.forward.copy_ms, head.backward.copy_ms) == pytest.approx((0, 8 / 100))


def test_memory_is_as_measured_and_states_are_shared_by_zero(costs: GalvatronCosts) -> None:
    """A layer has 400 MB of states, of which 50 are weights and 50 gradients in 16 bits."""
    static = {zero: cost_of(costs, LayerStrategy(1, 2, zero), 2).static_bytes / MIB for zero in range(4)}
    assert static == pytest.approx({0: 400, 1: 250, 2: 225, 3: 200})
    assert cost_of(costs, LayerStrategy(1, 2, 2), 2, 2).static_bytes / MIB == pytest.approx(250)
    shared = cost_of(costs, LayerStrategy(2, sequence="megatron"), 3)
    assert (shared.static_bytes / MIB, shared.kept_bytes / MIB) == pytest.approx((200, 72))
    again = cost_of(costs, LayerStrategy(2, recompute="full", sequence="megatron"), 3)
    assert (again.kept_bytes / MIB, again.backward_bytes / MIB) == pytest.approx((6, 72))


def test_ends_on_one_stage_hold_what_was_measured_of_one(costs: GalvatronCosts) -> None:
    four = LayerStrategy(1, 4)
    whole = [cost_of(costs, four, 4, layer=number) for number in (0, 4)]
    assert sum(layer.static_bytes for layer in whole) / MIB == pytest.approx(410)
    assert sum(layer.kept_bytes for layer in whole) / MIB == pytest.approx(30)
    assert cost_of(costs, LayerStrategy(1, 2), 2, layer=4).static_bytes / MIB == pytest.approx(200)


def test_exchanges_of_gradients_and_weights(costs: GalvatronCosts) -> None:
    """50 MB at 100 MB in a ms: an all-reduce of two sends 50, of four 75, and a gather half of that."""
    assert cost_of(costs, LayerStrategy(1, 2), 2).update_ms == pytest.approx(0.5)
    assert cost_of(costs, LayerStrategy(1, 4), 4).update_ms == pytest.approx(0.75)
    sharded = cost_of(costs, LayerStrategy(1, 4, 3), 4)
    assert (sharded.update_ms, sharded.forward.copy_ms) == pytest.approx((0, 0.375))
    assert sharded.backward.copy_ms == pytest.approx(0.25 * 0.75), "beside products, at 1.25"
    assert sharded.forward_bytes / MIB == pytest.approx(37.5)


def test_transfers_and_changes_of_strategy(costs: GalvatronCosts) -> None:
    """Two stages reach 20 MB in a ms, four stages 10; a sample is 2 MB."""
    cluster, block = costs.cluster, costs.model.layers[1]
    assert costs.transfer_ms(block, 8, cluster.group(0, 2), cluster.group(2, 2)) == pytest.approx(16 / 2 / 20)
    assert costs.transfer_ms(block, 8, cluster.group(0, 1), cluster.group(1, 1)) == pytest.approx(16 / 10)
    wide, replicas = LayerStrategy(2, sequence="megatron"), LayerStrategy(1, 2)
    assert costs.transition_ms(block, wide, wide, 8, cluster.group(0, 2)) == 0
    change_ms = costs.transition_ms(block, wide, replicas, 8, cluster.group(0, 2))
    assert change_ms == pytest.approx(2 * 16 / 2 / 100)


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (LayerStrategy(2), "sequence_parallel: layers were measured with it alone; use true"),
        (LayerStrategy(1, 3), "no all-reduce bandwidth of 3 GPUs, 1 apart, on 1 nodes of 4"),
    ],
)
def test_what_was_not_measured_is_refused(costs: GalvatronCosts, strategy: LayerStrategy, why: str) -> None:
    with pytest.raises(PlacementError, match=why):
        cost_of(costs, strategy, 6)


def test_several_nodes_need_their_bandwidths(costs: GalvatronCosts) -> None:
    with pytest.raises(NotProfiledError, match="no p2p bandwidth between nodes was measured; add"):
        GalvatronCosts(costs.profile, read_cluster("a100_8", gpus_per_node=4), 3)


def changed(data: dict[str, Any], remove: str = "", **new: Any) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != remove} | new


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"times": changed(galvatron_times(), layertype_1_bsz1_seq128=3.0)}, "a second kind of layer"),
        (
            {"times": changed(galvatron_times(), "layertype_other_bsz1_seq128")},
            "_all.json: lacks layertype_other_bszN_seq128",
        ),
        ({"times": changed(galvatron_times(), layertype_0_bsz1_seq64=5.0)}, "measured for 64, 128; give one"),
        ({"memory": changed(galvatron_memory(), "other_memory_pp_off_sp")}, "lacks the field 'other_memory"),
        ({"memory": changed(galvatron_memory(), layertype_0_sp={"64": {}})}, "lacks the field '128'"),
        ({"rings": {"allreduce_size_2": 1.0}}, "1.0 is not named allreduce_size_N_consec_0"),
        ({"overlap": {"overlap_coe": 0.5}}, "overlap_coe: 0.5 is not a number from 1"),
    ],
)
def test_files_that_are_wrong_are_refused_in_a_line(tmp_path: Path, files: dict[str, Any], why: str) -> None:
    write_galvatron(tmp_path, **files)
    with raises_line(GalvatronProfileError, str(tmp_path), match=why):
        read_galvatron_profile(tmp_path, "toy-1b")


def test_files_that_are_missing_or_twice_are_refused_in_a_line(tmp_path: Path) -> None:
    write_galvatron(tmp_path)
    with raises_line(GalvatronProfileError, match="no computation_profiling file of 'other'; it has toy-1b"):
        read_galvatron_profile(tmp_path, "other")
    with pytest.raises(GalvatronProfileError, match="sequence_length: 64 was not measured, only 128"):
        read_galvatron_profile(tmp_path, "toy-1b", 64)
    assert read_galvatron_profile(tmp_path, "Toy_1b").sequence_length == 128
    for path in sorted(tmp_path.rglob("*.json")):
        text = path.read_text()
        path.unlink()
        if "p2p" not in path.name and "allreduce" not in path.name:
            with pytest.raises(GalvatronProfileError, match=r"has (no|0 files) "):
                read_galvatron_profile(tmp_path, "toy-1b")
        write_text(path, text[: len(text) // 2])
        with pytest.raises(GalvatronProfileError, match="is not JSON"):
            read_galvatron_profile(tmp_path, "toy-1b")
        write_text(path, text)
    write_text(tmp_path / "more/computation_profiling_bf16_toy-1b_all.json", "{}")
    with pytest.raises(GalvatronProfileError, match="has both gpt/computation.* and more/computation"):
        read_galvatron_profile(tmp_path, "toy-1b")


@pytest.mark.skipif(not SHIPPED.is_dir(), reason="the profile is not here")
@pytest.mark.parametrize(
    ("num_gpus", "num_layers", "memory_gib", "reserve_gib", "theirs"),
    [(8, 32, 36, 7.2, 15.28), (8, 96, 16, 1, None), (16, 32, 16, 1, 27.02)],
)
def test_plans_of_the_shipped_profile_are_near_those_of_galvatron(
    num_gpus: int, num_layers: int, memory_gib: float, reserve_gib: float, theirs: float | None
) -> None:
    """Samples a second for a batch of 64, if it fits; Galvatron reserves a fifth of memory above 20 GB."""
    profile = read_galvatron_profile(SHIPPED, "llama2-7b")
    costs = GalvatronCosts(profile, read_cluster(f"a100_{num_gpus}"), num_layers, 2048 * 4096)
    paradigms = (Paradigm.DP, Paradigm.ZERO2, Paradigm.SDP, Paradigm.TP)
    options = PlanOptions(
        TreeOptions(paradigms, sequence_parallel=True), memory_gib=memory_gib, reserve_gib=reserve_gib
    )
    plans = search_plans(costs, costs.cluster, 64, options).plans
    if theirs is None:
        assert not plans
    else:
        assert plans[0].samples_per_s == pytest.approx(theirs, rel=0.1)
