"""The least period by micro-batches in flight, against every placement of blocks into rounds."""

from __future__ import annotations

import pytest

from placements.shapes import SHAPES
from schedsearch.modulo.period_by_in_flight import in_flight_as_memory, period_by_in_flight
from schedsearch.modulo.result import Status
from schedsearch.modulo.search import search
from schedsearch.tessel import tessel


@pytest.mark.parametrize(
    ("shape", "needed"), [("v_shape", 4), ("x_shape", 3), ("m_shape", 6), ("nn_shape", 6), ("k_shape", 3)]
)
def test_more_in_flight_is_never_worse_and_enough_have_no_bubble(shape: str, needed: int) -> None:
    """Tessel's Fig. 11 needs four micro-batches for V and six for M and NN."""
    placement = SHAPES[shape]()
    found = period_by_in_flight(placement, needed)
    periods = []
    for number, each in enumerate(found, 1):
        assert each.repetend is not None
        assert each.repetend.in_flight <= each.in_flight == number
        assert each.repetend.period == each.bound
        periods.append(each.bound)
        each.repetend.unroll(5)
    assert periods == sorted(periods, reverse=True)
    assert found[-1].repetend.bubble_rate == 0 < found[-2].repetend.bubble_rate


@pytest.mark.parametrize("shape", ["v_shape", "k_shape"])
def test_in_flight_as_memory_is_the_same_for_one_and_better_for_several(shape: str) -> None:
    bounds = [each.bound for each in period_by_in_flight(SHAPES[shape](), 3)]
    for number, bound in enumerate(bounds, 1):
        limited = in_flight_as_memory(SHAPES[shape](), number)
        one = search(limited, 1, micro_batches_per_repetend=1, objectives=["period"])
        assert one.status is Status.OPTIMAL
        assert one.repetend.period <= bound
        if shape == "v_shape":
            assert one.repetend.period == bound
    three = search(in_flight_as_memory(SHAPES["v_shape"](), 3), 1, objectives=["period"])
    assert (three.repetend.period, three.repetend.micro_batches) == (16, 3)


def test_in_flight_as_memory_needs_first_and_last_blocks_on_the_same_devices() -> None:
    assert in_flight_as_memory(SHAPES["v_shape"](inference=True), 2) is None


@pytest.mark.parametrize("shape", ["v_shape", "m_shape", "k_shape"])
def test_tessels_own_search_agrees(shape: str) -> None:
    """On three devices, where it tries every assignment in a moment."""
    placement = SHAPES[shape](num_devices=2 if shape == "k_shape" else 3)
    result = tessel(placement, 5, max_in_flight=5, time_limit_s=60)
    ours = period_by_in_flight(placement, 5)
    for theirs in result.by_in_flight:
        assert theirs.repetend is not None
        assert theirs.repetend.period == theirs.bound == ours[theirs.in_flight - 1].bound


def test_with_any_number_in_flight_it_is_the_search_for_the_least_period() -> None:
    placement = SHAPES["m_shape"](num_devices=3).with_memory(3)
    least = search(placement, 1, micro_batches_per_repetend=1, objectives=("period",))
    assert least.status is Status.OPTIMAL
    assert period_by_in_flight(placement, 9)[-1].bound == least.repetend.period


def test_blocks_that_end_last_and_take_less() -> None:
    """The last block of one branch is short: what is found spans no more than it may, and is valid."""
    placement = SHAPES["k_shape"](num_devices=4, join_backward_time=2)
    for each in period_by_in_flight(placement, 4):
        assert each.repetend is not None
        assert each.repetend.in_flight <= each.in_flight
