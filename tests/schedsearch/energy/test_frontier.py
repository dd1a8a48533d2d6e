from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from energy.accounting import accounted
from energy.cases import STEPS, check_plans, measured, noisy_profile, profile_of, profiles, relaxed_optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line_errors import raises_line
from strategies import placements

from placements import Kind, OperatingPoint, Profile
from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import (
    EnergyError,
    Frontier,
    PeriodicSchedule,
    SwitchingLimits,
    compute_frontier,
    periodic_plan,
    repetend_of,
    switched_plan,
)
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxation import breakpoints
from schedsearch.schedule import Schedule


def check(schedule: Schedule, profile: Profile, frontier: Frontier) -> None:
    """Everything that is true of every frontier."""
    check_plans(schedule, profile, frontier.plans)
    check_plans(schedule, profile, [frontier.all_maximum])
    assert frontier.shortest.time_ms <= frontier.all_maximum.time_ms
    at_maximum = frontier.at(frontier.all_maximum.time_ms)
    assert at_maximum.energy_mj <= frontier.all_maximum.energy_mj * (1 + 1e-9)
    fastest = {name: min(points, key=lambda p: p.time_ms) for name, points in profile.points.items()}
    best = {name: min(points, key=lambda p: cost(profile, p)) for name, points in profile.points.items()}
    for plan, ideal in ((frontier.shortest, fastest), (frontier.plans[-1], best)):
        clocks = {name: [p.clock_mhz] * schedule.num_micro_batches for name, p in ideal.items()}
        assert plan.time_ms <= accounted(schedule, profile, clocks)[0] * (1 + 1e-9)


def cost(profile: Profile, point: OperatingPoint) -> tuple[float, float]:
    return point.energy_mj - profile.blocking_power_w * point.time_ms, point.time_ms


@settings(max_examples=8, deadline=None)
@given(st.data(), st.sampled_from([1e-3, 0.1, 7.0, 1e4]), st.sampled_from([1e-4, 3.0, 1e5]))
def test_units_do_not_matter(data: st.DataObject, times: float, energies: float) -> None:
    placement = replace(data.draw(placements(training=True)), transfer=())
    profile = data.draw(profiles(placement))
    scaled = Profile(
        profile.device,
        {
            name: tuple(
                OperatingPoint(p.clock_mhz, p.time_ms * times, p.energy_mj * energies) for p in points
            )
            for name, points in profile.points.items()
        },
        profile.blocking_power_w * energies / times,
    )
    schedule = gpipe(placement, 2)
    one, other = (compute_frontier(schedule, p, num_plans=1) for p in (profile, scaled))
    assert other.shortest.time_ms == pytest.approx(one.shortest.time_ms * times)
    assert other.all_maximum.energy_mj == pytest.approx(
        one.all_maximum.energy_mj * energies, abs=1e-9 * energies
    )
    check(schedule, scaled, other)
    bounds = one.all_maximum.lower_bound_mj * energies, other.all_maximum.lower_bound_mj
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6, abs=1e-6 * energies)


def test_wide_steps_between_clocks_are_shared_out_in_time() -> None:
    """Two clocks, the last stage a little slower: two plans joined in time lose less than one rounded."""
    schedule = one_f_one_b(v_shape(4), 32)
    points = {}
    for block in schedule.placement.blocks:
        time = (100.0 if block.kind is Kind.F else 250.0) * (1.04 if block.name.endswith("3") else 1.0)
        points[block.name] = [(900, 1.1 * time, 210 * time), (1400, time, 300 * time)]
    profile = profile_of(70.0, **points)
    frontier = compute_frontier(schedule, profile, num_plans=60)
    check(schedule, profile, frontier)
    assert np.mean([plan.gap for plan in frontier.plans]) < 0.011  # without joining: 0.0123


def test_several_deadlines_get_a_plan_each(small: tuple[Schedule, Profile, Frontier]) -> None:
    schedule, profile, frontier = small
    first, last = frontier.shortest.time_ms, frontier.plans[-1].time_ms
    deadlines = [(1 - share) * first + share * last for share in (0.21, 0.52, 0.83)]
    together = compute_frontier(schedule, profile, num_plans=2, deadline_ms=deadlines)
    for deadline in deadlines:
        alone = compute_frontier(schedule, profile, num_plans=2, deadline_ms=deadline)
        assert 0.9 * deadline < together.at(deadline).time_ms <= deadline * (1 + 1e-9)
        assert together.energy_next_to(together.at(deadline), last) <= alone.energy_next_to(
            alone.at(deadline), last
        ) * (1 + 1e-3)
    check(schedule, profile, together)
    with pytest.raises(EnergyError, match="^deadline_ms: 1 cannot be kept"):
        compute_frontier(schedule, profile, deadline_ms=[deadlines[0], 1.0])


@pytest.fixture(scope="module")
def small() -> tuple[Schedule, Profile, Frontier]:
    schedule = one_f_one_b(v_shape(3), 4)
    profile = profile_of(20.0, **{block.name: STEPS for block in schedule.placement.blocks})
    return schedule, profile, compute_frontier(schedule, profile, num_plans=40)


@pytest.mark.parametrize("deadline", [1.0, -1.0, math.nan])
def test_refuses_an_impossible_deadline(deadline: float, small: tuple[Schedule, Profile, Frontier]) -> None:
    schedule, profile, frontier = small
    with raises_line(EnergyError, match=r"^deadline_ms: \S+ is below the shortest iteration of .* ms; give"):
        frontier.at(deadline)
    with pytest.raises(EnergyError, match=r"^deadline_ms: \S+ cannot be kept"):
        compute_frontier(schedule, profile, deadline_ms=deadline)


def test_refuses_no_plans(small: tuple[Schedule, Profile, Frontier]) -> None:
    with pytest.raises(EnergyError, match="num_plans: 0 is not at least 1"):
        compute_frontier(*small[:2], num_plans=0)


def test_saving_is_taken_over_equal_time(small: tuple[Schedule, Profile, Frontier]) -> None:
    frontier = small[2]
    slowest, maximum = frontier.plans[-1], frontier.all_maximum
    waiting = 3 * 20.0 * (slowest.time_ms - maximum.time_ms)
    assert frontier.saving(slowest) == pytest.approx(1 - slowest.energy_mj / (maximum.energy_mj + waiting))
    assert frontier.saving(maximum) == 0
    assert frontier.saving(frontier.shortest) > 0
    straggler = 2 * slowest.time_ms
    savings = [frontier.saving(plan, straggler) for plan in frontier.plans]
    assert savings == sorted(savings)
    assert frontier.min_energy.energy_mj == min(plan.energy_mj for plan in frontier.plans)


def test_file_form(small: tuple[Schedule, Profile, Frontier], tmp_path: Path) -> None:
    frontier = small[2]
    data = frontier.to_dict()
    assert list(data) == [
        "schema_version",
        "blocking_power_w",
        "num_devices",
        "all_maximum",
        "plans",
        "straggler_plans",
    ]
    for earlier, later in pairwise(data["plans"]):
        assert (earlier["time_ms"], -earlier["energy_mj"]) < (later["time_ms"], -later["energy_mj"])
    assert data["plans"][-1]["energy_mj"] == frontier.min_energy.energy_mj
    assert len(data["plans"]) + len(data["straggler_plans"]) == len(frontier.plans)
    assert set(data["all_maximum"]) == {"time_ms", "energy_mj"}
    assert set(data["plans"][0]) == {"time_ms", "energy_mj", "lower_bound_mj", "clock_mhz"}
    path = tmp_path / "frontier.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    read = Frontier.from_json(path)
    assert read.plans == frontier.plans
    assert read.to_dict() == data
    assert read.saving(read.plans[-1]) == frontier.saving(frontier.plans[-1])
    with pytest.raises(EnergyError, match="num_devices: is not in the frontier's file"):
        Frontier.from_dict(data | {"num_devices": None}).saving(read.plans[-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version: 2 is not known"),
        ({"plans": []}, r"plans: \[\] is not a list of at least one plan"),
        ({"plans": [{"clock_mhz": {"F0": [1]}, "time_ms": 1}]}, r"plans\[0\]: lacks the field 'energy_mj'"),
        (
            {"plans": [{"clock_mhz": {"F0": [0.5]}}]},
            r"plans\[0\].clock_mhz.F0\[0\]: 0.5 is not a whole number",
        ),
        ({"all_maximum": None}, "all_maximum: None is not a mapping"),
        ({"num_gpus": 1.5}, "num_gpus: 1.5 is not a whole number"),
        ({"blocking_power_by_clock": 3}, "blocking_power_by_clock: 3 is not a mapping"),
        ({"blocking_power_by_clock": {"x": 3.0}}, "blocking_power_by_clock: 'x' is not a whole number"),
        ({"blocking_power_by_clock": {"7": "y"}}, "blocking_power_by_clock.7: 'y' is not a number"),
    ],
)
def test_wrong_files(
    change: dict[str, object], message: str, small: tuple[Schedule, Profile, Frontier], tmp_path: Path
) -> None:
    path = tmp_path / "frontier.json"
    path.write_text(json.dumps({**small[2].to_dict(), **change}), encoding="utf-8")
    with raises_line(EnergyError, f"{path}: ", match=message):
        Frontier.from_json(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(EnergyError, match="cannot be read"):
        Frontier.from_json(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"plans": [', encoding="utf-8")
    with pytest.raises(EnergyError, match="half.json: is not JSON"):
        Frontier.from_json(tmp_path / "half.json")


def test_saves_more_than_published() -> None:
    """Perseus (Sec. 6.3, Table 6) saves 15.2 % on A100, 12 micro-batches, at T_min."""
    profile = measured("gpt3-175b+a100_sxm_bf16", 83.64)
    schedule = one_f_one_b(profile.times_for(v_shape(8)), 12)
    frontier = compute_frontier(schedule, profile)
    assert frontier.shortest.time_ms <= frontier.all_maximum.time_ms
    assert frontier.saving(frontier.shortest) >= 0.159
    assert np.mean([plan.gap for plan in frontier.plans]) <= 0.00055


def test_devices_with_clocks_of_their_own() -> None:
    """Two kinds of GPU in one pipeline, of which no clock is the other's: all plans keep to their own."""
    schedule = one_f_one_b(v_shape(2), 4)
    slow, fast = [(800, 30.0, 2400.0), (1000, 24.0, 2300.0), (1200, 20.0, 2600.0)], range(1300, 1990, 60)
    quick = [(mhz, 12.0 * 1980 / mhz, 12.0 * (60 + 300 * (mhz / 1980) ** 2)) for mhz in fast]
    steps = {f"{letter}{i}": slow if i % 2 else quick for letter in "FB" for i in range(2)}
    profile = profile_of(40.0, **steps)
    mhz_of = {name: {mhz for mhz, _, _ in points} for name, points in steps.items()}
    frontier = compute_frontier(schedule, profile, 10, work_limit=0.5)
    check(schedule, profile, frontier)
    deadline = 1.1 * frontier.all_maximum.time_ms
    switched = switched_plan(schedule, profile, frontier, SwitchingLimits(0.0, 3.0), deadline)
    repeated = PeriodicSchedule(repetend_of(lambda n: one_f_one_b(v_shape(2), n), 4), v_shape(2), 1)
    periodic = periodic_plan(repeated, profile, 4, deadline)
    for plan in (*frontier.plans, switched.plan, periodic.unrolled(4)):
        assert all(set(clocks) <= mhz_of[name] for name, clocks in plan.clock_mhz.items())
    assert max(switched.plan.time_ms, periodic.unrolled(4).time_ms) <= deadline * (1 + 1e-9)
    assert frontier.saving(frontier.at(deadline), deadline) > 0.05


def test_reading_a_frontier_loads_no_solver(tmp_path: Path) -> None:
    schedule = one_f_one_b(v_shape(2), 2)
    profile = noisy_profile(schedule.placement, 3, seed=1)
    (tmp_path / "frontier.json").write_text(json.dumps(compute_frontier(schedule, profile, 3).to_dict()))
    code = (
        "import sys; from schedsearch.energy import Frontier; Frontier.from_json(sys.argv[1]); "
        "print(*({'scipy', 'ortools', 'numba', 'z3', 'torch'} & set(sys.modules)))"
    )
    line = [sys.executable, "-c", code, str(tmp_path / "frontier.json")]
    assert subprocess.run(line, check=True, capture_output=True, text=True).stdout == "\n"


def test_a_power_too_steep_for_one_push_is_pushed_in_parts() -> None:
    """One nearly vertical step beside flat ones needs more flow than 32 bits hold."""
    flat = [(1, 100.0, 0.0), (2, 50.0, 1e-3), (3, 49.0, 2e-3)]
    profile = profile_of(F0=flat, B0=flat, F1=flat, B1=[(1, 10.0, 0.0), (2, 10.0 - 1e-5, 1e3)])
    schedule = one_f_one_b(v_shape(2), 3)
    problem = ClockProblem(schedule, profile)
    *_, point, _ = breakpoints(problem.graph, problem.curves)  # the shortest iteration is the last
    optimum = relaxed_optimum(schedule, profile, point.time_ms)
    assert point.energy_mj == pytest.approx(optimum, rel=1e-4)


def test_a_held_device_saves_at_the_shortest_time() -> None:
    """The last stage is busy all the time, so the one before it has the same time for each micro-batch."""
    profile = measured("gpt3-175b+a100_sxm_bf16", 83.64)
    placement = profile.times_for(v_shape(8))
    for number, at_least in ((48, 0.140), (96, 0.137)):
        frontier = compute_frontier(one_f_one_b(placement, number), profile, 3)
        assert frontier.saving(frontier.shortest) >= at_least
        assert frontier.shortest.time_ms <= frontier.all_maximum.time_ms * (1 + 1e-9)
