"""Profiles of measured layers and links: times, memory and bandwidths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_runs import GB_PER_S, links, memory, times, write_runs
from one_line_errors import raises_line

from placements.forms.texts import write_json
from placements.measured.layer_profile import (
    LayerProfile,
    LayerProfileError,
    NotProfiledError,
    read_layer_profiles,
)
from placements.measured.link_fit import GpuGroup, LinkFit, Links, read_links


@pytest.fixture
def profile(tmp_path: Path) -> LayerProfile:
    return read_layer_profiles(write_runs(tmp_path), "toy")["fast"]


def read(folder: Path, by_size: Any = None, held: Any = None) -> LayerProfile:
    write_json(folder / "profiles/toy/t.json", by_size or {"1": {"1": times(1)}})
    write_json(folder / "memory/toy.json", held or {"1": memory(1)})
    return read_layer_profiles(folder, "toy")["t"]


def with_update(folder: Path, update_ms: float) -> LayerProfile:
    return read(
        folder, {"1": {"1": {layer: [*row[:2], update_ms / 1000] for layer, row in times(1).items()}}}
    )


def test_between_two_sizes_times_lie_on_a_line(profile: LayerProfile) -> None:
    assert profile.cost(1, 1, 1)[:2] == pytest.approx((10, 20))
    assert profile.cost(1, 2, 3)[:2] == pytest.approx((2, 3))
    assert profile.cost(3, 1, 1)[:2] == pytest.approx((30, 60))


def test_memory_grows_with_the_micro_batch(profile: LayerProfile) -> None:
    assert profile.cost(1, 2, 1).parameters == 500_000
    assert profile.cost(4, 1, 2).kept_bytes == 16_000_000
    assert profile.cost(1, 2, 2).output_bytes == 1_000_000, "whole, however many share it"


def test_the_optimizer_step_is_of_the_weights_and_not_summed_over_layers(tmp_path: Path) -> None:
    """The file repeats in each layer the step time of embedding, two blocks and head together."""
    profile = with_update(tmp_path, update_ms=8)
    assert sum(profile.cost(1, 1, layer).step_ms for layer in range(4)) == pytest.approx(8)
    assert profile.cost(1, 1, 1)[2:4] == pytest.approx((2, 2 * 12 / 28))


def test_the_backward_of_the_embedding_is_not_free(tmp_path: Path) -> None:
    """28 bytes of four million weights in 8 s: 14 MB/s, for 4 bytes of a weight and 12 of an output float."""
    profile = with_update(tmp_path, update_ms=8000)
    assert profile.cost(1, 1, 0).backward_ms == pytest.approx((4 * 1_000_000 + 12 * 250_000) / 14_000)
    assert profile.cost(1, 1, 1).backward_ms == pytest.approx(20)


@pytest.mark.parametrize(
    ("by_size", "held", "message"),
    [
        ({"a": {}}, {}, "t.json: 'a' is not a micro-batch size, a whole number of 1 or more; name"),
        ({"1": {"1": {size: [1] * 3 for size in "013"}}}, {}, "t.json: 1.1: lacks the field '2'; add it"),
        ({"1": {"1": {**times(1), "1": [1, 2]}}}, {}, "1.1.1: [1, 2] is not [forward, backward, update]; "),
        ({"1": {"1": {**times(1), "1": [1, "2", 3]}}}, {}, "1.1.1[1]: '2' is not a number from 0 to 1e+06; "),
        ({"1": {"1": {**times(1), "4": [1, 2, 3]}}}, {}, "1.1: has 5 layers, but "),
        ({}, {"1": {**memory(1), "1": {"params_floats": 1}}}, "1.1: lacks the field 'act_mem_floats'; add"),
        ({}, {"1": memory(1), "2": {**memory(2), "4": memory(2)["0"]}}, "2: has 5 layers, but "),
    ],
)
def test_a_wrong_profile_is_a_line(tmp_path: Path, by_size: Any, held: Any, message: str) -> None:
    with raises_line(LayerProfileError, match=re.escape(message)):
        read(tmp_path, by_size, held)


FAST, SLOW = GpuGroup("fast", "east", 2), GpuGroup("slow", "west", 2)


def read_all_links(tmp_path: Path, between: dict[str, Any]) -> Links:
    return read_links(write_runs(tmp_path, between=between) / "bandwidth")


@given(
    *(st.floats(-5, 5) for _ in range(2)),
    st.floats(0.01, 50),
    st.floats(1e6, 1e12),
    st.lists(st.floats(0, 1e12), min_size=2, max_size=5),
)
def test_more_bytes_take_longer_and_are_not_slower_each(
    second: float, first: float, constant: float, most: float, sizes: list[float]
) -> None:
    fit = LinkFit((second, first, constant), most)
    rates = [fit.bytes_per_s(size) for size in sorted(sizes)]
    assert all(0 < rate <= most for rate in rates)
    assert rates == sorted(rates)


def test_a_link_measured_in_the_other_direction_will_do(tmp_path: Path) -> None:
    between = links(GB_PER_S)
    known = read_all_links(tmp_path, between)
    assert known.send_ms(FAST, GpuGroup("slow", "west", 8), 1e9) == pytest.approx(1000), "two share it"
    del between["west"]
    known = read_all_links(tmp_path, between)
    assert known.send_ms(SLOW, FAST, 1e9) == pytest.approx(1000)
    with pytest.raises(NotProfiledError, match="no bandwidth from fast in east to fast in north"):
        known.send_ms(FAST, GpuGroup("fast", "north", 2), 1)


def test_a_sum_goes_round_a_ring(tmp_path: Path) -> None:
    known = read_all_links(tmp_path, links(GB_PER_S))
    assert known.all_reduce_ms([FAST], 1e9) == 0
    assert known.all_reduce_ms([FAST, SLOW], 1e9) == pytest.approx(1000)
    assert known.all_reduce_ms([FAST] * 4, 1e9) == pytest.approx(2 * 3 * 250)


def test_a_gather_brings_what_others_have(tmp_path: Path) -> None:
    known = Links({}, {"fast": {4: LinkFit((0, 0, 1), 1e9)}})
    assert known.all_gather_ms(GpuGroup("fast", "east", 4), 1e9) == pytest.approx(750)
    assert known.all_gather_ms(GpuGroup("other", "east", 1), 1e9) == 0
    with pytest.raises(NotProfiledError, match="no bandwidth between the slow of a node"):
        known.all_gather_ms(SLOW, 1)


@pytest.mark.parametrize(
    ("count", "fit", "message"),
    [
        ("x", [], "e.f: 'x' is not a number of GPUs that send or receive, a whole number"),
        ("1", [[1, 2, 0], 1], "1[0][2]: 0 is not a number above 0; give it in GB/s"),
        ("1", [[1, 2, 3], 0], "1[1]: 0 is not a number of 1 or more; give it in bytes/s"),
        ("1", [[1, 2]], "is not [coefficients, max_bytes_per_s]; give 2 entries"),
    ],
)
def test_wrong_links_are_a_line(tmp_path: Path, count: str, fit: Any, message: str) -> None:
    between = {"e": {"f": {count: {"e": {"f": {"1": fit}}}}}}
    with raises_line(LayerProfileError, match=re.escape(message)):
        read_all_links(tmp_path, between)
