"""Divisions of layers into stages, against all there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stages_at_random import every_division

from placements.planners.hybrid.placing.gpt import gpt_model
from placements.planners.hybrid.plan import PlanError
from placements.planners.partition import in_proportion, min_imbalance, min_largest, stage_times

TIMES = st.lists(st.integers(1, 20) | st.floats(0.5, 20), min_size=1, max_size=9)


def ratio(times: Sequence[float]) -> float:
    return max(times) / min(times)


@given(TIMES, st.data())
def test_no_division_is_better(times: list[float], data: st.DataObject) -> None:
    num_stages = data.draw(st.integers(1, len(times)))
    every = [stage_times(times, each) for each in every_division(len(times), num_stages)]
    largest, alike = min_largest(times, num_stages), min_imbalance(times, num_stages)
    for found in (largest, alike):
        assert (len(found), sum(found), min(found) >= 1) == (num_stages, len(times), True)
    sums = stage_times(times, largest)
    assert (max(sums), -min(sums)) == min((max(each), -min(each)) for each in every)
    assert ratio(stage_times(times, alike)) == min(ratio(each) for each in every)


def test_the_two_differ() -> None:
    times = [1, 1, 2, 4, 1]
    assert stage_times(times, min_largest(times, 3)) == [4, 4, 1]
    assert stage_times(times, min_imbalance(times, 3)) == [2, 2, 5]


def test_layers_of_a_large_model_and_a_head() -> None:
    """96 layers and a head of 5.3 in 16 stages: a stage of seven, of which the head takes nearly five."""
    times = [1.0] * 95 + [6.3]
    found = min_largest(times, 16)
    assert max(stage_times(times, found)) == 7.0
    assert found[-1] == 1


PERSEUS = {  # layers, hidden size, the ratios of 4 and 8 stages on A100 (Perseus, Table 7)
    "GPT-3 1B": (24, 2048, 1.17, 1.33),
    "GPT-3 3B": (32, 2560, 1.13, 1.25),
    "GPT-3 7B": (32, 4096, 1.11, 1.23),
    "GPT-3 13B": (40, 5120, 1.08, 1.17),
    "GPT-3 175B": (96, 12288, 1.02, 1.03),
}


@pytest.mark.parametrize("model", PERSEUS)
def test_operations_give_nearly_the_imbalance_of_measured_times(model: str) -> None:
    """Of forwards with 2048 tokens and a vocabulary of 50257, the head as a layer of its own."""
    num_layers, hidden_size, *published = PERSEUS[model]
    _, layer, *_, output = gpt_model(num_layers, hidden_size, 1, 50_257, 2048).layers
    head = output.forward_flops(1) / layer.forward_flops(1)
    pieces = [1.0] * num_layers + [head]
    ours = [ratio(stage_times(pieces, min_imbalance(pieces, count))) for count in (4, 8)]
    assert ours == pytest.approx(published, abs=0.02)


@pytest.mark.parametrize("num_stages", [0, 4])
def test_stages_without_layers(num_stages: int) -> None:
    with pytest.raises(PlanError, match=f"num_stages: {num_stages} is not from 1 to the 3 layers"):
        min_largest([1, 1, 1], num_stages)
    with pytest.raises(PlanError, match="num_stages"):
        min_imbalance([1, 1, 1], num_stages)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=7), st.data())
def test_proportions_are_kept_to_a_layer(division: list[int], data: st.DataObject) -> None:
    """The division itself gives itself, and its multiples theirs; a layer is off only where each has one."""
    assert in_proportion(division, sum(division)) == tuple(division)
    assert in_proportion(division, 3 * sum(division)) == tuple(3 * each for each in division)
    num_layers = data.draw(st.integers(len(division), 2 * sum(division)))
    found = in_proportion(division, num_layers)
    assert (len(found), sum(found), min(found) >= 1) == (len(division), num_layers, True)
    exact = [each * num_layers / sum(division) for each in division]
    assert all(ours < share + 1 or ours == 1 for ours, share in zip(found, exact, strict=True))
    if min(exact) >= 1:
        assert all(abs(ours - share) < 1 for ours, share in zip(found, exact, strict=True))


def test_fewer_layers_than_parts_are_refused() -> None:
    with pytest.raises(PlanError, match=r"^num_layers: 2 is fewer than the 3 parts that share them; give at"):
        in_proportion([4, 4, 1], 2)
