"""Random profiles, and slow, obvious answers about energy that share no code with the package's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from energy.accounting import accounted, curves, gpus
from hypothesis import strategies as st
from places import SHARED_DATA
from scipy.optimize import linprog
from strategies import placements

from placements import Kind, OperatingPoint, Placement, Profile
from schedsearch.baselines import gpipe
from schedsearch.energy import FrequencyPlan
from schedsearch.energy.improving import improved
from schedsearch.energy.problem import ClockProblem
from schedsearch.schedule import Instance, Schedule
from schedsearch.solver.effort import Effort

STAGE_PROFILES = SHARED_DATA / "perseus" / "stage_profile"

STEPS = [(900, 20.0, 900.0), (1200, 14.0, 1000.0), (1400, 12.5, 1300.0)]
"""MHz, ms and mJ of a block at three clocks."""

CURVE = ((600, 50.0), (1000, 62.0), (1410, 90.0))
"""Blocking power by clock."""


def measured(name: str, blocking_power_w: float) -> Profile:
    """Read a measured profile of the Perseus artifact, or skip the test where it is not there."""
    path = STAGE_PROFILES / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    return Profile.from_csv(path, device=name, blocking_power_w=blocking_power_w)


@st.composite
def profiles(draw: st.DrawFn, placement: Placement, max_clocks: int = 4) -> Profile:
    """Any times and energies: not convex, equal, rising the wrong way, or only one clock."""
    points = {}
    for block in placement.blocks:
        costs = draw(
            st.lists(st.tuples(st.integers(1, 30), st.integers(0, 400)), min_size=1, max_size=max_clocks)
        )
        points[block.name] = tuple(
            OperatingPoint(100 * (k + 1), float(time), float(energy))
            for k, (time, energy) in enumerate(costs)
        )
    return Profile("random", points, draw(st.sampled_from([0.0, 3.0, 7.5])))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schedule, Profile]:
    """Any placement with GPUs of its own, and any profile, with one blocking power or one by the clock."""
    placement = draw(placements())
    placement = replace(placement, num_gpus=draw(st.just(()) | gpus(placement.num_devices)))
    profile = draw(profiles(placement))
    if draw(st.integers(0, 3)):
        profile = replace(profile, blocking_power_w=draw(curves()))
    return gpipe(placement, draw(st.integers(1, 3))), profile


def some_clocks(data: st.DataObject, schedule: Schedule, profile: Profile) -> dict[str, tuple[int, ...]]:
    """Draw a clock of each block for each micro-batch."""
    return {
        name: tuple(data.draw(st.sampled_from(points)).clock_mhz for _ in range(schedule.num_micro_batches))
        for name, points in profile.points.items()
    }


def noisy_profile(placement: Placement, num_clocks: int, seed: int) -> Profile:
    """Return a profile as measured ones are: time about 1/clock, power rising steeply, all a bit off."""
    random = np.random.default_rng(seed)
    points = {}
    for block in placement.blocks:
        clock_mhz = np.sort(random.choice(np.arange(600, 1411, 15), num_clocks, replace=False))
        at_maximum_ms = random.uniform(20, 40) * (2 if block.kind is Kind.B else 1)
        time_ms = at_maximum_ms * (0.35 + 0.65 * 1410 / clock_mhz) * random.normal(1, 0.004, num_clocks)
        power_w = (90 + 210 * (clock_mhz / 1410) ** 2.6) * random.normal(1, 0.01, num_clocks)
        costs = zip(clock_mhz.tolist(), time_ms.tolist(), (time_ms * power_w).tolist(), strict=True)
        points[block.name] = tuple(OperatingPoint(*cost) for cost in costs)
    return Profile("noisy", points, 60.0)


def profile_of(blocking_power_w: float = 0.0, **blocks: Sequence[tuple[int, float, float]]) -> Profile:
    """Return a profile from (MHz, ms, mJ) triples by block."""
    points = {name: tuple(OperatingPoint(*point) for point in values) for name, values in blocks.items()}
    return Profile("made up", points, blocking_power_w)


def waits(schedule: Schedule) -> list[tuple[Instance, Instance, float]]:
    """All (before, after, milliseconds between) of a schedule."""
    placement = schedule.placement
    pairs = [
        ((a, n), (block.name, n), placement.transfer_time(a, block.name) * placement.tick_ms)
        for block in placement.blocks
        for a in block.after
        for n in range(schedule.num_micro_batches)
    ]
    for device in range(placement.num_devices):
        order = schedule.order(device)
        pairs += [(order[i], order[j], 0.0) for j in range(len(order)) for i in range(j)]
    return pairs


def check_plans(schedule: Schedule, profile: Profile, plans: Sequence[FrequencyPlan]) -> None:
    """Figures equal the slow accounting, none is below its bound, and longer plans need less."""
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    for plan in plans:
        time, energy = accounted(schedule, profile, plan.clock_mhz)
        assert plan.time_ms == pytest.approx(time)
        assert plan.energy_mj == pytest.approx(energy, abs=1e-9 * waiting_w * time + 1e-9)
        assert plan.energy_mj >= plan.lower_bound_mj - 1e-7 * abs(plan.lower_bound_mj) - 1e-6
    assert (np.diff([plan.time_ms for plan in plans]) > 0).all()
    assert (np.diff([plan.energy_mj - waiting_w * plan.time_ms for plan in plans]) < 0).all()


def relaxed_optimum(
    schedule: Schedule,
    profile: Profile,
    deadline_ms: float,
    tie_of: Callable[[Instance], object] = lambda instance: instance,
) -> float:
    """Least energy above the blocking power if every instance may mix its clocks: one linear program.

    Instances of one tie mix them alike.
    """
    instances = sorted(schedule.start_of)
    row = {instance: i for i, instance in enumerate(instances)}
    ties: dict[object, list[Instance]] = {}
    for instance in instances:
        ties.setdefault(tie_of(instance), []).append(instance)
    time, cost, owner = [], [], []
    for tied in ties.values():
        name = tied[0][0]
        num_devices = len(schedule.placement.by_name[name].devices) * len(tied)
        for p in profile.points[name]:
            time.append(p.time_ms)
            cost.append(num_devices * (p.energy_mj - profile.blocking_power_w * p.time_ms))
            owner.append([row[instance] for instance in tied])
    count, options = len(instances), len(time)
    mix = np.zeros((count, options))
    for k, rows in enumerate(owner):
        mix[rows, k] = 1
    duration = mix * np.array(time)
    upper, limit = [], []
    for before, after, delay in waits(schedule):
        start = np.zeros(count)
        start[row[before]] += 1
        start[row[after]] -= 1
        upper.append(np.concatenate([start, duration[row[before]]]))
        limit.append(-delay)
    for i in range(count):
        upper.append(np.concatenate([np.eye(count)[i], duration[i]]))
        limit.append(deadline_ms)
    answer = linprog(
        np.concatenate([np.zeros(count), cost]),
        A_ub=np.array(upper),
        b_ub=limit,
        A_eq=np.hstack([np.zeros((count, count)), mix]),
        b_eq=np.ones(count),
        bounds=(0, None),
    )
    assert answer.status == 0, answer.message
    return float(answer.fun)


def every_choice(schedule: Schedule, profile: Profile) -> Iterator[dict[str, tuple[int, ...]]]:
    """Every choice of clocks."""
    names = [block.name for block in schedule.placement.blocks]
    choices = [
        itertools.product([p.clock_mhz for p in profile.points[name]], repeat=schedule.num_micro_batches)
        for name in names
    ]
    for clocks in itertools.product(*choices):
        yield dict(zip(names, clocks, strict=True))


def all_plans(schedule: Schedule, profile: Profile) -> list[tuple[float, float]]:
    """Time and energy of every choice of clocks."""
    return [accounted(schedule, profile, clocks) for clocks in every_choice(schedule, profile)]


def exact_plan(schedule: Schedule, profile: Profile, deadline_ms: float) -> FrequencyPlan:
    """Return the plan of a small schedule that one program proves to be the best for a deadline."""
    problem = ClockProblem(schedule, profile)
    size = problem.graph.size
    solution = improved(problem, np.zeros(size, int), range(size), deadline_ms, Effort().budget(60.0, 0))
    (clocks,) = problem.clocks(solution.choice[:, None])
    plan = problem.plan(clocks, 0.0)
    return replace(plan, lower_bound_mj=solution.bound_mj + problem.waiting_w * plan.time_ms)
