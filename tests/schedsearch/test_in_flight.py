"""The least period by micro-batches in flight, against every placement of blocks into rounds."""

from __future__ import annotations

import pytest

from placements.shapes import SHAPES
from schedsearch.baselines.tessel import tessel
from schedsearch.in_flight import period_by_in_flight
from schedsearch.search import Status, search


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


@pytest.mark.parametrize("shape", ["v_shape", "m_shape", "k_shape"])
def test_tessels_own_search_agrees(shape: str) -> None:
    """On three devices, where it tries every assignment in a moment."""
    placement = SHAPES[shape](num_devices=2 if shape == "k_shape" else 3)
    result = tessel(placement, 5, most_in_flight=5, time_limit_s=60)
    ours = period_by_in_flight(placement, 5)
    assert result.sweep_complete
    for sweep in result.sweeps:
        assert sweep.complete
        assert sweep.period == ours[sweep.in_flight - 1].bound


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
