from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from energy.accounting import Clocks, Latency, change_ms, device_energy_mj, instance_points, starts
from energy.cases import every_choice, noisy_profile, profile_of

from placements import Profile
from placements.hardware import ClockLatency
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus
from schedsearch.energy import (
    EnergyError,
    Frontier,
    SwitchedPlan,
    SwitchingLimits,
    changes_per_iteration,
    compute_frontier,
    num_clock_changes,
    switched_plan,
)
from schedsearch.schedule import Instance, Schedule


def walk(
    schedule: Schedule, profile: Profile, clocks: Clocks, latency_ms: Latency, back_to_back: bool = True
) -> tuple[dict[Instance, float], float, float]:
    """Starts, time and energy when every change of clock takes its time, also that to the next iteration."""
    start, point = starts(schedule, profile, clocks, latency_ms), instance_points(schedule, profile, clocks)
    end = {key: start[key] + point[key].time_ms for key in start}
    time = max(end.values())
    for order in map(schedule.order, range(schedule.placement.num_devices)):
        if back_to_back and order:
            seam = change_ms(latency_ms, point[order[-1]].clock_mhz, point[order[0]].clock_mhz)
            time = max(time, end[order[-1]] + seam - start[order[0]] if seam else 0.0)
    return start, time, sum(device_energy_mj(schedule, profile, clocks, start, time))


def shortest_stretch(
    schedule: Schedule,
    clocks: Clocks,
    start: Mapping[Instance, float],
    time_ms: float,
    back_to_back: bool = True,
) -> float:
    """Least time between two changes of a device, start to start; in three iterations if they follow."""
    least = float("inf")
    for device in range(schedule.placement.num_devices):
        order = [
            (k * time_ms + start[key], clocks[key[0]][key[1]])
            for k in range(3 if back_to_back else 1)
            for key in schedule.order(device)
        ]
        changes = [at for (_, before), (at, after) in pairwise(order) if before != after]
        least = min([least, *(b - a for a, b in pairwise(changes))])
    return least


def check(
    schedule: Schedule, profile: Profile, switched: SwitchedPlan, limits: SwitchingLimits, deadline: float
) -> None:
    plan = switched.plan
    back = limits.back_to_back
    start, time, energy = walk(schedule, profile, plan.clock_mhz, limits.latency_ms, back)
    assert (plan.time_ms, plan.energy_mj) == pytest.approx((time, energy))
    assert switched.changes.simulation.start_ms == pytest.approx(start)
    assert time <= deadline * (1 + 1e-8)
    assert shortest_stretch(schedule, plan.clock_mhz, start, time, back) >= limits.dwell_ms * (1 - 1e-8)
    assert switched.changes.within == num_clock_changes(schedule, plan.clock_mhz)
    assert switched.changes.per_iteration == changes_per_iteration(schedule, plan.clock_mhz)
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    until_deadline = energy + waiting_w * (deadline - time)
    assert switched.lower_bound_mj <= until_deadline * (1 + 1e-9)
    assert switched.lower_bound_mj * (1 + switched.gap) == pytest.approx(until_deadline)


@cache
def without_limits(shape: str, slowdown: float) -> tuple[Schedule, Profile, Frontier]:
    schedule = one_f_one_b(v_shape(4), 8) if shape == "V" else one_f_one_b_plus(m_shape(3), 6)
    clocks = range(700, 1411, 60)
    profile = profile_of(
        60.0,
        **{
            block.name: [
                (c, t := (1 + 0.1 * i) * 14100 / c, t * (100 + 200 * (c / 1410) ** 3)) for c in clocks
            ]
            for i, block in enumerate(schedule.placement.blocks)
        },
    )
    shortest = compute_frontier(schedule, profile, 20).all_maximum.time_ms
    return schedule, profile, compute_frontier(schedule, profile, 20, slowdown * shortest)


LIMITS = [(0.0, 2.0), (150.0, 5.0), (1e6, 20.0)]


@pytest.mark.parametrize(("dwell", "latency"), LIMITS)
@pytest.mark.parametrize(("shape", "slowdown", "back"), [("V", 1.0, True), ("M", 1.1, False)])
def test_keeps_every_limit(dwell: float, latency: float, shape: str, slowdown: float, back: bool) -> None:
    limits = SwitchingLimits(dwell, latency, back)
    schedule, profile, frontier = without_limits(shape, slowdown)
    deadline = slowdown * frontier.all_maximum.time_ms
    switched = switched_plan(schedule, profile, frontier, limits, deadline)
    check(schedule, profile, switched, limits, deadline)
    free = frontier.energy_next_to(frontier.at(deadline), deadline)
    assert frontier.energy_next_to(switched.plan, deadline) >= 0.999 * free
    assert switched.plan.energy_mj <= frontier.all_maximum.energy_mj * (1 + 1e-9)
    if dwell > 1e5:
        most = 0 if back else 2  # a first and a last stretch, which have no other end
        assert max(switched.changes.within) <= most


@pytest.mark.parametrize("power", [60.0, ((600, 50.0), (1000, 62.0), (1410, 90.0))])
def test_no_limits_give_the_free_plan(power: float | tuple[tuple[int, float], ...]) -> None:
    schedule = one_f_one_b(v_shape(3), 6)
    profile = replace(noisy_profile(schedule.placement, 10, seed=2), blocking_power_w=power)
    frontier = compute_frontier(schedule, profile, 20)
    deadline = frontier.all_maximum.time_ms
    switched = switched_plan(schedule, profile, frontier, SwitchingLimits(), deadline)
    assert switched.plan.clock_mhz == frontier.at(deadline).clock_mhz
    assert switched.free is frontier.at(deadline)
    assert switched.plan.energy_mj == pytest.approx(switched.free.energy_mj)


@pytest.mark.parametrize(("limits", "back"), [((0.0, 3.0), True), ((45.0, 0.0), False), ((45.0, 3.0), True)])
def test_against_every_choice_of_clocks(limits: tuple[float, float], back: bool) -> None:
    """Two devices, three micro-batches, two clocks: 4096 choices between the bounds and the plan found."""
    steps = [(900, 20.0, 900.0), (1400, 12.5, 1300.0)]
    both = {"F0": steps, "F1": steps, "B0": [(c, 2 * t, 2 * e) for c, t, e in steps], "B1": steps}
    profile = profile_of(20.0, **both)
    schedule = one_f_one_b(v_shape(2), 3)
    kept = SwitchingLimits(*limits, back)
    allowed = []
    for clocks in every_choice(schedule, profile):
        start, time, energy = walk(schedule, profile, clocks, kept.latency_ms, back)
        if shortest_stretch(schedule, clocks, start, time, back) >= kept.dwell_ms - 1e-9:
            allowed.append((time, energy))
    frontier = compute_frontier(schedule, profile, 30)
    gaps = []
    for slowdown in (1.0, 1.15, 1.3, 1.6):
        deadline = slowdown * frontier.all_maximum.time_ms
        best = min(e - 40 * t for t, e in allowed if t <= deadline * (1 + 1e-9)) + 40 * deadline
        switched = switched_plan(schedule, profile, frontier, kept, deadline)
        energy = switched.plan.energy_mj + 40 * (deadline - switched.plan.time_ms)
        assert switched.lower_bound_mj <= best * (1 + 1e-9)
        gaps.append(energy / best - 1)
    assert min(gaps) >= -1e-9
    assert sum(gaps) / len(gaps) < 0.035


def test_changes_take_what_was_measured_between_their_clocks() -> None:
    """A table by pair: the plan keeps it, and needs less than where each change takes the longest time."""
    schedule, profile, frontier = without_limits("V", 1.1)
    deadline = 1.1 * frontier.all_maximum.time_ms
    clocks = sorted({point.clock_mhz for point in profile.points["F0"]})
    pairs = {(a, b): 8.0 if b < a else 1.0 for a in clocks for b in clocks if a != b}
    by_target = {b: max(ms for (_, to), ms in pairs.items() if to == b) for b in clocks}
    table = ClockLatency(4.0, 0.0, "made up", by_target, pairs)
    switched = switched_plan(schedule, profile, frontier, SwitchingLimits(0.0, 8.0, True, table), deadline)
    longest = switched_plan(schedule, profile, frontier, SwitchingLimits(0.0, 8.0), deadline)
    assert switched.plan.energy_mj < longest.plan.energy_mj
    assert switched.lower_bound_mj <= longest.lower_bound_mj * (1 + 1e-9)
    start, time, energy = walk(schedule, profile, switched.plan.clock_mhz, pairs)
    assert switched.changes.simulation.start_ms == pytest.approx(start)
    assert (switched.plan.time_ms, switched.plan.energy_mj) == pytest.approx((time, energy))
    assert time <= deadline * (1 + 1e-9)


def test_a_dwell_that_nothing_can_keep() -> None:
    profile = profile_of(5.0, F0=[(100, 9.0, 50.0)], B0=[(150, 9.0, 50.0)])
    schedule = one_f_one_b(v_shape(1), 3)
    frontier = compute_frontier(schedule, profile, 5)
    with pytest.raises(EnergyError, match="under a dwell of 30 ms and 0 ms"):
        switched_plan(schedule, profile, frontier, SwitchingLimits(30.0, 0.0), 100.0)


def test_blocks_without_a_common_clock() -> None:
    """Every change takes time, and the bound counts it: it is above the bound of free plans."""
    profile = profile_of(5.0, F0=[(100, 9.0, 50.0), (200, 5.0, 90.0)], B0=[(150, 9.0, 50.0)])
    schedule = one_f_one_b(v_shape(1), 3)
    frontier = compute_frontier(schedule, profile, 5)
    with pytest.raises(EnergyError, match="is kept by no plan that was found under a dwell of 0 ms and 4 ms"):
        switched_plan(schedule, profile, frontier, SwitchingLimits(0.0, 4.0), 3 * 14.0)
    result = switched_plan(schedule, profile, frontier, SwitchingLimits(0.0, 4.0), 3 * 14.0 + 6 * 4.0)
    assert (result.changes.within, result.changes.per_iteration) == ((5,), (6,))
    once = SwitchingLimits(0.0, 4.0, back_to_back=False)
    assert switched_plan(schedule, profile, frontier, once, 3 * 14.0 + 5 * 4.0).changes.within == (5,)
    deadline = 3 * 18.0 + 2.0
    result = switched_plan(schedule, profile, frontier, SwitchingLimits(0.0, 2.0), deadline)
    free = frontier.energy_next_to(frontier.at(deadline), deadline)
    assert free * 1.01 < result.lower_bound_mj <= frontier.energy_next_to(result.plan, deadline) * (1 + 1e-9)


@pytest.mark.parametrize("limits", [(-1.0, 0.0), (0.0, float("nan")), (float("inf"), 0.0)])
def test_wrong_limits(limits: tuple[float, float]) -> None:
    with pytest.raises(EnergyError, match=r"_ms: \S+ is not a time; give 0 ms or more"):
        SwitchingLimits(*limits)
