from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from energy.accounting import accounted
from energy.cases import noisy_profile, profile_of

from placements import Profile
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus
from schedsearch.energy import ClockProblem, EnergyError, Frontier, compute_frontier
from schedsearch.energy.limits.robust import (
    NEIGHBORS,
    PlanIterations,
    Samples,
    Spread,
    robust_plan,
)
from schedsearch.energy.problem import Clocks
from schedsearch.schedule import Schedule
from schedsearch.simulation import conditions
from schedsearch.simulation.drawn_times import drawn_times

BY_CLOCK = ((600, 50.0), (1410, 110.0))
"""A blocking power that rises with the clock."""


def case(num_devices: int = 3, num_micro_batches: int = 6) -> tuple[Schedule, Profile, Frontier]:
    schedule = one_f_one_b(v_shape(num_devices), num_micro_batches)
    profile = noisy_profile(schedule.placement, 12, seed=3)
    return schedule, profile, compute_frontier(schedule, profile, 40)


def simulate_spread(
    problem: ClockProblem, clocks: Clocks, spread: Spread, samples: int = 1000, seed: int = 0
) -> PlanIterations:
    return Samples(problem, spread, samples, seed).outcome(clocks)


def random_clocks(schedule: Schedule, profile: Profile, seed: int) -> Clocks:
    generator = random.Random(seed)
    return {
        block.name: tuple(
            generator.choice(profile.points[block.name]).clock_mhz for _ in range(schedule.num_micro_batches)
        )
        for block in schedule.placement.blocks
    }


@pytest.mark.parametrize("by_clock", [False, True])
def test_no_spread_gives_the_plan_itself(by_clock: bool) -> None:
    schedule, profile, frontier = case()
    if by_clock:
        profile = replace(profile, blocking_power_w=BY_CLOCK)
        frontier = compute_frontier(schedule, profile, 40)
    problem = ClockProblem(schedule, profile)
    for plan in frontier.plans[::5]:
        outcome = simulate_spread(problem, plan.clock_mhz, Spread(), samples=100)
        assert outcome.time_ms.tolist() == [plan.time_ms] * 100
        assert outcome.energy_mj == pytest.approx(np.full(100, plan.energy_mj), rel=1e-12)
        until_ms = 1.3 * plan.time_ms
        assert outcome.mean_energy_mj(until_ms) == pytest.approx(frontier.energy_next_to(plan, until_ms))
    for deadline_ms in np.linspace(frontier.shortest.time_ms, 1.1 * frontier.plans[-1].time_ms, 9).tolist():
        for confidence in (0.01, 0.99):
            found = robust_plan(schedule, profile, frontier, deadline_ms, Spread(), confidence, 100)
            assert found.plan is found.free is frontier.at(deadline_ms)
            assert found.outcome.share_within(deadline_ms) == 1


@pytest.mark.parametrize(
    ("shape", "latency_ms", "by_clock"), [("V", 0.0, True), ("V", 7.0, False), ("M", 7.0, True)]
)
def test_each_iteration_is_that_of_the_slow_accounting(shape: str, latency_ms: float, by_clock: bool) -> None:
    """With the factors that `schedsearch.simulation` draws; blocks of an M run on all devices.

    Between neighbors on the last device of a V there is a transfer too, in which a clock can change.
    """
    schedule = one_f_one_b(v_shape(3), 4) if shape == "V" else one_f_one_b_plus(m_shape(3), 4)
    transfer = tuple((a, block.name, 2) for block in schedule.placement.blocks for a in block.after)
    placement = replace(schedule.placement, num_gpus=(2, 1, 3), transfer=transfer, tick_ms=2.5)
    schedule = replace(schedule, placement=placement)  # its orders are still those of a valid schedule
    profile = noisy_profile(schedule.placement, 6, seed=2)
    if by_clock:
        profile = replace(profile, blocking_power_w=BY_CLOCK)
    clocks = random_clocks(schedule, profile, seed=1)
    spread = Spread(0.1, (latency_ms, latency_ms))
    outcome = simulate_spread(ClockProblem(schedule, profile), clocks, spread, 100, seed=5)
    drawn = drawn_times(schedule.placement, 4, conditions.Conditions(jitter=0.1), 100, 5)
    time_of = {block.name: block.time for block in schedule.placement.blocks}
    until_ms = float(np.median(outcome.time_ms))
    energies = []
    for k in range(100):
        factor = {(name, n): float(ticks[k]) / time_of[name] for (name, n), ticks in drawn.items()}
        each = accounted(schedule, profile, clocks, 0.0, latency_ms, factor)
        assert (outcome.time_ms[k], outcome.energy_mj[k]) == pytest.approx(each, rel=1e-9)
        energies.append(accounted(schedule, profile, clocks, until_ms, latency_ms, factor)[1])
    assert outcome.mean_energy_mj(until_ms) == pytest.approx(sum(energies) / 100)
    assert np.ptp(outcome.time_ms) > 0.01 * until_ms


def one_device(num_micro_batches: int) -> tuple[Schedule, Profile]:
    """One device, whose clock of 500 MHz takes twice as long as that of 1000 MHz; 90 W and 30 W."""
    steps = [(500, 20.0, 600.0), (1000, 10.0, 900.0)]
    profile = profile_of(5.0, F0=steps, B0=[(mhz, 2 * ms, 2 * mj) for mhz, ms, mj in steps])
    return one_f_one_b(v_shape(1), num_micro_batches), profile


def test_each_change_takes_a_time_between_the_two_measured_ones() -> None:
    schedule, profile = one_device(2)
    order = schedule.order(0)
    assert order == (("F0", 0), ("B0", 0), ("F0", 1), ("B0", 1))
    clocks = {"F0": (1000, 1000), "B0": (1000, 500)}  # one change
    samples = 5000
    outcome = simulate_spread(ClockProblem(schedule, profile), clocks, Spread(0.0, (2.0, 8.0)), samples)
    latency_ms = outcome.time_ms - (10 + 20 + 10 + 40)
    assert 2 <= latency_ms.min() < 2.1 and 7.9 < latency_ms.max() <= 8
    assert latency_ms.mean() == pytest.approx(5, abs=4.5 * 6 / math.sqrt(12 * samples))
    assert outcome.energy_mj == pytest.approx(900 + 1800 + 900 + 1200 + 5 * latency_ms)
    other = simulate_spread(ClockProblem(schedule, profile), clocks, Spread(0.0, (2.0, 8.0)), samples, seed=1)
    assert (other.time_ms != outcome.time_ms).all()
    three = simulate_spread(
        ClockProblem(schedule, profile), {"F0": (1000, 1000), "B0": (500, 500)}, Spread(0.0, (2.0, 8.0))
    )
    latency_ms = three.time_ms - (10 + 40 + 10 + 40)
    assert latency_ms.std() == pytest.approx(math.sqrt(3 * 36 / 12), rel=0.1)  # independent of each other


@pytest.mark.parametrize(("spread", "by_clock"), [(Spread(0.03), True), (Spread(0.02, (1.0, 4.0)), False)])
def test_the_plan_keeps_its_confidence_and_needs_about_the_least_energy(
    spread: Spread, by_clock: bool
) -> None:
    schedule, profile, frontier = case(4, 8)
    if by_clock:
        profile = replace(profile, blocking_power_w=BY_CLOCK)
        frontier = compute_frontier(schedule, profile, 40)
    problem = ClockProblem(schedule, profile)
    every = [simulate_spread(problem, plan.clock_mhz, spread, 400, 2) for plan in frontier.plans]
    for slack in (1.08, 1.2, 1.35):
        deadline_ms = slack * frontier.shortest.time_ms
        times = []
        for confidence in (0.02, 0.5, 0.9, 0.99):
            found = robust_plan(schedule, profile, frontier, deadline_ms, spread, confidence, 400, 2)
            assert found.outcome.share_within(deadline_ms) >= confidence
            kept = [i for i, each in enumerate(every) if each.share_within(deadline_ms) >= confidence]
            place = frontier.plans.index(found.plan)
            assert (found.outcome.time_ms == every[place].time_ms).all()
            energy_mj = found.outcome.mean_energy_mj(deadline_ms)
            assert energy_mj <= (1 + 1e-4) * min(every[i].mean_energy_mj(deadline_ms) for i in kept)
            slower = [i for i in kept if place < i <= place + NEIGHBORS]
            assert all(every[i].mean_energy_mj(deadline_ms) >= energy_mj for i in slower)
            times.append(found.plan.time_ms)
        assert (np.diff(times) <= 0).all() and times[-1] < times[0]


def test_a_deadline_that_is_too_short_for_the_confidence() -> None:
    schedule, profile, frontier = case()
    arguments = (schedule, profile, frontier)
    shortest_ms = frontier.shortest.time_ms
    with pytest.raises(EnergyError) as caught:
        robust_plan(*arguments, shortest_ms, Spread(0.05), 0.9, 500)
    outcome = simulate_spread(ClockProblem(schedule, profile), frontier.shortest.clock_mhz, Spread(0.05), 500)
    enough_ms = outcome.quantile_ms(0.9)
    assert str(caught.value) == (
        f"deadline_ms: {shortest_ms:.10g} is kept by {outcome.share_within(shortest_ms):.4g} of the "
        f"fastest plan's iterations; for 0.9 give {enough_ms:.10g} ms"
    )
    found = robust_plan(*arguments, float(f"{enough_ms:.10g}"), Spread(0.05), 0.9, 500)
    assert found.outcome.share_within(enough_ms) >= 0.9
    assert outcome.share_within(enough_ms * (1 - 1e-8)) < 0.9
    with pytest.raises(EnergyError, match="is below the shortest iteration of"):
        robust_plan(*arguments, 0.9 * shortest_ms, Spread(0.05), 0.9, 500)


def test_wrong_numbers() -> None:
    with pytest.raises(EnergyError, match="time_spread: -0.1 is not a share; give 0 or more, as 0.02"):
        Spread(-0.1)
    with pytest.raises(EnergyError, match=r"latency_ms: \(3.0, 1.0\) is not two ascending times; give 0 ms"):
        Spread(0.0, (3.0, 1.0))
    schedule, profile, frontier = case()
    with pytest.raises(EnergyError, match="confidence: 0 is not between 0 and 1; give a share, as 0.95"):
        robust_plan(schedule, profile, frontier, 100.0, Spread(), 0.0)
