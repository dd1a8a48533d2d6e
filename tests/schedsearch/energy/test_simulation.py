from __future__ import annotations

import pytest
from energy.cases import profile_of

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import EnergyError, instance_graph, simulate_at_clocks
from schedsearch.schedule import Schedule

PROFILE = profile_of(10.0, F0=[(100, 2, 50), (200, 1, 70)], B0=[(100, 4, 90), (200, 3, 120)])


@pytest.mark.parametrize(
    ("clocks", "message"),
    [
        ({"F0": [100], "B0": [100, 100]}, "clock_mhz.F0: has 1 clocks for 2 micro-batches"),
        ({"B0": [100, 100]}, "clock_mhz.F0: has 0 clocks"),
        ({"F0": [100, 150], "B0": [100, 100]}, r"clock_mhz.F0\[1\]: 150 MHz is not in the profile"),
    ],
)
def test_names_the_wrong_clock(clocks: dict[str, list[int]], message: str) -> None:
    with pytest.raises(EnergyError, match=message):
        simulate_at_clocks(one_f_one_b(v_shape(1), 2), PROFILE, clocks)


def test_refuses_a_schedule_without_a_block() -> None:
    schedule = one_f_one_b(v_shape(2), 2)
    with pytest.raises(EnergyError, match="holds 7 blocks where 2 micro-batches of v_shape need 8"):
        instance_graph(Schedule(schedule.placement, 2, schedule.blocks[1:]))


def test_refuses_a_schedule_that_runs_backward_first() -> None:
    schedule = Schedule(v_shape(1), 1, ((5, 0, "F0"), (0, 0, "B0")))  # type: ignore[arg-type]
    with pytest.raises(EnergyError, match="waits for itself"):
        instance_graph(schedule)
