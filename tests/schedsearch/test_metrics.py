import pytest
from modes_and_streams import offloaded, recomputed

from placements.shapes import m_shape, v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.metrics import bubble_rate, latency, memory_over_time, needed_over_time, peak_memory


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
