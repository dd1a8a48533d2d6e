import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modes_and_streams import offloaded, recomputed
from strategies import placements as random_placements

from placements import Placement
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.metrics import (
    bubble_rate,
    latency,
    memory_over_time,
    needed_over_time,
    peak_memory,
    total_slack,
)
from schedsearch.schedule import Schedule
from schedsearch.validate import InvalidScheduleError, validate


def test_figures_by_hand() -> None:
    schedule = one_f_one_b(v_shape(2, 1, 2), 2)
    assert schedule.makespan == 9
    assert bubble_rate(schedule) == pytest.approx(1 / 3)
    assert latency(schedule).tolist() == [6, 8]
    shared = gpipe(m_shape(2), 3)
    busy = sum(map(shared.placement.load, range(2)))
    assert bubble_rate(shared) == pytest.approx(1 - 3 * busy / (2 * shared.makespan))
    starts, held = memory_over_time(schedule, 0)
    assert (starts.tolist(), held.tolist()) == ([0, 1, 4, 7], [1, 2, 1, 0])


def is_allowed(schedule: Schedule, candidate: Schedule) -> bool:
    """Whether a schedule is valid, in another's order and no longer."""
    try:
        validate(candidate)
    except InvalidScheduleError:
        return False
    devices = range(schedule.placement.num_devices)
    return candidate.makespan <= schedule.makespan and all(
        candidate.order(device) == schedule.order(device) for device in devices
    )


@settings(max_examples=30, deadline=None)
@given(random_placements(max_forward=3), st.integers(1, 3))
def test_slack_is_what_blocks_can_be_moved(placement: Placement, number: int) -> None:
    """Moved to the right a tick at a time, the last block first, until nothing moves."""
    schedule = gpipe(placement, number)
    blocks = list(schedule.blocks)
    moved = 0
    for i in reversed(range(len(blocks))):
        later = blocks.copy()
        later[i] = blocks[i]._replace(start=blocks[i].start + 1)
        while is_allowed(schedule, Schedule(placement, number, tuple(later))):
            blocks = later.copy()
            later[i] = blocks[i]._replace(start=blocks[i].start + 1)
            moved += len(placement.by_name[blocks[i].block].devices)
    assert moved == total_slack(schedule)


def test_what_hosts_hold_and_what_blocks_need_meanwhile_is_over_time() -> None:
    """O0 sends 4 units away at 4 while F0 of 1 takes 4, and I0 brings them back at 7."""
    starts, held = memory_over_time(offloaded(), 0, on_host=True)
    assert starts.tolist()[:4] == [0, 4, 4, 7] and held.tolist()[:4] == [0, 4, 4, 0]
    ticks, needed = needed_over_time(recomputed(), 0)
    assert dict(zip(ticks.tolist(), needed.tolist(), strict=True)) == {
        0: 10,
        2: 11,
        4: 11,
        8: 1,
        12: 1,
        14: 10,
        20: 0,
    }
    assert peak_memory(recomputed()).tolist() == [11, 10]
