from __future__ import annotations

import numpy as np
import pytest
from energy.cases import noisy_profile
from energy.test_periodic import check_ties, maximum_ms, one_f_one_b_of, searched
from energy.test_switching import check

from placements.shapes import m_shape
from schedsearch.energy import (
    EnergyError,
    PeriodicPlan,
    PeriodicSchedule,
    SwitchingLimits,
    periodic_plan,
    switched_periodic_plan,
)
from schedsearch.energy.graph import instance_graph
from schedsearch.energy.switching.tied import _Tied

CASES = {"1F1B": lambda: one_f_one_b_of(4), "M": lambda: _searched_m()}
LIMITS = [SwitchingLimits(0.0, 5.0), SwitchingLimits(150.0, 0.0), SwitchingLimits(150.0, 5.0, False)]


def _searched_m() -> PeriodicSchedule:
    repetend = searched(m_shape(3).with_memory(4), 1)
    return PeriodicSchedule(repetend, repetend.placement, 1)


@pytest.fixture(scope="module", params=CASES)
def periodic(request: pytest.FixtureRequest) -> PeriodicSchedule:
    return CASES[request.param]()


def made(periodic: PeriodicSchedule, n: int, slowdown: float) -> PeriodicPlan:
    profile = noisy_profile(periodic.placement, 55, seed=n)  # all clocks, so that blocks have them in common
    return periodic_plan(periodic, profile, n, slowdown * maximum_ms(periodic, profile, n))


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("n", [3, 40])
def test_keeps_limits_and_ties(periodic: PeriodicSchedule, n: int, limits: SwitchingLimits) -> None:
    alone = made(periodic, n, 1.08)
    free = alone.unrolled(n)
    both = switched_periodic_plan(alone, limits, free)
    check(periodic.schedule(n), alone.profile, both.switched, limits, alone.deadline_ms)
    check_ties(both.periodic, n, dict(both.switched.plan.clock_mhz))
    assert both.periodic.unrolled(n).clock_mhz == both.switched.plan.clock_mhz
    assert both.switched.lower_bound_mj >= alone.relaxed_mj * (1 - 1e-9)
    assert both.switched.gap < 0.15


def test_the_work_does_not_grow(periodic: PeriodicSchedule) -> None:
    sizes = {
        _Tied.of(made(periodic, n, 1.05), SwitchingLimits(0.0, 5.0), 1e9).model.graph.size for n in (60, 90)
    }
    assert len(sizes) == 1


def test_what_is_left_out_takes_its_time(periodic: PeriodicSchedule) -> None:
    """Short schedule and loop together are never shorter than the whole, and hardly longer."""
    n = 60
    alone = made(periodic, n, 1.05)
    limits = SwitchingLimits(0.0, 5.0)
    tied = _Tied.of(alone, limits, 1e9)
    short = tied.model.schedule.num_micro_batches
    state = tied.model.state(tied.model.clocks_of(alone.unrolled(short).clock_mhz))
    whole = type(tied.model)(periodic.schedule(n), alone.profile, limits, 1e9)
    real = whole.state(whole.clocks_of(alone.unrolled(n).clock_mhz))
    assert real.time_ms * (1 - 1e-9) <= state.time_ms <= 1.05 * real.time_ms
    assert state.effective_mj == pytest.approx(real.effective_mj)


def test_a_deadline_that_is_too_short() -> None:
    alone = made(one_f_one_b_of(4), 40, 1.0)
    profile = noisy_profile(alone.periodic.placement, 4, seed=1)  # blocks have no clock in common
    alone = periodic_plan(alone.periodic, profile, 40, maximum_ms(alone.periodic, profile, 40))
    with pytest.raises(EnergyError, match="is kept by no plan that repeats and was found under a dwell of 0"):
        switched_periodic_plan(alone, SwitchingLimits(0.0, 50.0), alone.unrolled(40))


def test_cycles_against_long_schedules(periodic: PeriodicSchedule) -> None:
    """Many more rounds each take the longest cycle."""
    random = np.random.default_rng(3)
    profile = noisy_profile(periodic.placement, 55, seed=1)
    alone = periodic_plan(periodic, profile, 60, 1.1 * maximum_ms(periodic, profile, 60))
    loop = _Tied.of(alone, SwitchingLimits(), 1e9).loop
    assert loop is not None
    model = _Tied.of(alone, SwitchingLimits(), 1e9).model
    of_block = {block.name: random.uniform(1, 5) for block in periodic.placement.blocks}
    time = np.array([of_block[name] for name, _ in model.graph.instances])
    period = loop.period_ms(time, np.ones(len(time), dtype=np.int64))
    ends = []
    for n in (200, 220):
        graph = instance_graph(periodic.schedule(n))
        ends.append(float(graph.makespan(np.array([[of_block[name]] for name, _ in graph.instances]))[0]))
    assert ends[1] - ends[0] == pytest.approx(20 * period)
