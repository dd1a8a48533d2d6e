from __future__ import annotations

import pytest
from energy.cases import noisy_profile
from energy.test_periodic import check_groups, maximum_ms, one_f_one_b_of, searched
from energy.test_switching import check

from placements.shapes import m_shape
from schedsearch.energy import (
    EnergyError,
    PeriodicPlan,
    PeriodicSchedule,
    SwitchingLimits,
    periodic_plan,
    switched_periodic_plan,
)

CASES = {"1F1B": lambda: one_f_one_b_of(4), "M": lambda: _searched_m()}
LIMITS = [SwitchingLimits(0.0, 5.0), SwitchingLimits(150.0, 0.0), SwitchingLimits(150.0, 5.0, False)]


def _searched_m() -> PeriodicSchedule:
    repetend = searched(m_shape(3).with_memory(4), 1)
    return PeriodicSchedule(repetend, repetend.placement, 1)


@pytest.fixture(scope="module", params=CASES)
def periodic(request: pytest.FixtureRequest) -> PeriodicSchedule:
    return CASES[request.param]()


def made(periodic: PeriodicSchedule, n: int, slowdown: float) -> PeriodicPlan:
    profile = noisy_profile(periodic.placement, 55, seed=n)  # all clocks, so that blocks have them in common
    return periodic_plan(periodic, profile, n, slowdown * maximum_ms(periodic, profile, n))


@pytest.mark.parametrize(("n", "limits"), list(zip((3, 20, 20), LIMITS, strict=True)))
def test_keeps_limits_and_groups(periodic: PeriodicSchedule, n: int, limits: SwitchingLimits) -> None:
    alone = made(periodic, n, 1.08)
    free = alone.unrolled(n)
    repeated, switched = switched_periodic_plan(alone, limits, free)
    check(periodic.schedule(n), alone.profile, switched, limits, alone.deadline_ms)
    check_groups(repeated, n, dict(switched.plan.clock_mhz))
    assert repeated.unrolled(n).clock_mhz == switched.plan.clock_mhz
    assert switched.gap < 0.15


def test_a_deadline_that_is_too_short() -> None:
    alone = made(one_f_one_b_of(4), 40, 1.0)
    profile = noisy_profile(alone.periodic.placement, 4, seed=1)  # blocks have no clock in common
    alone = periodic_plan(alone.periodic, profile, 40, maximum_ms(alone.periodic, profile, 40))
    with pytest.raises(EnergyError, match="is kept by no plan that repeats and was found under a dwell of 0"):
        switched_periodic_plan(alone, SwitchingLimits(0.0, 50.0), alone.unrolled(40))
