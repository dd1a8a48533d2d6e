"""TeraPipe, Seq1F1B and SlimPipe beside the formulas of their memory and idle time.

With m micro-batches of n slices that take equally long, p devices and v chunks on each; a unit is one slice
of one chunk. All formulas are derived from the orders; that of TeraPipe is the latency of its paper: all
times, and p - 1 times the longest.
"""

from fractions import Fraction

import pytest

from placements.shapes import loop_shape, v_shape
from placements.slices.slices import sliced
from schedsearch.baselines import (
    SLICED,
    UnsuitablePlacementError,
    applicable,
    gpipe,
    one_f_one_b,
    seq_one_f_one_b,
    seq_one_f_one_b_zb,
    slimpipe,
    terapipe,
)
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.schedule import Schedule
from schedsearch.validate import validate

_CASES = [(4, 4, 3), (4, 8, 2), (3, 2, 4), (2, 5, 1)]
"""Devices, slices and micro-batches."""


def bubble_over_ideal(schedule: Schedule) -> float:
    """Return idle over busy time."""
    return bubble_rate(schedule) / (1 - bubble_rate(schedule))


@pytest.mark.parametrize(("p", "n", "m"), _CASES)
@pytest.mark.parametrize("make", [terapipe, seq_one_f_one_b, slimpipe])
def test_idle_time_is_that_of_n_times_the_micro_batches(make, p, n, m):
    cut = sliced(v_shape(p, n, 2 * n, stage_memory=n), n)
    schedule = validate(make(cut, m))
    assert cut.ms(schedule.makespan) == pytest.approx((m * n + p - 1) * 3)
    assert bubble_over_ideal(schedule) == pytest.approx((p - 1) / (m * n))


@pytest.mark.parametrize(("p", "n", "m"), _CASES)
def test_memory_is_that_of_the_slices_before_the_first_backward(p, n, m):
    cut = sliced(v_shape(p, n, 2 * n, stage_memory=n), n)
    units = m * n
    assert peak_memory(terapipe(cut, m)).tolist() == [units] * p
    assert peak_memory(seq_one_f_one_b(cut, m)).tolist() == [min(units, n + p - 1 - d) for d in range(p)]
    assert peak_memory(slimpipe(cut, m)).tolist() == [min(units, n + 2 * (p - 1 - d)) for d in range(p)]
    whole = peak_memory(one_f_one_b(v_shape(p, n, 2 * n, stage_memory=n), m)).tolist()
    assert whole == [min(m, p - d) * n for d in range(p)], "1F1B holds whole micro-batches"


@pytest.mark.parametrize(("p", "n", "m"), [(4, 4, 3), (4, 8, 2), (2, 4, 2)])
def test_chunks_shorten_the_idle_time_of_slimpipe(p, n, m):
    v = 2
    cut = sliced(loop_shape(p, v, n, 2 * n, stage_memory=n), n)
    schedule = validate(slimpipe(cut, m))
    assert bubble_over_ideal(schedule) == pytest.approx((p - 1) / (m * n * v))
    assert peak_memory(schedule).tolist() == [min(m * n * v, n * v + 2 * (p - 1 - d)) for d in range(p)]


@pytest.mark.parametrize(("p", "n", "m"), _CASES[:3])
def test_split_backward_leaves_a_third_of_the_idle_time(p, n, m):
    cut = sliced(v_shape(p, n, 1, True, n, n, stage_memory=n), n)
    schedule = validate(seq_one_f_one_b_zb(cut, m))
    assert cut.ms(schedule.makespan) == pytest.approx(3 * m * n + p - 1)
    assert peak_memory(schedule).tolist() == [min(m * n, n + p - 1)] * p


def test_terapipe_waits_for_the_longest_slice_on_each_device():
    p, n, m = 4, 4, 2
    cut = sliced(v_shape(p, 100, 200), n, attention_share=0.5)
    times = [Fraction(cut.by_name[f"{letter}0s{i}"].time) for letter in "FB" for i in range(n)]
    longest = max(times[:n]) + max(times[n:])
    assert terapipe(cut, m).makespan == m * sum(times) + (p - 1) * longest


@pytest.mark.parametrize("make", [terapipe, seq_one_f_one_b, seq_one_f_one_b_zb, slimpipe])
def test_whole_sequences_are_refused(make):
    with pytest.raises(UnsuitablePlacementError, match="in slices with .* backward, which v_shape is not"):
        make(v_shape(2), 2)


def test_orders_by_hand_that_know_no_slices_leave_them_alone():
    cut = sliced(v_shape(4, 8, 16, stage_memory=8), 8)
    assert set(applicable(cut, 4)) == {"gpipe", *SLICED} - {"seq_one_f_one_b_zb"}
    assert validate(gpipe(cut, 2)).makespan
