"""The device span: each device by its own clock."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import improve
from strategies import placements as random_placements

from placements import Block, Kind, Placement
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import gpipe, one_f_one_b, zb_h1
from schedsearch.core.answer import SearchError, Status
from schedsearch.core.objective import DEVICE_SPAN, MAKESPAN
from schedsearch.device_span import device_spans, first_starts, with_least_device_span
from schedsearch.proof.ends import device_span_bound
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search
from schedsearch.solver.effort import Effort
from schedsearch.validate import validate


def test_spans_by_hand() -> None:
    """Three micro-batches of 1F1B on two devices: the second begins a tick later and ends two earlier."""
    schedule = one_f_one_b(v_shape(2, 1, 2), 3)
    assert device_spans(schedule).tolist() == [12, 9]
    assert first_starts(schedule) == (0, 1)


@settings(max_examples=40, deadline=None)
@given(random_placements(max_devices=3, max_forward=3), st.integers(1, 3))
def test_the_least_span_of_an_order_is_least(placement: Placement, number: int) -> None:
    """Against all first starts up to the makespan, in steps of a tick, of at most three devices."""
    schedule = gpipe(placement, number)
    least = with_least_device_span(schedule)
    validate(least)
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    assert [least.order(device) for device in range(placement.num_devices)] == orders
    best = int(device_spans(least).max())
    assert device_span_bound(placement, number) <= best <= device_spans(schedule).max()
    if schedule.makespan <= 12:
        assert best == min(
            span
            for delays in itertools.product(range(schedule.makespan), repeat=placement.num_devices)
            for span in [int(device_spans(delayed(schedule, delays)).max())]
        )


def delayed(schedule: Schedule, delays: tuple[int, ...]) -> Schedule:
    """The schedule of the same orders in which no device begins before its delay."""
    starts: dict[tuple[str, int], int] = {}
    free = list(delays)
    by_name = schedule.placement.by_name
    for _, n, name in schedule.blocks:
        block = by_name[name]
        inputs = [
            starts[before, n] + by_name[before].time + schedule.placement.transfer_time(before, name)
            for before in block.after
        ]
        start = max(inputs + [free[device] for device in block.devices])
        starts[name, n] = start
        for device in block.devices:
            free[device] = start + block.time
    blocks = tuple((start, n, name) for (name, n), start in starts.items())
    return Schedule(schedule.placement, schedule.num_micro_batches, blocks)


def test_improving_the_device_span() -> None:
    """From ZB-H1 to the least, which a model of all orders and first starts proves."""
    placement = v_shape(3, 2, split_backward=True, input_time=2, weight_time=1).with_memory(4)
    start = with_least_device_span(zb_h1(placement, 5))
    better = improve(start, Effort(limit=20), objective=DEVICE_SPAN)
    assert better.value == int(device_spans(better.best).max()) == better.bound
    assert device_span_bound(placement, 5) <= better.value < device_spans(start).max()


@pytest.mark.parametrize("objectives", [["device_span"], ["period", "device_span"]])
def test_device_span_as_an_objective(objectives: list[str]) -> None:
    placement = v_shape(3, 2, split_backward=True, input_time=2, weight_time=2).with_memory(6)
    result = search(placement, 8, objectives=objectives, work_limit=10)
    assert result.schedule is not None
    assert int(device_spans(validate(result.schedule)).max()) == result.device_span_bound
    assert result.status is Status.OPTIMAL
    assert (result.repetend is None) == (objectives == ["device_span"])


@pytest.mark.parametrize("objectives", [["span"], ["makespan", "device_span"], ["device_span", "period"]])
def test_objectives_that_do_not_go_together(objectives: list[str]) -> None:
    with pytest.raises(SearchError, match=r"search\.objectives: "):
        search(v_shape(), 4, objectives=objectives)


def test_a_device_ends_with_its_own_last_block() -> None:
    """Not with the last one of a device with which it shares that one."""
    schedule = gpipe(m_shape(4), 2)
    by_hand = max(start + schedule.placement.by_name[name].time for start, _, name in schedule.blocks)
    assert MAKESPAN.value(schedule) == schedule.makespan == by_hand
    blocks = (Block("F0", Kind.F, (0, 1), 1), Block("F1", Kind.F, (0,), 3, after=("F0",)))
    assert MAKESPAN.value(gpipe(Placement("shared", 2, blocks), 1)) == 4
