"""Profiles as measured ones are, where a higher clock may be slower by a little."""

from __future__ import annotations

import pytest
from energy.cases import noisy_profile, profile_of
from energy.test_periodic import one_f_one_b_of
from energy.test_switching import check

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import (
    SwitchingLimits,
    compute_frontier,
    periodic_plan,
    switched_periodic_plan,
    switched_plan,
)
from schedsearch.energy.baselines import BASELINES

NO_CHANGES = SwitchingLimits(dwell_ms=1e6)


def best_single_clock(profile: Profile) -> tuple[int, float]:
    """The clock at which a forward and a backward are fastest together, and their time."""
    forward, backward = ({p.clock_mhz: p.time_ms for p in profile.points[name]} for name in ("F0", "B0"))
    total = {clock: forward[clock] + backward[clock] for clock in forward.keys() & backward.keys()}
    best = min(total, key=total.__getitem__)
    return best, total[best]


def made_up() -> Profile:
    """Forward and backward are each fastest at a clock of their own, and together at 1300 MHz."""
    forward = {1200: 12.0, 1300: 12.4, 1320: 12.6, 1350: 12.6, 1400: 12.6}
    backward = {1200: 15.0, 1300: 13.9, 1320: 13.9, 1350: 13.9, 1400: 13.8}
    points = [[(clock, ms, ms * clock) for clock, ms in each.items()] for each in (forward, backward)]
    return profile_of(10.0, F0=points[0], B0=points[1])


@pytest.mark.parametrize(
    "profile", [made_up(), noisy_profile(v_shape(1), 55, seed=9)], ids=["made up", "noisy"]
)
def test_one_clock_that_is_not_the_highest_may_be_the_fastest(profile: Profile) -> None:
    schedule = one_f_one_b(v_shape(1), 4)
    clock, both_ms = best_single_clock(profile)
    assert clock < max(point.clock_mhz for point in profile.points["F0"])
    deadline = 4 * both_ms
    frontier = compute_frontier(schedule, profile, 10, deadline)
    found = switched_plan(schedule, profile, frontier, NO_CHANGES, deadline)
    check(schedule, profile, found, NO_CHANGES, deadline)
    assert set(found.plan.clock_mhz["F0"] + found.plan.clock_mhz["B0"]) == {clock}
    periodic = one_f_one_b_of(1)
    alone = periodic_plan(periodic, profile, 4, deadline)
    _, both = switched_periodic_plan(alone, NO_CHANGES, alone.unrolled(4))
    assert set(both.plan.clock_mhz["F0"]) == {clock}


def test_envpipe_ends_at_the_fastest_clocks() -> None:
    schedule = one_f_one_b(v_shape(3), 4)
    profile = noisy_profile(schedule.placement, 55, seed=0)
    assert any(
        min(point.time_ms for point in points) < points[-1].time_ms for points in profile.points.values()
    )
    (plan,) = BASELINES["envpipe"](schedule, profile)
    assert plan.time_ms == pytest.approx(compute_frontier(schedule, profile, 1).shortest.time_ms)


def test_zeus_balances_past_a_step_of_noise() -> None:
    """Device 1 has half the work; a little below its highest clock it is faster by a little."""
    steps = [(900, 20.0, 900.0), (1200, 14.0, 1000.0), (1300, 13.0, 1100.0), (1400, 12.5, 1300.0)]
    times = {
        450: (12.6, 400.0),
        900: (10.0, 450.0),
        1200: (7.0, 500.0),
        1300: (6.2, 600.0),
        1400: (6.3, 700.0),
    }
    light = [(clock, *cost) for clock, cost in times.items()]
    profile = profile_of(10.0, F0=steps, B0=steps, F1=light, B1=light)
    plans = BASELINES["zeus_per_stage"](one_f_one_b(v_shape(2), 4), profile)
    assert (plans[0].clock_mhz["F0"][0], plans[0].clock_mhz["F1"][0]) == (1400, 450)
