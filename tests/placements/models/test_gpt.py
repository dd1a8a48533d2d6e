"""A GPT's cost model: figures computed elsewhere, sums that must hold, and one-line errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from told import told

from placements import Kind, Placement, PlacementError
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from placements.models.gpt.checkpoints import optimal_checkpoints
from placements.models.gpt.gpt_config import layer_working_bytes
from placements.models.gpt.gpt_placement import (
    GPT_11B,
    GptConfig,
    gpt_compute_shares,
    gpt_m_shape,
    gpt_v_shape,
)
from placements.models.rates import Rates

A100 = GPUS["a100"]
SMALL = GptConfig(24, 2048, 16, 50_304, 1024, 4)


def times_ms(placement: Placement) -> dict[str, float]:
    return {block.name: block.time * placement.tick_ms for block in placement.blocks}


@pytest.mark.parametrize(
    ("recompute", "expected"),
    [
        (False, {"E": 0.14, "F0": 45.8, "H": 22, "HB": 42, "B0": 92, "EB": 4.8}),
        (True, {"E": 0.14, "F0": 45.8, "H": 22, "HB": 42, "B0": 137, "EB": 4.8}),
    ],
)
def test_times_of_gpt_11b_on_four_a100_are_those_computed_independently(
    recompute: bool, expected: dict[str, float]
) -> None:
    config = replace(GPT_11B, micro_batch_size=1, recompute=recompute)
    times = times_ms(gpt_m_shape(config, A100))
    assert {name: times[name] for name in expected} == pytest.approx(expected, rel=0.15)


def test_activations_of_a_stage_are_those_computed_independently() -> None:
    config = replace(GPT_11B, micro_batch_size=1)
    assert gpt_m_shape(config, A100).by_name["F0"].memory == 2176
    assert gpt_m_shape(replace(config, recompute=True), A100).by_name["F0"].memory == 128


def test_the_number_of_checkpoints_trades_what_is_kept_for_what_is_computed_again_at_a_time() -> None:
    config = replace(SMALL, recompute=True)  # 16 MiB for the input of a layer
    each, few, best = (gpt_v_shape(replace(config, checkpoints=number), A100, 4) for number in (None, 2, 0))
    layers = each.by_name["F1"].memory // 16  # MiB: a layer's input
    again = round(layer_working_bytes(config) / 2**20)
    assert few.by_name["F1"].memory == 32 and few.by_name["B1"].time == each.by_name["B1"].time
    assert each.memory[1] - few.memory[1] == pytest.approx((math.ceil(layers / 2) - 1) * again, abs=2)
    kept = best.by_name["F1"].memory // 16
    assert kept == optimal_checkpoints(layers, 16, again)
    with pytest.raises(PlacementError, match="checkpoints: 2 is for recompute=true"):
        replace(config, recompute=False, checkpoints=2)


@pytest.mark.parametrize("make", [gpt_m_shape, gpt_v_shape])
def test_memory_sums_to_zero_and_one_micro_batch_fits(make: Any) -> None:
    placement = make(SMALL, A100)
    for device in range(placement.num_devices):
        held = [block.memory for block in placement.on(device)]
        assert sum(held) == 0
        assert sum(memory for memory in held if memory > 0) <= placement.memory[device]


def test_the_m_shape_is_a_chain_there_and_back() -> None:
    placement = gpt_m_shape(GPT_11B, A100)
    names = [block.name for block in placement.topological_order]
    assert names == ["E", "F0", "F1", "F2", "F3", "H", "HB", "B3", "B2", "B1", "B0", "EB"]
    assert [block.after for block in placement.blocks] == [(), *((name,) for name in names[:-1])]
    everywhere = [block.name for block in placement.blocks if len(block.devices) == 4]
    assert everywhere == ["E", "H", "HB", "EB"]
    assert [block.name for block in placement.blocks if block.kind is Kind.B] == names[6:]


def test_no_other_split_of_a_v_shape_has_a_smaller_largest_stage() -> None:
    """Moving one layer from the largest stage to any other makes that one at least as large."""
    placement = gpt_v_shape(SMALL, A100)
    one = gpt_v_shape(replace(SMALL, num_layers=25), A100)
    layer = sum(block.time for block in one.blocks) - sum(block.time for block in placement.blocks)
    loads = [placement.load(device) for device in range(4)]
    rounding = 4
    assert min(loads) + layer >= max(loads) - rounding
    assert placement.by_name["F3"].time / placement.by_name["F1"].time < 1.2


def test_only_the_embedding_has_a_compute_share_of_its_own() -> None:
    placement = gpt_m_shape(GPT_11B, A100)
    shares = gpt_compute_shares(placement, GPT_11B, Rates(A100))
    assert set(shares) == {"E", "EB"}
    profile = modelled_profile(placement, A100, shares)
    slowdown = {name: points[0].time_ms / points[-1].time_ms for name, points in profile.points.items()}
    assert slowdown["E"] < slowdown["F0"] == pytest.approx(slowdown["H"])
    assert gpt_compute_shares(gpt_v_shape(SMALL, A100), SMALL, Rates(A100)) == {}


@pytest.mark.parametrize("make", [gpt_m_shape, gpt_v_shape])
def test_a_stage_in_a_mode_is_that_of_a_model_computed_again(make: Any) -> None:
    config = replace(SMALL, flash_attention=False)
    placement = make(config, A100, modes=["full", "selective"])
    assert [decision.names for decision in placement.decisions] == [("keep", "recompute", "selective")] * 4
    kept, again, selective = (placement.as_run((mode,) * 4) for mode in range(3))
    assert kept.blocks == make(config, A100).blocks
    whole = make(replace(config, recompute=True), A100, tick_ms=placement.tick_ms)
    for stage in range(4):
        forward, backward = f"F{stage}", f"B{stage}"
        assert again.by_name[forward].time == whole.by_name[forward].time
        assert again.by_name[backward].time == pytest.approx(whole.by_name[backward].time, abs=2)
        assert again.by_name[forward].memory == pytest.approx(whole.by_name[forward].memory, abs=2)
        held = [each.by_name[forward].memory for each in (kept, selective, again)]
        times = [each.by_name[backward].time for each in (kept, selective, again)]
        assert held == sorted(held, reverse=True) and times == sorted(times)
        # its backward holds one layer more, and all of them are saved
        layers = (held[0] - held[2]) / again.by_name[backward].transient
        assert layers == pytest.approx(round(layers), abs=0.01) and 5 <= round(layers) <= 7


@pytest.mark.parametrize(
    ("config", "modes", "message"),
    [
        (SMALL, ["some"], "modes: 'some' is none of selective, full, or recompute is true"),
        (SMALL, ["selective"], "modes: selective saves nothing, as flash attention keeps no scores"),
        (
            replace(SMALL, recompute=True),
            ["full"],
            "or recompute is true; give some of these, and recompute=",
        ),
    ],
)
def test_wrong_modes_are_named_in_one_line(config: GptConfig, modes: list[Any], message: str) -> None:
    with told(PlacementError, has=message):
        gpt_v_shape(config, A100, modes=modes)


def test_gpus_that_share_a_layer_split_its_work_and_sum_its_outputs() -> None:
    """By hand: a layer of 24 b s h^2 + 4 b s^2 h operations, halved, and two sums of b s h halves.

    A ring over two moves 2 (2 - 1) / 2 of the 16-bit numbers over each link.
    """
    b, s, h, layers = 4, 1024, 2048, 24 // 4
    operations = 24 * b * s * h * h + 4 * b * s * s * h
    product_ms = operations / 2 / (312e9 * 0.5)
    sum_ms = 2 * b * s * h / (300e6 * 0.77)
    placement = gpt_m_shape(SMALL, A100, num_gpus=2)
    times = times_ms(placement)
    assert times["F1"] == pytest.approx(layers * (product_ms + 2 * sum_ms), rel=1e-3)
    assert times["B1"] == pytest.approx(layers * (2 * product_ms + 2 * sum_ms), rel=1e-3)
    assert placement.num_gpus == (2, 2, 2, 2)
    # What each GPU keeps (Korthikanti et al., Eq. 2): s b h (10 + 24 / 2) bytes a layer.
    assert placement.by_name["F1"].memory == layers * 22 * b * s * h // 2**20
    # Half the parameters on each: 16 bytes for each of 12 h^2 + 13 h a layer, and for an eighth of the table.
    assert placement.memory is not None
    static = 16 * (layers * (12 * h * h + 13 * h) / 2 + 6288 * h)
    assert placement.memory[1] == math.floor(76 * 1024 - static / 2**20)
    # Each GPU of a stage receives all of the micro-batch that it computes.
    assert placement.transfer_time("F0", "F1") == math.ceil(sum_ms / placement.tick_ms)
    shares = gpt_compute_shares(placement, SMALL, Rates(A100))
    own = A100.power.compute_share
    expected = (own * product_ms + 0.2 * 2 * sum_ms) / (product_ms + 2 * sum_ms)
    assert shares["F3"] == pytest.approx(expected)


def test_groups_share_the_samples_and_exchange_their_gradients() -> None:
    """Two groups of one GPU: each stage is that of half a micro-batch on one GPU, and an O sums gradients."""
    groups = gpt_v_shape(SMALL, A100, num_gpus=2, data_parallel=2)
    half = gpt_v_shape(replace(SMALL, micro_batch_size=2), A100)
    assert groups.per_micro_batch.memory == half.memory
    assert times_ms(groups.per_micro_batch) == times_ms(half)
    assert [block.memory for block in groups.per_micro_batch.blocks] == [each.memory for each in half.blocks]
    assert groups.transfer == half.transfer
    assert {block.data_parallel for block in groups.per_micro_batch.blocks} == {2}
    layers = round(groups.by_name["F1"].memory / (34 * 2 * 1024 * 2048 / 2**20))  # of stage 1
    exchange_ms = 2 * layers * (12 * 2048**2 + 13 * 2048) / (300e6 * 0.77)
    assert times_ms(groups)["O1"] == pytest.approx(exchange_ms, rel=1e-2)
    assert groups.by_name["O1"].after == ("B1",)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (
            gpt_m_shape,
            {"num_gpus": 2, "data_parallel": 2},
            "data_parallel: 2 is not 1, and arrangement m_shape",
        ),
        (
            gpt_v_shape,
            {"num_gpus": 3, "data_parallel": 2},
            "data_parallel: 2 does not divide the 3 GPUs of a",
        ),
        (gpt_v_shape, {"num_gpus": 3}, "num_gpus: 3 in 1 data-parallel groups are 3 GPUs that share a layer"),
    ],
)
def test_gpus_that_cannot_share_are_named_in_one_line(make: Any, wrong: dict[str, int], message: str) -> None:
    with told(PlacementError, message):
        make(SMALL, A100, **wrong)


WRONG: dict[str, Any] = {
    "num_layers": 0,
    "hidden_size": 2048.0,
    "num_heads": 7,
    "vocab_size": "1M",
    "recompute": "yes",
    "num_devices": 0,
    "model_flops_utilisation": 0.0,
    "memory_efficiency": math.nan,
    "tick_ms": 1000.0,
    "output_layer_utilisation": 1.5,
    "reserve_gib": 80.0,
    "flash_attention": 1,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_or_argument_is_named_in_one_line(name: str) -> None:
    wrong = {name: WRONG[name]}
    is_field = hasattr(SMALL, name)
    with told(PlacementError, f"{name}: {WRONG[name]!r} "):
        gpt_v_shape(replace(SMALL, **wrong), A100) if is_field else gpt_v_shape(SMALL, A100, **wrong)


def test_more_stages_than_layers_are_rejected() -> None:
    with told(PlacementError, "num_layers: 24 is fewer than 32 stages; use at least 32 or fewer num_devices"):
        gpt_m_shape(SMALL, A100, 32)


def test_what_does_not_fit_is_rejected() -> None:
    """The whole table of the main job on one device is what the M-shape is made for (Tessel, Fig. 2)."""
    with told(PlacementError, match=r"device 0 needs 91\.2 GiB .*use more devices"):
        gpt_v_shape(GPT_11B, A100)
    with pytest.raises(PlacementError, match="device 0 needs"):
        gpt_m_shape(GPT_11B, A100, 2)
