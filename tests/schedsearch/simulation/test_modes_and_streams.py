"""Iterations of schedules with modes and streams: exact without conditions, by hand with some."""

from __future__ import annotations

from dataclasses import replace

import pytest
from modes_and_streams import communicated, offloaded, offloading, recomputed, swapping

from schedsearch.metrics import bubble_rate
from schedsearch.schedule import Schedule
from schedsearch.simulation.conditions import Conditions, ConditionsError, Link
from schedsearch.simulation.drawn_times import drawn_times
from schedsearch.simulation.iterations import simulate
from schedsearch.simulation.messages import steps_of

SCHEDULES = [recomputed(), communicated(), offloaded(), swapping(), offloaded(1.5)]

each_schedule = pytest.mark.parametrize(
    "schedule", SCHEDULES, ids=["modes", "streams", "copies", "swap", "slowdown"]
)


@each_schedule
def test_without_conditions_it_is_the_makespan(schedule: Schedule) -> None:
    simulation = simulate(schedule, iterations=2)
    assert simulation.iteration_ms.tolist() == [schedule.makespan] * 2
    if not schedule.placement.slowdown:  # whose blocks take longer than `bubble_rate` counts
        assert simulation.bubble_rate == pytest.approx(bubble_rate(schedule))


@each_schedule
def test_twice_as_slow_devices_take_twice_as_long(schedule: Schedule) -> None:
    slow = Conditions(slow_devices=dict.fromkeys(range(schedule.placement.num_devices), 2.0))
    assert simulate(schedule, slow, 1).mean_ms == 2 * schedule.makespan


def test_what_allocates_starts_no_sooner_than_what_releases() -> None:
    steps = steps_of(swapping(), Conditions())
    assert [[steps.steps[i].instance for i in group] for group in steps.groups][3] == [("I", 0), ("O", 1)]
    waits = [(step, wait) for step in steps.steps for wait in step.waits if wait.from_start]
    assert (("O", 0), ("F", 1)) in {
        (step.instance, steps.steps[wait.target].instance) for step, wait in waits
    }
    slow = Conditions(measured_ms={"O": [9.0]})
    assert simulate(swapping(), slow, 1).mean_ms == 2 + 9 + 9 + 3 + 2, (
        "the second copy out waits for the first"
    )


def test_a_mode_has_its_own_time_and_its_own_measured_repeats() -> None:
    schedule = recomputed()
    repeats = Conditions(measured_ms={"B0@recompute": [16.0]})
    assert simulate(schedule, repeats, 3).iteration_ms.tolist() == [schedule.makespan + 10] * 3
    plain = Conditions(measured_ms={"B0": [14.0]})
    drawn = drawn_times(schedule.placement, 2, plain, 3, 0, schedule.chosen)
    assert drawn["B0", 0].tolist() == [14.0] * 3 and drawn["B0", 1].tolist() == [6.0] * 3
    with pytest.raises(ConditionsError, match="there is no block 'B0@keep'; the blocks are B0, B0@recompute"):
        simulate(schedule, Conditions(measured_ms={"B0@keep": [1.0]}))


def test_slowdown_is_counted_in_each_iteration() -> None:
    """A forward of 4 ticks beside a copy of 3 takes 1.5 times as long while both run."""
    schedule, free = offloaded(1.5), offloaded()
    jitter = Conditions(jitter=0.1)
    slowed, undisturbed = (simulate(variant, jitter, 20, seed=4).iteration_ms for variant in (schedule, free))
    assert (slowed >= undisturbed - 0.01).all() and slowed.mean() > undisturbed.mean()


def test_what_no_simulation_knows_together_is_refused_in_one_line() -> None:
    placement = replace(offloading(1.5), num_devices=2, memory=(12, 12), host_memory=(40, 40))
    with pytest.raises(ConditionsError, match="links: are given where streams of offloading slow each other"):
        simulate(offloaded(1.5).under(placement), Conditions(links=(Link(((0, 1),)),)), 1)
    slowed = replace(swapping().placement, slowdown=offloading(1.5).slowdown)
    with pytest.raises(ConditionsError, match="blocks of swapping swap memory at one tick"):
        simulate(swapping().under(slowed), iterations=1)
