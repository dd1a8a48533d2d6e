"""A GPT's cost model: figures computed elsewhere, sums that must hold, and one-line errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placements import Kind, Placement, PlacementError
from placements.hardware import GPUS, modelled_profile
from placements.models.gpt import GPT_11B, GptConfig, gpt_compute_shares, gpt_m_shape, gpt_v_shape
from placements.models.transformer import layer_activation_bytes, num_parameters

A100, V100 = GPUS["a100"], GPUS["v100"]
ROOMY_V100 = replace(V100, memory_gib=80.0)
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


def test_times_of_gpt_11b_on_four_v100_are_those_computed_independently() -> None:
    config = replace(GPT_11B, micro_batch_size=1)
    times = times_ms(gpt_m_shape(config, ROOMY_V100, model_flops_utilisation=0.42))
    expected = {"E": 0.26, "F0": 136, "H": 61, "HB": 115, "B0": 272, "EB": 10.5}
    assert {name: times[name] for name in expected} == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "vocabulary", "billions"),
    [
        (32, 4096, 32, 1_000_000, 11),
        (40, 6144, 48, 1_000_000, 24),
        (48, 8192, 64, 1_000_000, 47),
        (80, 8192, 64, 1_500_000, 77),
    ],
)
def test_parameters_are_those_of_tessels_table_3(
    layers: int, hidden: int, heads: int, vocabulary: int, billions: int
) -> None:
    config = GptConfig(layers, hidden, heads, vocabulary, 2048, 1)
    assert round(num_parameters(config) / 1e9) == billions


def test_activations_of_a_stage_are_those_computed_independently() -> None:
    config = replace(GPT_11B, micro_batch_size=1)
    assert gpt_m_shape(config, A100).by_name["F0"].memory == 2176
    assert gpt_m_shape(replace(config, recompute=True), A100).by_name["F0"].memory == 128


def test_stored_scores_are_five_bytes_each() -> None:
    config = replace(GPT_11B, flash_attention=False)
    scores = config.micro_batch_size * config.num_heads * config.sequence_length**2
    assert layer_activation_bytes(config) - layer_activation_bytes(GPT_11B) == 5 * scores


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


def test_only_data_that_changes_devices_takes_a_transfer() -> None:
    pairs = [(source, target) for source, target, _ in gpt_m_shape(GPT_11B, A100).transfer]
    assert pairs == [
        ("F0", "F1"),
        ("F1", "F2"),
        ("F2", "F3"),
        ("F3", "H"),
        ("B3", "B2"),
        ("B2", "B1"),
        ("B1", "B0"),
        ("B0", "EB"),
    ]


def test_memory_of_the_main_job_binds() -> None:
    """Seven micro-batches fit, which the steady state needs some of, and sixteen do not."""
    placement = gpt_m_shape(GPT_11B, A100)
    assert placement.memory is not None
    by_name = placement.by_name
    in_flight = (placement.memory[0] - by_name["H"].memory) // (by_name["E"].memory + by_name["F0"].memory)
    assert 5 <= in_flight <= 9


def test_ticks_are_fine_and_times_do_not_depend_on_them() -> None:
    placement = gpt_m_shape(GPT_11B, A100)
    assert 100 <= min(block.time for block in placement.blocks) < 1000
    coarse = gpt_m_shape(GPT_11B, A100, tick_ms=0.01)
    assert times_ms(coarse) == pytest.approx(times_ms(placement), abs=0.005)


def test_layers_are_split_evenly() -> None:
    placement = gpt_m_shape(replace(SMALL, num_layers=10), A100)
    memory = [placement.by_name[f"F{stage}"].memory for stage in range(4)]
    assert memory[0] == memory[1] > memory[2] == memory[3]


def test_no_other_split_of_a_v_shape_has_a_smaller_largest_stage() -> None:
    """Moving one layer from the largest stage to any other makes that one at least as large."""
    placement = gpt_v_shape(SMALL, A100)
    one = gpt_v_shape(replace(SMALL, num_layers=25), A100)
    layer = sum(block.time for block in one.blocks) - sum(block.time for block in placement.blocks)
    loads = [placement.load(device) for device in range(4)]
    rounding = 4
    assert min(loads) + layer >= max(loads) - rounding
    assert placement.by_name["F3"].time / placement.by_name["F1"].time < 1.2


def test_a_single_device_is_a_placement_too() -> None:
    small = replace(SMALL, num_layers=2)
    assert len(gpt_v_shape(small, A100, 1).blocks) == 2
    assert len(gpt_m_shape(small, A100, 1).blocks) == 6


def test_only_the_embedding_has_a_compute_share_of_its_own() -> None:
    placement = gpt_m_shape(GPT_11B, A100)
    shares = gpt_compute_shares(placement)
    assert set(shares) == {"E", "EB"}
    profile = modelled_profile(placement, A100, shares)
    slowdown = {name: points[0].time_ms / points[-1].time_ms for name, points in profile.points.items()}
    assert slowdown["E"] < slowdown["F0"] == pytest.approx(slowdown["H"])
    assert gpt_compute_shares(gpt_v_shape(SMALL, A100)) == {}


WRONG_FIELDS: list[tuple[str, Any]] = [
    ("num_layers", 0),
    ("hidden_size", -1),
    ("hidden_size", 2048.0),
    ("num_heads", 7),
    ("vocab_size", "1M"),
    ("micro_batch_size", True),
    ("recompute", "yes"),
    ("flash_attention", 1),
]


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS)
def test_a_wrong_field_is_named_in_one_line(field: str, value: Any) -> None:
    with pytest.raises(PlacementError) as error:
        replace(SMALL, **{field: value})
    text = str(error.value)
    assert text.startswith(f"{field}: {value!r} ")
    assert "\n" not in text


WRONG_ARGUMENTS: list[tuple[str, Any]] = [
    ("num_devices", 0),
    ("num_devices", 2.0),
    ("model_flops_utilisation", 0.0),
    ("output_layer_utilisation", 1.5),
    ("memory_efficiency", float("nan")),
    ("link_efficiency", -1.0),
    ("reserve_gib", 80.0),
    ("tick_ms", 0.0),
    ("tick_ms", 1000.0),
]


@pytest.mark.parametrize("make", [gpt_m_shape, gpt_v_shape])
@pytest.mark.parametrize(("argument", "value"), WRONG_ARGUMENTS)
def test_a_wrong_argument_is_named_in_one_line(make: Any, argument: str, value: Any) -> None:
    with pytest.raises(PlacementError) as error:
        make(SMALL, A100, **{argument: value})
    text = str(error.value)
    assert text.startswith(f"{argument}: {value} ")
    assert "\n" not in text


def test_more_stages_than_layers_are_rejected() -> None:
    with pytest.raises(PlacementError, match=r"^num_layers: 24 is fewer than 32 stages; use at least 32$"):
        gpt_m_shape(SMALL, A100, 32)


def test_what_does_not_fit_is_rejected() -> None:
    """The whole table of the main job on one device is what the M-shape is made for (Tessel, Fig. 2)."""
    with pytest.raises(PlacementError, match=r"device 0 needs 91\.2 GiB .*use more devices") as error:
        gpt_v_shape(GPT_11B, A100)
    assert "\n" not in str(error.value)
    with pytest.raises(PlacementError, match="device 0 needs"):
        gpt_m_shape(GPT_11B, A100, 2)
