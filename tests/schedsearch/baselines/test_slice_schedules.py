"""Seq1F1B beside the formulas of its memory and idle time, which are derived from the orders."""

import pytest

from placements.shapes import v_shape
from placements.slices.slices import sliced
from schedsearch.baselines import UnsuitablePlacementError, applicable, one_f_one_b, seq_one_f_one_b
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.validate import validate


@pytest.mark.parametrize(("p", "n", "m"), [(4, 4, 3), (4, 8, 2), (3, 2, 4), (2, 5, 1)])
def test_seq_1f1b_is_idle_as_with_n_times_the_micro_batches_and_holds_slices(p, n, m):
    """With m micro-batches of n slices that take equally long, p devices; a unit is one slice of a stage."""
    cut = sliced(v_shape(p, n, 2 * n, stage_memory=n), n)
    schedule = validate(seq_one_f_one_b(cut, m))
    assert cut.ms(schedule.makespan) == pytest.approx((m * n + p - 1) * 3)
    assert bubble_rate(schedule) / (1 - bubble_rate(schedule)) == pytest.approx((p - 1) / (m * n))
    assert peak_memory(schedule).tolist() == [min(m * n, n + p - 1 - d) for d in range(p)]
    whole = peak_memory(one_f_one_b(v_shape(p, n, 2 * n, stage_memory=n), m)).tolist()
    assert whole == [min(m, p - d) * n for d in range(p)], "1F1B holds whole micro-batches"


def test_whole_sequences_are_refused_and_others_leave_slices_alone():
    with pytest.raises(UnsuitablePlacementError, match="in slices with .* backward, which v_shape is not"):
        seq_one_f_one_b(v_shape(2), 2)
    assert set(applicable(sliced(v_shape(4, 8, 16, stage_memory=8), 8), 4)) == {"gpipe", "seq_one_f_one_b"}
