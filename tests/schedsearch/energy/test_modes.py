"""Clocks of schedules whose blocks have modes or streams; modes, order and clocks together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from four_clocks import four_clocks
from modes_and_streams import communicated, offloaded, recomputed, recomputing, swapping
from oracles import valid_schedules

from placements import Placement, PlacementError, Profile
from placements.profiles.mode_costs import with_modes
from schedsearch.energy import (
    EnergyError,
    SwitchingLimits,
    all_maximum_clocks,
    best_order,
    capped_plan,
    compute_frontier,
    instance_graph,
    simulate_at_clocks,
    switched_plan,
)
from schedsearch.energy.baselines import compute_baselines
from schedsearch.energy.orders.any_order import any_order_mj
from schedsearch.energy.orders.ordering import relaxed
from schedsearch.schedule import Instance, Schedule

each_schedule = pytest.mark.parametrize("schedule", [recomputed(), offloaded(), communicated(), swapping()])


def costs_of(placement: Placement) -> Profile:
    """Four clocks for blocks that compute; blocks of other streams cost only time."""
    profile = four_clocks(placement)
    computed = {block.name for block in placement.blocks if block.stream == "compute"}
    points = {name: choices for name, choices in profile.points.items() if name in computed}
    return with_modes(replace(profile, points=points), placement)


@each_schedule
def test_at_the_highest_clocks_blocks_start_when_the_schedule_says(schedule: Schedule) -> None:
    profile = costs_of(schedule.placement)
    done = simulate_at_clocks(schedule, profile, all_maximum_clocks(schedule, profile))
    assert dict(done.start_ms) == pytest.approx(dict(schedule.start_of), abs=1e-9)
    assert done.time_ms == pytest.approx(schedule.makespan)


@each_schedule
def test_every_plan_is_what_its_simulation_says_and_none_is_below_the_bound(schedule: Schedule) -> None:
    profile = costs_of(schedule.placement)
    frontier = compute_frontier(schedule, profile, 30, work_limit=1)
    assert len(frontier.plans) > 3
    for plan in frontier.plans:
        done = simulate_at_clocks(schedule, profile, plan.clock_mhz)
        assert (done.time_ms, done.energy_mj) == pytest.approx((plan.time_ms, plan.energy_mj))
        assert plan.gap > -1e-6
        assert {name: len(clocks) for name, clocks in plan.clock_mhz.items()} == {
            name: len(runs) for name, runs in schedule.runs_of.items()
        }


def test_what_a_mode_leaves_out_has_no_clock_and_no_energy() -> None:
    schedule = offloaded()
    profile = costs_of(schedule.placement)
    clocks = all_maximum_clocks(schedule, profile)
    assert (len(clocks["O0"]), len(clocks["F0"])) == (1, 3)
    done = simulate_at_clocks(schedule, profile, clocks)
    computed = sum(
        profile.fastest(name).energy_mj - 50 * profile.fastest(name).time_ms for name in ("F0", "B0")
    )
    assert done.energy_mj == pytest.approx(3 * computed + 50 * done.time_ms), "copies use what waiting does"


def test_baselines_and_limited_plans_know_modes() -> None:
    schedule = recomputed()
    profile = costs_of(schedule.placement)
    names = ["envpipe", "zeus_global", "zeus_per_stage", "perseus", "all_maximum"]
    plans = compute_baselines(names, schedule, profile, 0.1)
    frontier = compute_frontier(schedule, profile, 50)
    deadline_ms = 1.2 * schedule.makespan
    for plan in itertools.chain(*plans.values()):
        assert plan.energy_mj >= frontier.relaxed.at(plan.time_ms) * (1 - 1e-9)  # type: ignore[union-attr]
    assert plans["envpipe"][0].time_ms == pytest.approx(schedule.makespan)
    limits = SwitchingLimits(dwell_ms=1.0, latency_ms=0.1)
    switched = switched_plan(schedule, profile, frontier, limits, deadline_ms)
    assert switched.plan.time_ms <= deadline_ms and switched.plan.energy_mj >= switched.free.energy_mj * (
        1 - 1e-9
    )
    power_w = 0.95 * frontier.all_maximum.energy_mj / frontier.all_maximum.time_ms
    capped = capped_plan(schedule, profile, frontier, power_w)
    assert capped.plan.power_w <= power_w * (1 + 1e-9)


def test_what_clocks_cannot_know_yet_is_refused_in_one_line() -> None:
    with pytest.raises(EnergyError, match="slowdown: streams of offloading slow each other down"):
        instance_graph(offloaded(1.5))
    schedule = offloaded()
    profile = costs_of(schedule.placement)
    frontier = compute_frontier(schedule, profile, 5)
    with pytest.raises(PlacementError, match="the streams copy_in, copy_out, which a plan of few changes"):
        switched_plan(schedule, profile, frontier, SwitchingLimits(1.0, 1.0), 2 * schedule.makespan)


def all_orders(device: int) -> Iterator[tuple[Instance, ...]]:
    """Every order of two micro-batches on a device of one stage; the first of them begins with F0."""
    first, second = ([(f"{kind}{device}", n) for kind in "FB"] for n in range(2))
    for order in itertools.permutations([*first, *second]):
        is_named = device > 0 or order[0] == ("F0", 0)
        if is_named and all(order.index(f) < order.index(b) for f, b in (first, second)):
            yield order


def every_schedule(placement: Placement) -> Iterator[Schedule]:
    """Every valid schedule of two micro-batches, in all modes and orders."""
    modes = list(itertools.product(range(2), repeat=2))
    orders = list(itertools.product(all_orders(0), all_orders(1)))
    for chosen in itertools.product(modes, modes):
        yield from valid_schedules(placement, 2, orders, chosen)


def test_no_modes_and_no_order_are_below_the_bound() -> None:
    placement = replace(recomputing(), memory=(12, 22))
    profile = costs_of(placement)
    shortest = min(every_schedule(placement), key=lambda schedule: schedule.makespan)
    for deadline_ms in (1.1 * shortest.makespan, 1.3 * shortest.makespan):
        bound_mj = any_order_mj(shortest, profile, deadline_ms)
        for schedule in every_schedule(placement):
            assert bound_mj <= relaxed(schedule, profile, deadline_ms)[0] * (1 + 1e-9)


@each_schedule
def test_no_clocks_of_a_schedule_are_below_the_bound_of_any_order(schedule: Schedule) -> None:
    profile = costs_of(schedule.placement)
    frontier = compute_frontier(schedule, profile, 20)
    for plan in frontier.plans:
        bound_mj = any_order_mj(schedule, profile, plan.time_ms)
        assert 0 < bound_mj <= plan.energy_mj * (1 + 1e-9)
    choice = best_order([schedule], profile, 1.1 * schedule.makespan, max_swaps=10, work_limit=5)
    assert (
        choice.lower_bound_mj
        <= choice.best.energy_mj
        <= frontier.energy_next_to(frontier.at(1.1 * schedule.makespan), 1.1 * schedule.makespan) * (1 + 1e-9)
    )
