"""Measured layers and links: what a profile says of times, memory and bandwidths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_runs import GB_PER_S, links, memory, times, write_runs
from told import told

from placements.files import write_json
from placements.measured.layer_profile import (
    LayerProfile,
    LayerProfileError,
    NotProfiledError,
    read_layer_profile,
)
from placements.measured.link_fit import Coefficients, GpuGroup, LinkError, LinkFit, Links, read_links


@pytest.fixture
def profile(tmp_path: Path) -> LayerProfile:
    folder = write_runs(tmp_path)
    return read_layer_profile(folder / "profiles/toy/fast.json", folder / "memory/toy.json", "fast")


def with_update(tmp_path: Path, update_ms: float) -> LayerProfile:
    rows = {layer: [*row[:2], update_ms / 1000] for layer, row in times(1).items()}
    files = (
        write_json(tmp_path / "t.json", {"1": {"1": rows}}),
        write_json(tmp_path / "m.json", {"1": memory(1)}),
    )
    return read_layer_profile(*files, "fast")


def test_between_two_sizes_times_lie_on_a_line(profile: LayerProfile) -> None:
    assert profile.times(1, 1, 1) == pytest.approx((10, 20))
    assert profile.times(1, 2, 3) == pytest.approx((2, 3))
    assert profile.times(3, 1, 1) == pytest.approx((30, 60))
    assert profile.is_measured(4, 1) and not profile.is_measured(3, 1)


@pytest.mark.parametrize(
    ("size", "shared", "layer", "message"),
    [
        (8, 1, 1, "micro-batches of 8 are not within the 1 to 4 measured on fast with tensor parallelism 1"),
        (4, 2, 1, "micro-batches of 4 are not within the 1 to 1 measured"),
        (1, 8, 1, "tensor parallelism 8 has no memory profile, only 1, 2"),
        (1, 1, 4, "layer 4 is not of the model, whose last is 3"),
    ],
)
def test_what_was_not_measured_is_refused(
    profile: LayerProfile, size: int, shared: int, layer: int, message: str
) -> None:
    with pytest.raises(NotProfiledError, match=re.escape(message)):
        profile.times(size, shared, layer)


def test_memory_grows_with_the_micro_batch(profile: LayerProfile) -> None:
    assert profile.parameters(2, [0, 1]) == 1_000_000
    assert profile.activation_bytes(4, 1, 2) == 16_000_000
    assert profile.output_bytes(4, 2, 2) == 4_000_000, "whole, however many share it"


def test_the_optimizer_step_is_of_the_weights_and_not_summed_over_layers(tmp_path: Path) -> None:
    """The file repeats in each layer what the step of embedding, two blocks and head took."""
    profile = with_update(tmp_path, update_ms=8)
    assert profile.step_ms(1, 1, [0, 1, 2, 3]) == pytest.approx(8)
    assert profile.step_ms(1, 1, [1]) == pytest.approx(2)
    assert profile.accumulation_ms(1, 1, [1]) == pytest.approx(2 * 12 / 28)


def test_the_backward_of_the_embedding_is_not_free(tmp_path: Path) -> None:
    """28 bytes of four million weights in 8 s: 14 MB/s, for 4 bytes of a weight and 12 of an output float."""
    profile = with_update(tmp_path, update_ms=8000)
    assert profile.times(1, 1, 0)[1] == pytest.approx((4 * 1_000_000 + 12 * 250_000) / 14_000)
    assert profile.times(1, 1, 1)[1] == pytest.approx(20)


@pytest.mark.parametrize(
    ("by_size", "held", "message"),
    [
        ({"a": {}}, {}, "t.json: 'a' is not a micro-batch size, a whole number of 1 or more; name"),
        ({"1": {"1": {each: [1] * 3 for each in "013"}}}, {}, "t.json: 1.1: lacks the field '2'; add it"),
        ({"1": {"1": {**times(1), "1": [1, 2]}}}, {}, "1.1.1: [1, 2] is not [forward, backward, update]; "),
        ({"1": {"1": {**times(1), "1": [1, "2", 3]}}}, {}, "1.1.1[1]: '2' is not a number from 0 to 1e+06; "),
        ({"1": {"1": {**times(1), "4": [1, 2, 3]}}}, {}, "1.1: has 5 layers, but "),
        ({}, {"1": {**memory(1), "1": {"params_floats": 1}}}, "1.1: lacks the field 'act_mem_floats'; add"),
        ({}, {"1": memory(1), "2": {**memory(2), "4": memory(2)["0"]}}, "has not as many layers for each"),
    ],
)
def test_a_wrong_profile_is_a_line(tmp_path: Path, by_size: Any, held: Any, message: str) -> None:
    paths = (
        write_json(tmp_path / "t.json", by_size or {"1": {"1": times(1)}}),
        write_json(tmp_path / "m.json", held or {"1": memory(1)}),
    )
    with told(LayerProfileError, match=re.escape(message)):
        read_layer_profile(*paths, "fast")


FAST, SLOW = GpuGroup("fast", "east", 2), GpuGroup("slow", "west", 2)


def read_all_links(tmp_path: Path, between: dict[str, Any]) -> Links:
    folder = write_runs(tmp_path, between=between)
    return read_links(folder / "bandwidth/inter_node.json", folder / "bandwidth/intra_node.json")


@given(
    *(st.floats(-5, 5) for _ in range(2)),
    st.floats(0.01, 50),
    st.floats(1e6, 1e12),
    st.lists(st.floats(0, 1e12), min_size=2, max_size=5),
)
def test_more_bytes_take_longer_and_are_not_slower_each(
    second: float, first: float, constant: float, most: float, sizes: list[float]
) -> None:
    fit = LinkFit(Coefficients(second, first, constant), most)
    rates = [fit.bytes_per_s(size) for size in sorted(sizes)]
    assert all(0 < rate <= most for rate in rates)
    assert rates == sorted(rates)


def test_a_link_measured_in_the_other_direction_or_another_zone_will_do(tmp_path: Path) -> None:
    between = links(GB_PER_S)
    known = read_all_links(tmp_path, between)
    assert known.send_ms(FAST, GpuGroup("slow", "west", 8), 1e9) == pytest.approx(1000), "two share it"
    del between["west"]
    known = read_all_links(tmp_path, between)
    assert known.send_ms(SLOW, FAST, 1e9) == pytest.approx(1000)
    assert known.send_ms(GpuGroup("fast", "north", 2), GpuGroup("fast", "north", 2), 1e9) == pytest.approx(
        1000
    )
    with pytest.raises(NotProfiledError, match="no bandwidth from fast in east to fast in north"):
        known.send_ms(FAST, GpuGroup("fast", "north", 2), 1)


def test_a_sum_goes_round_a_ring(tmp_path: Path) -> None:
    known = read_all_links(tmp_path, links(GB_PER_S))
    assert known.all_reduce_ms([FAST], 1e9) == 0
    assert known.all_reduce_ms([FAST, SLOW], 1e9) == pytest.approx(1000)
    assert known.all_reduce_ms([FAST] * 4, 1e9) == pytest.approx(2 * 3 * 250)


def test_a_gather_brings_what_others_have(tmp_path: Path) -> None:
    known = Links({}, {"fast": {4: LinkFit(Coefficients(0, 0, 1), 1e9)}})
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
    data = {"e": {"f": {count: {"e": {"f": {"1": fit}}}}}}
    with told(LinkError, match=re.escape(message)):
        read_links(write_json(tmp_path / "links.json", data), write_json(tmp_path / "in.json", {}))
