from __future__ import annotations

import math

import numpy as np
import pytest
from energy.accounting import accounted
from energy.cases import measured, noisy_profile

from placements import Profile
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus
from schedsearch.energy import CappedPlan, ClockProblem, EnergyError, capped_plan, compute_frontier
from schedsearch.schedule import Schedule


def check(schedule: Schedule, profile: Profile, capped: CappedPlan) -> None:
    time, energy = accounted(schedule, profile, capped.plan.clock_mhz)
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    assert capped.running_ms == pytest.approx(time)
    assert capped.plan.time_ms >= time * (1 - 1e-9)
    assert capped.plan.energy_mj == pytest.approx(energy + waiting_w * (capped.plan.time_ms - time))
    assert capped.plan.power_w <= capped.power_cap_w * (1 + 1e-9)
    assert capped.min_ms <= capped.plan.time_ms * (1 + 1e-7)


@pytest.mark.parametrize("shape", ["V", "M"])
def test_keeps_the_cap_and_is_monotone(shape: str) -> None:
    schedule = one_f_one_b(v_shape(4), 8) if shape == "V" else one_f_one_b_plus(m_shape(3), 6)
    profile = noisy_profile(schedule.placement, 20, seed=6)
    frontier = compute_frontier(schedule, profile, 25)
    shares = (1.2, 0.8, 0.5)
    plans = [capped_plan(schedule, profile, frontier, share * frontier.shortest.power_w) for share in shares]
    for capped in plans:
        check(schedule, profile, capped)
        assert capped.gap < 0.02
    assert (np.diff([capped.min_ms for capped in plans]) >= -1e-6).all()
    assert (np.diff([capped.plan.time_ms for capped in plans]) >= -1e-9).all()
    assert (plans[0].plan.time_ms, plans[0].gap) == pytest.approx((frontier.shortest.time_ms, 0.0), abs=1e-9)


def test_the_bound_is_where_the_relaxed_frontier_meets_the_cap() -> None:
    """Found by bisection, also beyond the frontier's end, where devices wait."""
    schedule = one_f_one_b(v_shape(3), 6)
    profile = noisy_profile(schedule.placement, 15, seed=8)
    frontier = compute_frontier(schedule, profile, 15)
    bound = ClockProblem(schedule, profile).bound
    for share in (0.95, 0.7, 0.45):
        cap_w = share * frontier.shortest.power_w
        low, high = frontier.shortest.time_ms, 20 * frontier.shortest.time_ms
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (low, middle) if bound.at(middle) <= cap_w * middle else (middle, high)
        assert capped_plan(schedule, profile, frontier, cap_w).min_ms == pytest.approx(high, rel=1e-6)


def test_wrong_caps() -> None:
    schedule = one_f_one_b(v_shape(2), 2)
    profile = noisy_profile(schedule.placement, 3, seed=0)
    frontier = compute_frontier(schedule, profile, 3)
    for value in (-5.0, 120.0, math.inf, math.nan):
        with pytest.raises(EnergyError, match=r"power_cap_w: \S+ W is not above the 120 W of waiting; give"):
            capped_plan(schedule, profile, frontier, value)


def test_is_close_to_its_bound_on_a_measured_profile() -> None:
    profile = measured("gpt3-175b+a100_sxm_bf16", 83.64)
    schedule = one_f_one_b(profile.times_for(v_shape(8)), 12)
    capped = capped_plan(schedule, profile, compute_frontier(schedule, profile, 20), 1900.0)
    check(schedule, profile, capped)
    assert capped.gap < 0.003
