"""A GPT's placements: figures computed elsewhere, sums that must hold, and one-line errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
from one_line_errors import raises_line

from placements import Kind, Placement, PlacementError
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from placements.planners.hybrid.placing.gpt import ARRANGEMENTS, PlacedGpt, gpt_model, place_gpt
from placements.planners.hybrid.placing.planned_placement import compute_shares

A100 = GPUS["a100"]
GPT_11B = gpt_model(32, 4096, 32, 1_000_000, 2048)
SMALL = gpt_model(24, 2048, 16, 50_304, 1024)
SCORES = gpt_model(24, 2048, 16, 50_304, 1024, flash_attention=False)


def large(**options: Any) -> Placement:
    return place_gpt(GPT_11B, A100, **({"micro_batch_size": 1} | options)).placement


def placed(arrangement: str = "v_shape", **options: Any) -> PlacedGpt:
    return place_gpt(SMALL, A100, 4, arrangement, **({"micro_batch_size": 4} | options))


def small(arrangement: str = "v_shape", **options: Any) -> Placement:
    return placed(arrangement, **options).placement


def times_ms(placement: Placement) -> dict[str, float]:
    return {block.name: block.time * placement.tick_ms for block in placement.blocks}


@pytest.mark.parametrize(("recompute", "backward_ms", "held"), [(False, 92, 2176), (True, 137, 128)])
def test_gpt_11b_on_four_a100_is_as_computed_independently(
    recompute: bool, backward_ms: float, held: int
) -> None:
    placement = large(recompute=recompute)
    times = times_ms(placement)
    expected = {"E": 0.14, "F0": 45.8, "H": 22, "HB": 42, "B0": backward_ms, "EB": 4.8}
    assert {name: times[name] for name in expected} == pytest.approx(expected, rel=0.15)
    assert placement.by_name["F0"].memory == held


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_memory_sums_to_zero_and_one_micro_batch_fits(arrangement: str) -> None:
    placement = small(arrangement)
    for device in range(placement.num_devices):
        held = [block.memory_on(device) for block in placement.on(device)]
        assert sum(held) == 0
        most = placement.static[device] + sum(memory for memory in held if memory > 0)
        assert most <= placement.memory[device]


def test_the_m_shape_is_a_chain_there_and_back() -> None:
    placement = large()
    chain = placement.per_micro_batch
    names = [block.name for block in chain.topological_order]
    assert names == ["E", "F0", "F1", "F2", "F3", "H", "HB", "B3", "B2", "B1", "B0", "EB"]
    assert [block.after for block in chain.blocks] == [(), *((name,) for name in names[:-1])]
    everywhere = [block.name for block in chain.blocks if len(block.devices) == 4]
    assert everywhere == ["E", "H", "HB", "EB"]
    assert [block.after for block in placement.optimizer_blocks] == [("EB",)] * 4


def test_copies_depend_on_the_clock_less_than_products() -> None:
    gpt = place_gpt(GPT_11B, A100, micro_batch_size=1)
    shares = compute_shares(gpt.pieces, gpt.placement, A100)
    assert set(shares) == set(gpt.placement.by_name)
    assert shares["O1"] == 0.2 and shares["F0"] == pytest.approx(A100.power.compute_share)
    profile = modelled_profile(gpt.placement, A100, shares)
    slowdown = {name: points[0].time_ms / points[-1].time_ms for name, points in profile.points.items()}
    assert slowdown["E"] < slowdown["F0"] == pytest.approx(slowdown["H"], rel=0.02)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_stage_in_a_mode_is_that_of_a_model_computed_again(arrangement: str) -> None:
    def make(**options: Any) -> Placement:
        return place_gpt(SCORES, A100, 4, arrangement, micro_batch_size=4, **options).placement

    placement = make(modes=["full", "selective"])
    assert [decision.names for decision in placement.decisions] == [("keep", "recompute", "selective")] * 4
    kept, again, selective = (placement.as_run((mode,) * 4) for mode in range(3))
    assert kept.by_name == make().by_name
    whole = make(recompute=True, tick_ms=placement.tick_ms)
    for stage in range(4):
        forward, backward = f"F{stage}", f"B{stage}"
        assert again.by_name[forward].time == whole.by_name[forward].time
        assert again.by_name[backward].time == pytest.approx(whole.by_name[backward].time, abs=2)
        assert again.by_name[forward].memory == pytest.approx(whole.by_name[forward].memory, abs=2)
        held = [placement.by_name[forward].memory for placement in (kept, selective, again)]
        times = [placement.by_name[backward].time for placement in (kept, selective, again)]
        assert held == sorted(held, reverse=True) and times == sorted(times)
        # its backward holds one layer more, and all of them are saved
        layers = (held[0] - held[2]) / again.by_name[backward].transient
        assert layers == pytest.approx(round(layers), abs=0.01) and 5 <= round(layers) <= 7


def test_gpus_that_share_a_layer_split_its_work_and_sum_its_outputs() -> None:
    """By hand: a layer of 24 b s h^2 + 4 b s^2 h operations, halved, and two sums of b s h halves.

    A ring over two moves 2 (2 - 1) / 2 of the 16-bit numbers over each link.
    """
    b, s, h, layers = 4, 1024, 2048, 24 // 4
    operations = 24 * b * s * h * h + 4 * b * s * s * h
    product_ms = operations / 2 / (312e9 * 0.5)
    sum_ms = 2 * b * s * h / (300e6 * 0.77)
    gpt = placed("m_shape", num_gpus=2)
    placement, times = gpt.placement, times_ms(gpt.placement)
    assert times["F1"] == pytest.approx(layers * (product_ms + 2 * sum_ms), rel=1e-3)
    assert times["B1"] == pytest.approx(layers * (2 * product_ms + 2 * sum_ms), rel=1e-3)
    assert placement.num_gpus == (2, 2, 2, 2)
    # What each GPU keeps (Korthikanti et al., Eq. 2): s b h (10 + 24 / 2) bytes a layer.
    assert placement.by_name["F1"].memory == layers * 22 * b * s * h // 2**20
    # 16 bytes for each of 12 h^2 + 13 h a layer, halved, of an eighth of the table, and of the positions.
    static = 16 * (layers * (12 * h * h + 13 * h) / 2 + (6288 + s) * h)
    assert placement.static[1] == math.ceil(static / 2**20)
    # Each GPU of a stage receives an equal part.
    assert placement.transfer_time("F0", "F1") == math.ceil(sum_ms / 2 / placement.tick_ms)
    share = A100.power.compute_share
    expected = (share * product_ms + 0.2 * 2 * sum_ms) / (product_ms + 2 * sum_ms)
    assert compute_shares(gpt.pieces, placement, A100)["F3"] == pytest.approx(expected)


def test_groups_share_the_samples_and_exchange_their_gradients() -> None:
    """Two groups of one GPU: each stage costs half a micro-batch on one GPU, and an O sums gradients."""
    groups, half = small(num_gpus=2, data_parallel=2), small(micro_batch_size=2)
    assert (groups.memory, groups.static_memory) == (half.memory, half.static_memory)
    of_batch = [times_ms(placement.per_micro_batch) for placement in (groups, half)]
    assert of_batch[0] == of_batch[1]
    assert {block.data_parallel for block in groups.per_micro_batch.blocks} == {2}
    layers = round(groups.by_name["F1"].memory / (34 * 2 * 1024 * 2048 / 2**20))  # of stage 1
    exchange_ms = 2 * layers * (12 * 2048**2 + 13 * 2048) / (300e6 * 0.77)
    assert times_ms(groups)["O1"] - times_ms(half)["O1"] == pytest.approx(exchange_ms, rel=1e-2)
    assert groups.by_name["O1"].after == ("B1",) and groups.by_name["O1"].kind is Kind.O


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"arrangement": "m_shape", "num_gpus": 2, "data_parallel": 2}, "data_parallel: 2 is not 1, and"),
    ({"num_gpus": 3, "data_parallel": 2}, "data_parallel: 2 does not divide the 3 GPUs of a"),
    ({"num_gpus": 3}, "num_gpus: 3"),
    ({"num_devices": 0}, "num_devices: 0 is not from 1 to num_layers 24; give such a number"),
    ({"tick_ms": 1000.0}, "tick_ms: 1000.0 is not above 0"),
    ({"reserve_gib": 80.0}, "reserve_gib: 80.0 is not from 0"),
    ({"modes": ["some"]}, "modes: some are not some of selective, full; give"),
    ({"modes": ["selective"]}, "modes: selective saves nothing where recompute is true, or where flash"),
    ({"modes": ["full"], "recompute": True}, "modes: full saves nothing where recompute is true"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_argument_is_named_in_one_line(wrong: dict[str, Any], message: str) -> None:
    with raises_line(PlacementError, message):
        place_gpt(SMALL, A100, **({"micro_batch_size": 4, "arrangement": "v_shape"} | wrong))


def test_the_m_shape_is_made_for_what_no_device_holds_alone() -> None:
    """The whole table of the main job on one device is more than its memory (Tessel, Fig. 2)."""
    straight, joint = large(arrangement="v_shape", micro_batch_size=2), large(micro_batch_size=2)
    assert straight.static[0] > straight.memory[0] and joint.static[0] < 0.6 * joint.memory[0]
