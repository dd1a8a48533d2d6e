"""Replicas of a device, and a blocking power that depends on the clock: counted the same way everywhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from energy.accounting import accounted, bottom_w, curves, device_energy_mj, gpus, starts
from energy.cases import CURVE, cases, every_choice, noisy_profile, profile_of, profiles, some_clocks
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements

from placements import Placement, Profile
from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import (
    EnergyError,
    Frontier,
    PeriodicSchedule,
    SwitchingLimits,
    best_order,
    capped_plan,
    compute_frontier,
    periodic_plan,
    repetend_of,
    simulate_at_clocks,
    simulate_switching,
    switched_plan,
)
from schedsearch.energy.baselines import BASELINES, compute_baselines, perseus_frontier
from schedsearch.energy.problem import ClockProblem
from schedsearch.schedule import Schedule


def with_gpus(placement: Placement, *number: int) -> Placement:
    return replace(placement, num_gpus=tuple(number))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_simulation_agrees_with_the_slow_accounting(data: st.DataObject) -> None:
    schedule, profile = data.draw(cases())
    clocks = some_clocks(data, schedule, profile)
    iteration = simulate_at_clocks(schedule, profile, clocks)
    time, energy = accounted(schedule, profile, clocks)
    assert iteration.time_ms == pytest.approx(time)
    assert iteration.energy_mj == pytest.approx(energy, rel=1e-9, abs=1e-9)
    until = time + data.draw(st.integers(0, 50))
    after_w = bottom_w(schedule.placement, profile) if iteration.waiting_w is None else iteration.waiting_w
    next_to = iteration.energy_mj + after_w * (until - time)
    assert next_to == pytest.approx(accounted(schedule, profile, clocks, until)[1], rel=1e-9, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_waiting_for_changes_of_clock_agrees_too(data: st.DataObject) -> None:
    schedule, profile = data.draw(cases())
    clocks, latency = some_clocks(data, schedule, profile), data.draw(st.sampled_from([0.0, 2.5, 20.0]))
    iteration = simulate_switching(schedule, profile, clocks, latency, back_to_back=False)
    time, energy = accounted(schedule, profile, clocks, latency_ms=latency)
    assert (iteration.time_ms, iteration.energy_mj) == (
        pytest.approx(time),
        pytest.approx(energy, rel=1e-9, abs=1e-9),
    )
    if latency == 0:
        assert iteration.waiting_w == pytest.approx(simulate_at_clocks(schedule, profile, clocks).waiting_w)
    # Until all have their first clocks again, devices wait at their last ones.
    again = simulate_switching(schedule, profile, clocks, latency)
    assert again.time_ms >= iteration.time_ms
    _, energy = accounted(schedule, profile, clocks, again.time_ms, latency_ms=latency)
    assert again.energy_mj == pytest.approx(energy, rel=1e-9, abs=1e-9)


def check(schedule: Schedule, profile: Profile, frontier: Frontier) -> None:
    """Every plan's figures equal the slow accounting, and a look-up finds the best plan kept."""
    for plan in (*frontier.plans, frontier.all_maximum):
        time, energy = accounted(schedule, profile, plan.clock_mhz)
        assert plan.time_ms == pytest.approx(time)
        assert plan.energy_mj == pytest.approx(energy, rel=1e-9, abs=1e-9)
        assert plan.energy_mj >= plan.lower_bound_mj * (1 - 1e-7) - 1e-6
        for until in (time * 1.1, time * 3):
            expected = accounted(schedule, profile, plan.clock_mhz, until)[1]
            assert frontier.energy_next_to(plan, until) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    times = [plan.time_ms for plan in frontier.plans]
    assert times == sorted(times)
    for deadline in np.linspace(times[0], 3 * times[-1], 15).tolist():
        kept = [plan for plan in frontier.plans if plan.time_ms <= deadline]
        least = min(accounted(schedule, profile, plan.clock_mhz, deadline)[1] for plan in kept)
        at_deadline = frontier.at(deadline)
        assert at_deadline.time_ms <= deadline * (1 + 1e-9)
        assert accounted(schedule, profile, at_deadline.clock_mhz, deadline)[1] == pytest.approx(
            least, rel=1e-9, abs=1e-6
        )


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_frontier_is_true(data: st.DataObject) -> None:
    schedule, profile = data.draw(cases())
    longer = compute_frontier(schedule, profile, 8).plans[-1].time_ms * 1.5
    check(schedule, profile, compute_frontier(schedule, profile, 8, longer))


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_no_choice_of_clocks_is_below_the_bound(data: st.DataObject) -> None:
    placement = data.draw(placements(max_forward=2, training=False))
    placement = replace(placement, num_gpus=data.draw(gpus(placement.num_devices)))
    profile = replace(data.draw(profiles(placement, max_clocks=3)), blocking_power_w=data.draw(curves()))
    schedule = gpipe(placement, data.draw(st.integers(1, 2)))
    bound, frontier = ClockProblem(schedule, profile).bound, compute_frontier(schedule, profile, 10)
    totals = [accounted(schedule, profile, clocks) for clocks in every_choice(schedule, profile)]
    for time, energy in totals:
        assert energy >= bound.at(time) * (1 - 1e-9) - 1e-6
    assert frontier.shortest.time_ms == pytest.approx(min(time for time, _ in totals))


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_caps_are_kept_by_the_slow_accounting(data: st.DataObject) -> None:
    schedule, profile = data.draw(cases())
    gpus_of, min_w = schedule.placement.gpus, profile.min_blocking_power_w
    above = data.draw(st.sampled_from([0.5, 3.0, 9.0, 20.0]))
    cap_w = data.draw(st.sampled_from([1.0, 0.9])) * (min_w + above) * sum(gpus_of)
    frontier = compute_frontier(schedule, profile, 6)
    if cap_w <= min_w * sum(gpus_of):
        with pytest.raises(EnergyError, match="is not above the .* W of waiting"):
            capped_plan(schedule, profile, frontier, cap_w)
        return
    try:
        capped = capped_plan(schedule, profile, frontier, cap_w)
    except EnergyError as error:
        assert "is kept by no plan that was found" in str(error)
        assert profile.waits_by_clock and above < 11
        return
    clocks, length = capped.plan.clock_mhz, capped.plan.time_ms
    start = starts(schedule, profile, clocks)
    powers = [mj / length for mj in device_energy_mj(schedule, profile, clocks, start, length)]
    total = math.fsum(number * watts for number, watts in zip(gpus_of, powers, strict=True))
    assert capped.plan.power_w == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert capped.plan.energy_mj == pytest.approx(
        accounted(schedule, profile, clocks, length)[1], rel=1e-9, abs=1e-9
    )
    assert total <= cap_w * (1 + 1e-6)
    assert length >= capped.min_ms * (1 - 1e-6)


def test_the_shortest_iteration_under_a_cap_against_every_choice() -> None:
    """No choice of clocks keeps the cap in less than the bound, and ours is not far from the best."""
    placement = with_gpus(v_shape(2), 3, 1)
    profile = replace(noisy_profile(placement, 2, 5), blocking_power_w=((600, 50.0), (1410, 110.0)))
    schedule = one_f_one_b(placement, 2)
    cap_w = 170.0 * 4
    capped = capped_plan(schedule, profile, compute_frontier(schedule, profile, 40), cap_w)
    best = math.inf
    for clocks in every_choice(schedule, profile):
        start = starts(schedule, profile, clocks)
        time = accounted(schedule, profile, clocks)[0]
        for length in np.linspace(time, 2 * time, 200).tolist():
            energies = device_energy_mj(schedule, profile, clocks, start, length)
            if energies[0] * 3 + energies[1] <= cap_w * length:
                best = min(best, length)
                break
    assert capped.min_ms * (1 - 1e-9) <= best
    assert best * (1 - 0.01) <= capped.plan.time_ms <= best * 1.05


def test_the_other_plans_for_a_real_job_are_counted_alike() -> None:
    """Clocks that repeat, few changes, and orders."""
    placement = with_gpus(v_shape(2), 1, 3)
    profile = replace(noisy_profile(placement, 55, 2), blocking_power_w=CURVE)
    schedule = one_f_one_b(placement, 4)
    frontier = compute_frontier(schedule, profile, 8)
    deadline = frontier.all_maximum.time_ms * 1.1
    periodic = PeriodicSchedule(repetend_of(lambda n: one_f_one_b(placement, n), 4), placement, 2)
    repeated = periodic_plan(periodic, profile, 4, deadline)
    unrolled = repeated.unrolled(4)
    switched = switched_plan(schedule, profile, frontier, SwitchingLimits(200.0, 10.0), deadline)
    chosen = best_order([schedule], profile, deadline)
    for plan, latency in ((unrolled, 0.0), (switched.plan, 10.0), (chosen.plan, 0.0)):
        for until in (0.0, deadline):
            energy = accounted(schedule, profile, plan.clock_mhz, until, latency)[1]
            assert frontier.energy_next_to(plan, until) == pytest.approx(energy)
    assert chosen.best.energy_mj == pytest.approx(frontier.energy_next_to(chosen.plan, deadline))
    assert chosen.best.lower_bound_mj <= chosen.best.energy_mj


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_baselines_are_counted_alike(data: st.DataObject) -> None:
    schedule, profile = data.draw(cases())
    problem = ClockProblem(schedule, profile)
    baselines = compute_baselines(list(BASELINES), schedule, profile)
    for plan in (plan for plans in baselines.values() for plan in plans):
        time, energy = accounted(schedule, profile, plan.clock_mhz)
        assert (plan.time_ms, plan.energy_mj) == (
            pytest.approx(time),
            pytest.approx(energy, rel=1e-9, abs=1e-9),
        )
        assert plan.energy_mj >= problem.bound.at(time) * (1 - 1e-7) - 1e-6
    check(schedule, profile, perseus_frontier(schedule, profile, 1.0))


def test_after_the_longest_plan_it_still_matters_how_long_the_wait_is() -> None:
    """F at 200 MHz uses less than at 100 but waits at more: the longer the straggler, the better 100 is."""
    placement = v_shape(1, 1, 1)
    points = [(100, 3.0, 50.0), (200, 1.0, 38.0)]
    profile = replace(profile_of(0.0, F0=points, B0=points), blocking_power_w=((100, 1.0), (200, 3.0)))
    schedule = one_f_one_b(placement, 1)
    frontier = compute_frontier(schedule, profile, 10, 6.0)
    energies = [accounted(schedule, profile, clocks, 4.0)[1] for clocks in every_choice(schedule, profile)]
    assert frontier.energy_next_to(frontier.at(4.0), 4.0) == pytest.approx(min(energies))
