import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements as random_placements

from placements import Placement
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import UnsuitablePlacementError, gpipe, one_f_one_b
from schedsearch.metrics import bubble_rate, latency, peak_memory
from schedsearch.validate import validate


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("number", [1, 2, 8, 24])
def test_one_f_one_b_has_the_known_makespan_and_memory(devices: int, number: int) -> None:
    schedule = validate(one_f_one_b(v_shape(devices, 1, 2), number))
    assert schedule.makespan == (number + devices - 1) * 3
    assert peak_memory(schedule).tolist() == [min(devices - d, number) for d in range(devices)]
    assert bubble_rate(schedule) == pytest.approx((devices - 1) / (number + devices - 1))


@settings(max_examples=30, deadline=None)
@given(random_placements(), st.integers(1, 5))
def test_gpipe_is_valid_on_any_placement(placement: Placement, number: int) -> None:
    validate(gpipe(placement, number))


def test_gpipe_holds_every_micro_batch() -> None:
    schedule = validate(gpipe(v_shape(4, 1, 2), 8))
    assert (schedule.makespan, peak_memory(schedule).max()) == (33, 8)
    assert latency(schedule)[0] > 12


def test_one_f_one_b_needs_a_v_shape() -> None:
    with pytest.raises(UnsuitablePlacementError, match="needs a V-shape .* which m_shape is not; use"):
        one_f_one_b(m_shape(), 4)
