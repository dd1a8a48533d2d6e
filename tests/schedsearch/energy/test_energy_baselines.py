"""The baselines of the energy frontier: true plans, above the bound, and the figures that are published."""

from __future__ import annotations

import csv
import math
from itertools import pairwise

import numpy as np
import pytest
from energy.cases import (
    STAGE_PROFILES,
    STEPS,
    check_plans,
    measured,
    noisy_profile,
    profile_of,
    profiles,
    relaxed_optimum,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements

from placements import OperatingPoint, Profile
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import CostCurve, EnergyError, compute_frontier, simulate_at_clocks
from schedsearch.energy.baselines import BASELINES, compute_baselines, perseus_frontier
from schedsearch.energy.baselines.envpipe import envpipe
from schedsearch.energy.baselines.perseus import EnergyOf, energy_schedules, exponential
from schedsearch.energy.cost import cost_curve
from schedsearch.energy.problem import ClockProblem

GPUS = {"a100_sxm": 83.64, "a40": 70.38}


def test_no_baseline_beats_our_plan_where_clocks_are_many() -> None:
    placement = m_shape(3)
    schedule, profile = gpipe(placement, 3), noisy_profile(placement, 30, 1)
    waiting_w = profile.blocking_power_w * placement.num_devices
    for name, plans in compute_baselines(list(BASELINES), schedule, profile, unit_ms=2.0).items():
        excess, some = [], plans[:: -(-len(plans) // 6)]
        frontier = compute_frontier(schedule, profile, 2, [plan.time_ms for plan in some])
        for plan in some:
            ours = frontier.at(plan.time_ms)
            ours_mj = ours.energy_mj + waiting_w * (plan.time_ms - ours.time_ms)
            assert ours_mj <= plan.energy_mj * (1 + max(ours.gap, 1e-9))
            excess.append(plan.energy_mj / ours_mj - 1)
        assert np.mean(excess) > -1e-9, name


@pytest.mark.parametrize(
    "points",
    [
        [(1200, 12.0, 1000.0), (1400, 12.5, 1300.0)],
        [(1, 10.0, 0.0), (2, 9.0, 0.0)],
        [(1, 0.003, 1.0), (2, 0.002, 2.0)],
    ],
    ids=["highest is slower", "no energy", "short"],
)
@pytest.mark.parametrize("name", BASELINES)
def test_strange_profiles(name: str, points: list[tuple[int, float, float]]) -> None:
    placement = m_shape(3)
    schedule = gpipe(placement, 3)
    profile = profile_of(5.0, **{block.name: points for block in placement.blocks})
    check_plans(schedule, profile, compute_baselines([name], schedule, profile, points[0][1] / 20)[name])


# EnvPipe


def published_envpipe() -> list[dict[str, str]]:
    path = STAGE_PROFILES.parent / "published" / "envpipe_result.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["model"] == "gpt3-175b"]


@pytest.mark.parametrize("number", [12])
@pytest.mark.parametrize(("gpu", "tolerance"), [("a100_sxm", 1e-4), ("a40", 1e-3)])
def test_envpipe_is_the_published_one(gpu: str, tolerance: float, number: int) -> None:
    """8 stages of 8 GPUs each; the profile is a tenth of a stage on one of them."""
    profile = measured(f"gpt3-175b+{gpu}_bf16", GPUS[gpu])
    rows = [r for r in published_envpipe() if (r["device"], r["num_microbatches"]) == (gpu, str(number))]
    if not rows:
        pytest.skip("envpipe_result.csv is not there")
    schedule = one_f_one_b(profile.times_for(v_shape(8)), number)
    iteration = simulate_at_clocks(schedule, profile, envpipe(ClockProblem(schedule, profile)))
    assert iteration.time_ms / 100 == pytest.approx(float(rows[0]["iteration_time"]), abs=6e-4)
    energy = float(rows[0]["energy"]) / 80
    assert iteration.energy_mj / 1e3 == pytest.approx(energy, rel=tolerance)
    if gpu == "a100_sxm":
        assert round(iteration.energy_mj / 1e3) == round(energy)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_envpipe_stays_as_fast(data: st.DataObject) -> None:
    """If higher clocks are faster: it ends when a critical path is all at the highest."""
    placement = data.draw(placements())
    profile = data.draw(profiles(placement))
    monotone = Profile(
        "monotone",
        {
            name: tuple(
                OperatingPoint(p.clock_mhz, time, p.energy_mj)
                for p, time in zip(points, sorted((p.time_ms for p in points), reverse=True), strict=True)
            )
            for name, points in profile.points.items()
        },
        profile.blocking_power_w,
    )
    schedule = gpipe(placement, data.draw(st.integers(1, 3)))
    baselines = compute_baselines(["all_maximum", "envpipe"], schedule, monotone)
    assert baselines["envpipe"][0].time_ms == pytest.approx(baselines["all_maximum"][0].time_ms)


# Zeus


def test_zeus_global_has_one_clock() -> None:
    schedule = one_f_one_b(v_shape(3), 4)
    profile = profile_of(20.0, **{block.name: STEPS for block in schedule.placement.blocks})
    plans = compute_baselines(["zeus_global"], schedule, profile)["zeus_global"]
    used = [{clock for clocks in plan.clock_mhz.values() for clock in clocks} for plan in plans]
    assert used == [{1400}, {1200}, {900}]


def test_zeus_per_stage_balances_forward_times() -> None:
    """Device 1 has half the work, so it lowers its clock until it takes as long as device 0."""
    light = [(clock, time / 2, energy / 2) for clock, time, energy in [(450, 26.0, 800.0), *STEPS]]
    profile = profile_of(10.0, F0=STEPS, B0=STEPS, F1=light, B1=light)
    plans = compute_baselines(["zeus_per_stage"], one_f_one_b(v_shape(2), 4), profile)["zeus_per_stage"]
    chosen = [(plan.clock_mhz["F0"][0], plan.clock_mhz["F1"][0]) for plan in plans]
    assert chosen[0] == (1400, 450)
    for plan in plans:
        assert plan.clock_mhz["F0"] == plan.clock_mhz["B0"]
        assert plan.clock_mhz["F1"] == plan.clock_mhz["B1"]


# Perseus


def hull(curve: CostCurve) -> EnergyOf:
    """The options' hull in the place of the exponential."""
    return lambda time_ms: np.interp(time_ms, curve.time_ms[curve.hull], curve.energy_mj[curve.hull])


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from([1.0, 0.5]))
def test_perseus_meets_the_linear_program_in_whole_units(data: st.DataObject, unit_ms: float) -> None:
    """All times are whole milliseconds here, so that nothing is lost: every step must be a best one."""
    placement = data.draw(placements(max_transfer=4))
    profile = data.draw(profiles(placement))
    schedule = gpipe(placement, data.draw(st.integers(1, 2)))
    steps = list(energy_schedules(ClockProblem(schedule, profile), unit_ms, fit=hull))
    for before, after in pairwise(steps):
        assert before.time_ms - after.time_ms == pytest.approx(unit_ms)
    for step in {0: steps[0], 1: steps[len(steps) // 3], 2: steps[len(steps) // 2], 3: steps[-1]}.values():
        optimum = relaxed_optimum(schedule, profile, step.time_ms * (1 + 1e-9))
        assert step.energy_mj == pytest.approx(optimum, rel=1e-5, abs=1e-2)


@pytest.mark.parametrize(
    ("unit_ms", "message"),
    [
        (0.0, r"^unit_ms: \S+ is not a time above 0; give milliseconds"),
        (math.nan, r"^unit_ms: \S+ is not a time above 0; give milliseconds"),
        (3e-5, r"^unit_ms: \S+ is too short for .*; give at least"),
        (1e3, r"^unit_ms: 1000 exceeds every block; give at most"),
    ],
)
def test_refuses_what_is_wrong(unit_ms: float, message: str) -> None:
    schedule, profile = one_f_one_b(v_shape(1), 1), profile_of(F0=STEPS, B0=STEPS)
    with pytest.raises(EnergyError, match=message):
        perseus_frontier(schedule, profile, unit_ms)
    with pytest.raises(EnergyError, match="^baselines: 'zeus' is not known; the names are all_maximum, env"):
        compute_baselines(["envpipe", "zeus"], schedule, profile)


def test_perseus_plans_the_shortest_time_that_is_published() -> None:
    """The authors' T_min to the unit, and their planned energy there to half a percent."""
    path = STAGE_PROFILES.parent / "published" / "a100_sxm" / "gpt3-175b_bf16_mb12.csv"
    profile = measured("gpt3-175b+a100_sxm_bf16", GPUS["a100_sxm"])
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    *_, last = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    schedule = one_f_one_b(profile.times_for(v_shape(8)), 12)
    *_, shortest = energy_schedules(ClockProblem(schedule, profile), 1.0)
    assert shortest.time_ms == pytest.approx(1e3 * float(last["time"]))
    energy_mj = shortest.energy_mj + 8 * profile.blocking_power_w * shortest.time_ms
    assert energy_mj == pytest.approx(1e3 * float(last["energy"]), rel=5e-3)


# The exponential


@pytest.mark.parametrize(("time", "energy"), [(1e-4, 1.0), (1.0, 1e7), (1e5, 1e-5)])
def test_finds_the_exponential_that_is_there(time: float, energy: float) -> None:
    options = [(100 * (i + 1), t, 5 * math.exp(-0.3 * t) + 2) for i, t in enumerate(range(20, 5, -1))]
    profile = profile_of(F0=[(c, t * time, e * energy) for c, t, e in options])
    fit = exponential(cost_curve("F0", 1, profile))
    at = np.array([11.5, 500.0]) * time
    assert fit(at) == pytest.approx(energy * (5 * np.exp(-0.3 * at / time) + 2), rel=1e-5)
