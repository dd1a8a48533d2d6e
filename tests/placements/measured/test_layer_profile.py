from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import memory, times, write_runs
from told import told

from placements.files import write_json
from placements.measured.layer_profile import (
    LayerProfile,
    LayerProfileError,
    NotProfiledError,
    read_layer_profile,
)


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


def test_times_are_those_of_the_file_in_ms(profile: LayerProfile) -> None:
    assert profile.times(1, 1, 1) == pytest.approx((10, 20))
    assert profile.times(1, 2, 3) == pytest.approx((2, 3))
    assert profile.num_layers == 4


def test_between_two_sizes_times_lie_on_a_line(profile: LayerProfile) -> None:
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
    ("data", "message"),
    [
        ([], "t.json: [] is not a mapping by micro-batch size; give one"),
        ({"a": {}}, "t.json: 'a' is not a micro-batch size, a whole number of 1 or more; name"),
        ({"1": {"1": {"0": [1, 1, 1]}}}, "t.json: 1.1: has 1 layers; give at least embedding"),
        (
            {"1": {"1": {"0": [1] * 3, "1": [1] * 3, "3": [1] * 3}}},
            "t.json: 1.1: lacks the field '2'; add it",
        ),
        ({"1": {"1": {**times(1), "1": [1, 2]}}}, "1.1.1: [1, 2] is not [forward, backward, update]; give 3"),
        (
            {"1": {"1": {**times(1), "1": [1, "2", 3]}}},
            "1.1.1[1]: '2' is not a number from 0 to 1e+06; give it in s",
        ),
        ({"1": {"1": {**times(1), "4": [1, 2, 3]}}}, "1.1: has 5 layers, but "),
    ],
)
def test_wrong_times_are_a_line(tmp_path: Path, data: Any, message: str) -> None:
    paths = write_json(tmp_path / "t.json", data), write_json(tmp_path / "m.json", {"1": memory(1)})
    with told(LayerProfileError, match=re.escape(message)):
        read_layer_profile(*paths, "fast")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"1": {**memory(1), "1": {"params_floats": 1}}}, "1.1: lacks the field 'act_mem_floats'; add it"),
        ({}, "m.json: is empty; give the memory of each layer"),
        ({"1": {**memory(1), "1": 3}}, "1.1: 3 is not a mapping"),
        ({"1": memory(1), "2": {**memory(2), "4": memory(2)["0"]}}, "has not as many layers for each"),
    ],
)
def test_wrong_memory_is_a_line(tmp_path: Path, data: Any, message: str) -> None:
    paths = write_json(tmp_path / "t.json", {"1": {"1": times(1)}}), write_json(tmp_path / "m.json", data)
    with pytest.raises(LayerProfileError, match=re.escape(message)):
        read_layer_profile(*paths, "fast")


def test_not_a_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"1": {"1": {"0": [NaN, 1, 1], "1": [1, 1, 1], "2": [1, 1, 1], "3": [1, 1, 1]}}}')
    with pytest.raises(LayerProfileError, match=r"1\.1\.0\[0\]: nan is not a number from 0"):
        read_layer_profile(path, write_json(tmp_path / "m.json", {"1": memory(1)}), "fast")
