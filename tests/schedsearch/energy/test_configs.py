"""Clocks and configurations chosen together, as Kareus does."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from energy.cases import exact_plan

from placements import OperatingPoint, Profile, ProfileError
from placements.profiles.operating_point import Clock, config_of
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import (
    EnergyError,
    Frontier,
    SwitchingLimits,
    all_maximum_clocks,
    compute_frontier,
    frequencies_csv,
    num_clock_changes,
    simulate_at_clocks,
    switched_plan,
)
from schedsearch.energy.baselines import compute_baselines

SCHEDULE = one_f_one_b(v_shape(2), 2)
CLOCKS = (900, 1200, 1410)
SMS = {"12 SMs": (0.85, 1.25), "4 SMs": (1.0, 1.0)}
"""Factors on time and power of a block beside messages, by the SMs that communicate."""


def sm_points(ms: float) -> tuple[OperatingPoint, ...]:
    """Return a block's points, by clock and by the SMs that communicate; `ms` is its time alone."""
    points = []
    for clock in CLOCKS:
        for sms, (time, power) in SMS.items():
            time_ms = ms * (0.4 + 0.6 * 1410 / clock) * time
            watts = (100 + 220 * (clock / 1410) ** 2.5) * power
            points.append(OperatingPoint(clock, time_ms, time_ms * watts, sms))
    return tuple(points)


def profile() -> Profile:
    """Return a profile of blocks whose messages are in the way of their computation."""
    points = {}
    for stage in range(2):
        for name, ms in ((f"F{stage}", 25.0 + 8 * stage), (f"B{stage}", 50.0 + 13 * stage)):
            points[name] = sm_points(ms)
    return Profile("test", points, 60.0)


def test_a_frontier_of_configurations_is_that_of_all_choices() -> None:
    """Every mode of every block is tried; the plans of least energy are found for each deadline."""
    costs = profile()
    frontier = compute_frontier(SCHEDULE, costs, num_plans=40)
    names = list(costs.points)
    modes = {name: costs.points[name] for name in names}
    # the same mode for both micro-batches of a block: fewer choices, so none may beat the frontier
    tried = []
    for choice in itertools.product(*(modes[name] for name in names)):
        clocks = {name: (point.clock,) * 2 for name, point in zip(names, choice, strict=True)}
        done = simulate_at_clocks(SCHEDULE, costs, clocks)
        tried.append((done.time_ms, done.energy_mj))
    time, energy = np.array(tried).T
    for deadline in np.linspace(frontier.shortest.time_ms, frontier.plans[-1].time_ms, 5):
        exact = exact_plan(SCHEDULE, costs, deadline)
        within = time <= deadline * (1 + 1e-9)
        waiting = 2 * 60.0 * np.maximum(deadline - time[within], 0)
        least = (energy[within] + waiting).min() if within.any() else np.inf
        exact_mj = frontier.energy_next_to(exact, deadline)
        assert exact_mj <= least * (1 + 1e-6)
        energy_mj = frontier.energy_next_to(frontier.at(deadline), deadline)
        assert exact_mj * (1 - 1e-6) <= energy_mj <= least * 1.005
    for plan in frontier.plans:
        again = simulate_at_clocks(SCHEDULE, costs, plan.clock_mhz)
        assert (again.time_ms, again.energy_mj) == pytest.approx((plan.time_ms, plan.energy_mj))
        assert plan.gap > -1e-9
    used = [clock for plan in frontier.plans for clocks in plan.clock_mhz.values() for clock in clocks]
    assert len({config_of(clock) for clock in used}) > 1
    assert {int(clock) for clock in used} == set(CLOCKS)


def test_configurations_are_in_the_files(tmp_path: Path) -> None:
    costs = profile()
    frontier = compute_frontier(SCHEDULE, costs, num_plans=5)
    frontier.save(tmp_path / "frontier.json")
    again = Frontier.from_json(tmp_path / "frontier.json")
    assert [plan.clock_mhz for plan in again.plans] == [plan.clock_mhz for plan in frontier.plans]
    rows = frequencies_csv(SCHEDULE, costs, frontier.shortest).splitlines()
    assert rows[0].endswith(",time_ms,config")
    first = frontier.shortest.clock_mhz["F0"][0]
    assert rows[1].endswith(f",{config_of(first)}")
    data = frontier.to_dict()
    data["plans"][0]["config"]["F0"].pop()
    with pytest.raises(EnergyError, match="config.F0: .* is not a list of 2 configurations; give"):
        Frontier.from_dict(data)


def test_a_configuration_is_named_where_a_clock_has_several() -> None:
    costs = profile()
    clocks = all_maximum_clocks(SCHEDULE, costs)
    assert config_of(clocks["F0"][0]) == "12 SMs"
    plain = clocks | {"F0": (1410, 1410)}
    with pytest.raises(EnergyError, match="1410 MHz has the configurations 12 SMs, 4 SMs"):
        simulate_at_clocks(SCHEDULE, costs, plain)
    with pytest.raises(EnergyError, match="1410 MHz of config none is not in the profile; it has 12 SMs"):
        simulate_at_clocks(SCHEDULE, costs, clocks | {"F0": (Clock(1410, "none"),) * 2})
    alone = costs.in_fastest_configs()
    assert (
        simulate_at_clocks(SCHEDULE, alone, plain).time_ms
        == simulate_at_clocks(SCHEDULE, costs, clocks).time_ms
    )


def test_what_chooses_clocks_alone_says_so_or_takes_the_fastest() -> None:
    costs = profile()
    frontier = compute_frontier(SCHEDULE, costs, num_plans=5)
    limits = SwitchingLimits(20.0, 10.0)
    with pytest.raises(ProfileError, match="limits: chooses clocks alone, but F0 at 900 MHz has several"):
        switched_plan(SCHEDULE, costs, frontier, limits, 2 * frontier.shortest.time_ms)
    alone = costs.in_fastest_configs()
    names = ("envpipe", "zeus_global", "all_maximum")
    baselines = compute_baselines(names, SCHEDULE, costs, bound=frontier.relaxed)
    assert {name: [plan.energy_mj for plan in plans] for name, plans in baselines.items()} == {
        name: [plan.energy_mj for plan in plans]
        for name, plans in compute_baselines(names, SCHEDULE, alone).items()
    }
    assert sum(num_clock_changes(SCHEDULE, frontier.shortest.clock_mhz)) >= 0
