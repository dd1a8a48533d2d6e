from __future__ import annotations

import math

import numpy as np
import pytest
from energy.cases import measured, noisy_profile

from placements.shapes import m_shape, v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus
from schedsearch.energy import ClockProblem, EnergyError, PowerCap, capped_plan, compute_frontier


@pytest.mark.parametrize("shape", ["V", "M"])
def test_keeps_the_cap_and_is_monotone(shape: str) -> None:
    schedule = one_f_one_b(v_shape(4), 8) if shape == "V" else one_f_one_b_plus(m_shape(3), 6)
    profile = noisy_profile(schedule.placement, 20, seed=6)
    frontier = compute_frontier(schedule, profile, 25)
    device_w = max(capped_plan(schedule, profile, frontier, PowerCap()).outcome.power_w)
    job_w = frontier.shortest.energy_mj / frontier.shortest.time_ms
    for caps in (
        [PowerCap(job_w=share * job_w) for share in (1.2, 0.8, 0.5)],
        [PowerCap(device_w=share * device_w) for share in (1.2, 0.8, 0.5)],
    ):
        found = [capped_plan(schedule, profile, frontier, cap) for cap in caps]
        for each in found:
            assert each.gap < 0.02
        assert (np.diff([each.min_ms for each in found]) >= -1e-6).all()
        assert (np.diff([each.plan.time_ms for each in found]) >= -1e-9).all()
        assert found[0].plan.time_ms == pytest.approx(frontier.shortest.time_ms)
    free = capped_plan(schedule, profile, frontier, PowerCap())
    assert (free.plan.time_ms, free.gap) == pytest.approx((frontier.shortest.time_ms, 0.0), abs=1e-9)


def test_the_bound_of_a_job_is_where_the_relaxed_frontier_meets_the_cap() -> None:
    """Found by bisection on the minimum cuts' frontier, which shares nothing with the linear program."""
    schedule = one_f_one_b(v_shape(3), 6)
    profile = noisy_profile(schedule.placement, 15, seed=8)
    frontier = compute_frontier(schedule, profile, 15)
    bound = ClockProblem(schedule, profile).bound
    job_w = frontier.shortest.energy_mj / frontier.shortest.time_ms
    for share in (0.95, 0.7):
        low, high = frontier.shortest.time_ms, 20 * frontier.shortest.time_ms
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (low, middle) if bound.at(middle) <= share * job_w * middle else (middle, high)
        found = capped_plan(schedule, profile, frontier, PowerCap(job_w=share * job_w))
        assert found.min_ms == pytest.approx(high, rel=1e-6)


def test_wrong_caps() -> None:
    for value in (0.0, -5.0, math.inf, math.nan):
        with pytest.raises(EnergyError, match=r"job_w: \S+ is not a power above 0; give watts"):
            PowerCap(job_w=value)
    schedule = one_f_one_b(v_shape(2), 2)
    profile = noisy_profile(schedule.placement, 3, seed=0)
    frontier = compute_frontier(schedule, profile, 3)
    with pytest.raises(EnergyError, match="job_w: 120 W is not above the 120 W of waiting"):
        capped_plan(schedule, profile, frontier, PowerCap(job_w=120.0))
    with pytest.raises(EnergyError, match="device_w: 60 W is not above the 60 W of waiting"):
        capped_plan(schedule, profile, frontier, PowerCap(device_w=60.0))


def test_is_close_to_its_bound_on_a_measured_profile() -> None:
    profile = measured("gpt3-175b+a100_sxm_bf16", 83.64)
    schedule = one_f_one_b(profile.times_for(v_shape(8)), 12)
    frontier = compute_frontier(schedule, profile, 20)
    found = capped_plan(schedule, profile, frontier, PowerCap(2000.0, 260.0))
    assert found.gap < 0.003
