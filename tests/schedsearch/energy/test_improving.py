"""Plans improved some instances at a time: never worse, at any limit of work."""

from __future__ import annotations

import signal

import pytest
from energy.cases import STEPS, check_plans, noisy_profile, profile_of

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import EnergyError, Frontier, compute_frontier
from schedsearch.energy.improving import MAX_INSTANCES
from schedsearch.schedule import Schedule


def check(schedule: Schedule, profile: Profile, before: Frontier, after: Frontier) -> None:
    """Everything that is true of an improved frontier, whatever was proved."""
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    check_plans(schedule, profile, after.plans)
    for plan in before.plans:
        best = after.at(plan.time_ms)
        assert after.energy_next_to(best, plan.time_ms) <= plan.energy_mj * (1 + 1e-12) + 1e-9
        assert best.lower_bound_mj >= plan.lower_bound_mj - waiting_w * (plan.time_ms - best.time_ms) - 1e-6
    assert after.all_maximum == before.all_maximum


@pytest.mark.parametrize(("number", "work_limit"), [(16, 1e-6), (4, 1.0)])
def test_a_little_work_keeps_what_there_is(number: int, work_limit: float) -> None:
    schedule = one_f_one_b(v_shape(4), number)
    profile = noisy_profile(schedule.placement, 10, 1)
    before = compute_frontier(schedule, profile, 8)
    after = compute_frontier(schedule, profile, 8, work_limit=work_limit)
    check(schedule, profile, before, after)
    assert not after.interrupted
    again = compute_frontier(schedule, profile, 8, work_limit=work_limit)
    assert again.plans == after.plans


def test_a_large_schedule_is_improved_at_the_asked_deadline() -> None:
    """Part by part, as it is too large for one program."""
    schedule = one_f_one_b(v_shape(4), 12)
    assert len(schedule.blocks) > 2 * MAX_INSTANCES
    profile = noisy_profile(schedule.placement, 6, seed=0)
    deadline = 1.1 * compute_frontier(schedule, profile, 2).shortest.time_ms
    before = compute_frontier(schedule, profile, 4, deadline)
    after = compute_frontier(schedule, profile, 4, deadline, work_limit=2)
    check(schedule, profile, before, after)
    assert 1 - after.at(deadline).energy_mj / before.at(deadline).energy_mj > 1e-4


def test_ctrl_c_keeps_what_is_found() -> None:
    schedule = one_f_one_b(v_shape(4), 4)
    profile = noisy_profile(schedule.placement, 10, 1)
    before = compute_frontier(schedule, profile, 8)
    seen: list[int] = []

    def interrupt_after_the_first(what: str, done: int, of: int) -> None:
        assert 0 <= done <= of
        if what == "improving":
            seen.append(done)
            if len(seen) == 1:
                signal.raise_signal(signal.SIGINT)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        after = compute_frontier(schedule, profile, 8, work_limit=600, on_progress=interrupt_after_the_first)
    finally:
        signal.signal(signal.SIGINT, old)
    assert after.interrupted
    assert len(seen) == 1
    check(schedule, profile, before, after)


def test_refuses_wrong_work() -> None:
    schedule = one_f_one_b(v_shape(1), 2)
    profile = profile_of(F0=STEPS, B0=STEPS)
    with pytest.raises(EnergyError, match="^work_limit: -1 is below 0; give units of work"):
        compute_frontier(schedule, profile, 2, work_limit=-1)
