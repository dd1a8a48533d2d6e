"""The best choice of clocks for small schedules: against all choices, and beside the frontier."""

from __future__ import annotations

import numpy as np
import pytest
from energy.cases import (
    all_plans,
    check_plans,
    exact_plan,
    noisy_profile,
    profile_of,
    profiles,
    relaxed_optimum,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import placements

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import compute_frontier
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.orders.ordering import relaxed
from schedsearch.schedule import Schedule


def check(schedule: Schedule, profile: Profile, deadline: float) -> float:
    """Everything that is true of an exact plan; returns its effective energy."""
    plan = exact_plan(schedule, profile, deadline)
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    check_plans(schedule, profile, [plan])
    assert plan.time_ms <= deadline * (1 + TIME_TOLERANCE)
    effective = plan.energy_mj - waiting_w * plan.time_ms
    scale = abs(effective) + waiting_w * deadline + 1
    assert plan.lower_bound_mj == pytest.approx(plan.energy_mj, abs=1e-6 * scale)
    return effective


def test_is_the_best_of_all_choices() -> None:
    """2 devices, 2 micro-batches, 3 clocks: 6561 choices."""
    schedule = one_f_one_b(v_shape(2), 2)
    profile = noisy_profile(schedule.placement, 3, 1)
    everything = np.array(all_plans(schedule, profile))
    effective = everything[:, 1] - 2 * profile.blocking_power_w * everything[:, 0]
    deadlines = np.linspace(everything[:, 0].min(), everything[:, 0].max(), 5)
    ours = compute_frontier(schedule, profile, 10, deadlines.tolist())
    for deadline in deadlines.tolist():
        best = effective[everything[:, 0] <= deadline * (1 + 1e-9)].min()
        assert check(schedule, profile, deadline) == pytest.approx(best, rel=1e-9)
        # our plan is within its distance to the bound of the best, both over the time to the deadline
        until = 2 * profile.blocking_power_w * deadline
        energy_mj = ours.energy_next_to(ours.at(deadline), deadline)
        bound_mj, _ = relaxed(schedule, profile, deadline)
        assert best + until <= energy_mj * (1 + 1e-9)
        assert bound_mj <= (best + until) * (1 + 1e-6)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_small_placement(data: st.DataObject) -> None:
    """Between the linear program, written apart, and our frontier."""
    placement = data.draw(placements())
    profile = data.draw(profiles(placement, max_clocks=3))
    schedule = gpipe(placement, data.draw(st.integers(1, 2)))
    assume(len(schedule.blocks) <= 12)
    waiting_w = profile.blocking_power_w * placement.num_devices
    ends = compute_frontier(schedule, profile, num_plans=2)
    share = data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    deadline = (1 - share) * ends.shortest.time_ms + share * ends.plans[-1].time_ms
    best = check(schedule, profile, deadline)
    ours = compute_frontier(schedule, profile, 5, deadline).at(deadline)
    scale = abs(best) + 1
    assert ours.energy_mj - waiting_w * ours.time_ms >= best - 1e-6 * scale
    relaxed_mj = relaxed(schedule, profile, deadline)[0] - waiting_w * deadline
    assert relaxed_mj <= best + 1e-6 * scale
    assert relaxed_mj == pytest.approx(
        relaxed_optimum(schedule, profile, deadline * (1 + 1e-9)), rel=1e-6, abs=1e-4
    )


@pytest.mark.parametrize("num_micro_batches", [1, 3])
@pytest.mark.parametrize("late_ms", [2e-5, 1e-6])
def test_no_plan_is_late_by_the_tolerance_of_the_solver(late_ms: float, num_micro_batches: int) -> None:
    """The cheap clock is late by less than a millionth, which many solvers take for punctual."""
    schedule = one_f_one_b(v_shape(1), num_micro_batches)
    points = [(1000, 20.0 + late_ms, 100.0), (1200, 20.0, 200.0), (1400, 19.0, 900.0)]
    plan = exact_plan(schedule, profile_of(F0=points, B0=points), 40.0 * num_micro_batches)
    # one faster instance makes room for all others at the cheap clock; at 20 ms all cost 200 mJ
    instances = 2 * num_micro_batches
    best = min(200.0 * instances, 900.0 + 100.0 * (instances - 1))
    check(schedule, profile_of(F0=points, B0=points), 40.0 * num_micro_batches)
    assert plan.energy_mj == pytest.approx(best)
