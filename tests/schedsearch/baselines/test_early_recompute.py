"""1F1B that computes forwards again while it waits for gradients."""

import pytest

from placements import Placement
from placements.shapes import v_shape, x_shape
from schedsearch.baselines import (
    HAND_MADE,
    UnsuitablePlacementError,
    early_recompute_one_f_one_b,
    one_f_one_b,
    with_early_recomputation,
)
from schedsearch.metrics import peak_memory
from schedsearch.validate import validate


def early(num_devices: int = 4) -> Placement:
    return with_early_recomputation(v_shape(num_devices, 10, 20, stage_memory=8))


@pytest.mark.parametrize(("num_devices", "number"), [(2, 4), (4, 8), (4, 3)])
def test_it_ends_before_recomputing_within_the_backward(num_devices: int, number: int) -> None:
    schedule = validate(early_recompute_one_f_one_b(early(num_devices), number))
    late = one_f_one_b(v_shape(num_devices, 10, 30, stage_memory=8), number)
    assert schedule.makespan < late.makespan
    assert peak_memory(schedule)[0] <= 8 + num_devices - 1, "one is whole, the others keep their inputs"


def test_each_recomputation_runs_right_before_its_backward_and_waits_for_no_gradient() -> None:
    schedule = early_recompute_one_f_one_b(early(), 8)
    starts = {(each.block, each.micro_batch): each.start for each in schedule.blocks}
    for device in range(3):
        order = schedule.order(device)
        for n in range(8):
            assert order[order.index((f"B{device}", n)) - 1] == (f"R{device}", n)
    assert starts["R0", 0] < starts["B1", 0], "while the gradient is on its way"


def test_what_it_is_not_for_is_refused() -> None:
    with pytest.raises(UnsuitablePlacementError, match="make one with with_early_recomputation"):
        HAND_MADE["early_recompute_one_f_one_b"](v_shape(2), 2)
    with pytest.raises(UnsuitablePlacementError, match="needs a V-shape"):
        with_early_recomputation(x_shape(2))
    with pytest.raises(UnsuitablePlacementError, match="kept: 9 is not between 0 and the 8 units"):
        with_early_recomputation(v_shape(2, stage_memory=8), kept=9)
