from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from energy.accounting import accounted
from energy.cases import measured, noisy_profile, profile_of

from placements import Block, Kind, Placement, Profile
from placements.shapes import k_shape, m_shape, v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import (
    EnergyError,
    PeriodicSchedule,
    compute_frontier,
    has_order_of,
    periodic_plan,
    repetend_of,
    simulate_at_clocks,
)
from schedsearch.energy.limits.periodic import PeriodicPlan
from schedsearch.repetend import Repetend
from schedsearch.searches.search import search


def searched(placement: Placement, lanes: int) -> Repetend:
    result = search(placement, 4, micro_batches_per_repetend=lanes, objectives=["period"])
    assert result.repetend is not None
    return result.repetend


def one_f_one_b_of(num_devices: int) -> PeriodicSchedule:
    placement = v_shape(num_devices)
    return PeriodicSchedule(repetend_of(lambda n: one_f_one_b(placement, n), 4), placement, 1)


CASES = {
    "two per repetend": lambda: one_f_one_b_of(3).repetend.repeated(2),
    "V, memory 3": lambda: searched(v_shape(4).with_memory(3), 3),
    "M": lambda: searched(m_shape(3).with_memory(4), 1),
    "K": lambda: searched(k_shape(4).with_memory(4), 1),
}


@pytest.fixture(scope="module", params=CASES)
def periodic(request: pytest.FixtureRequest) -> PeriodicSchedule:
    repetend = CASES[request.param]()
    return PeriodicSchedule(repetend, repetend.placement, 1)


def maximum_ms(periodic: PeriodicSchedule, profile: Profile, n: int) -> float:
    clocks = {name: [profile.fastest(name).clock_mhz] * n for name in periodic.repetend.start}
    return accounted(periodic.schedule(n), profile, clocks)[0]


@pytest.mark.parametrize(("n", "slowdown"), [(1, 1.0), (11, 1.07), (24, 1.0)])
def test_keeps_its_deadline_and_its_groups(periodic: PeriodicSchedule, n: int, slowdown: float) -> None:
    profile = noisy_profile(periodic.placement, 12, seed=n)
    deadline = slowdown * maximum_ms(periodic, profile, n)
    made = periodic_plan(periodic, profile, n, deadline)
    schedule = periodic.schedule(n)
    plan = made.unrolled(n)
    time, energy = accounted(schedule, profile, plan.clock_mhz)
    assert (plan.time_ms, plan.energy_mj) == pytest.approx((time, energy))
    assert time <= deadline * (1 + 1e-9)
    check_groups(made, n, plan.clock_mhz)


def check_groups(made: PeriodicPlan, n: int, clocks: dict[str, tuple[int, ...]]) -> None:
    """Wherever the pattern is whole, but for one round on each side, a block of a lane has one clock."""
    repetend = made.periodic.repetend
    lanes, rounds = repetend.micro_batches, -(-n // repetend.micro_batches)
    for name, ahead in repetend.modulo_stage.items():
        for lane in range(lanes):
            first = ahead[lane] + 1
            last = rounds - 1 - (repetend.in_flight - 1 - ahead[lane]) - 1
            steady = [clocks[name][q * lanes + lane] for q in range(first, last + 1) if q * lanes + lane < n]
            assert len(set(steady)) <= 1


def test_any_number_of_micro_batches(periodic: PeriodicSchedule) -> None:
    """Every round more takes no longer than the period, ten times as many and more."""
    lanes, in_flight = periodic.repetend.micro_batches, periodic.repetend.in_flight
    profile = noisy_profile(periodic.placement, 8, seed=3)
    n = lanes * (3 * in_flight + 14)
    made = periodic_plan(periodic, profile, n, 1.04 * maximum_ms(periodic, profile, n))
    assert made.period_ms is not None
    time_ms = made.unrolled(n).time_ms
    for rounds in (1, 2, 7, 9 * n // lanes):
        longer = n + rounds * lanes
        plan = made.unrolled(longer)
        assert plan.time_ms <= (made.deadline_ms + rounds * made.period_ms) * (1 + 1e-9)
        assert plan.time_ms > time_ms
        check_groups(made, longer, plan.clock_mhz)
    for fewer in (1, 2, n // 2):
        plan = made.unrolled(fewer)
        assert plan.time_ms == pytest.approx(accounted(periodic.schedule(fewer), profile, plan.clock_mhz)[0])


def test_against_every_choice_of_tied_clocks() -> None:
    """One device, all but the first and last micro-batch tied: 2 x 3 x 3 choices of two clocks each."""
    steps = [(900, 20.0, 900.0), (1400, 12.5, 1300.0)]
    profile = profile_of(20.0, F0=steps, B0=[(clock, 2 * ms, 1.9 * mj) for clock, ms, mj in steps])
    placement = v_shape(1)
    repetend = repetend_of(lambda n: one_f_one_b(placement, n), 4)
    periodic = PeriodicSchedule(repetend, placement, free_rounds=1)
    schedule = periodic.schedule(6)
    choices = [
        {
            name: (clocks[3 * i], *[clocks[3 * i + 1]] * 4, clocks[3 * i + 2])
            for i, name in enumerate(("F0", "B0"))
        }
        for clocks in itertools.product((900, 1400), repeat=6)
    ]
    points = [accounted(schedule, profile, clocks) for clocks in choices]
    for deadline in np.linspace(6 * 37.5, 6 * 60, 15):
        best = min(energy + 20 * (deadline - time) for time, energy in points if time <= deadline + 1e-9)
        made = periodic_plan(periodic, profile, 6, float(deadline))
        plan = made.unrolled(6)
        energy_mj = plan.energy_mj + 20 * (deadline - plan.time_ms)
        assert best - 1e-6 <= energy_mj <= 1.05 * best


def test_optimizer_blocks_come_once_in_the_cooldown() -> None:
    placement = v_shape(2)
    with_step = replace(placement, blocks=(*placement.blocks, Block("O0", Kind.O, (0,), 3, 0, ("B0",))))
    periodic = PeriodicSchedule(one_f_one_b_of(2).repetend, with_step)
    profile = noisy_profile(with_step, 6, seed=1)
    maximum = {
        name: [points[-1].clock_mhz] * (1 if name == "O0" else 30) for name, points in profile.points.items()
    }
    deadline = 1.05 * simulate_at_clocks(periodic.schedule(30), profile, maximum).time_ms
    plan = periodic_plan(periodic, profile, 30, deadline).unrolled(30)
    assert plan.time_ms <= deadline * (1 + 1e-9)
    assert len(plan.clock_mhz["O0"]) == 1


def test_finds_the_pattern_of_a_schedule_made_by_hand() -> None:
    repetend = repetend_of(lambda n: one_f_one_b(v_shape(4), n), 9)
    assert (repetend.micro_batches, repetend.in_flight) == (1, 4)
    assert all(has_order_of(repetend, one_f_one_b(v_shape(4), n)) for n in (1, 3, 20))
    with pytest.raises(EnergyError, match="repeats nothing of up to 4 micro-batches; use one"):
        repetend_of(lambda n: gpipe(v_shape(4), n), 9)


def test_tells_a_schedule_that_was_shortened() -> None:
    result = search(m_shape(4).with_memory(6), 6)
    assert result.schedule is not None
    assert has_order_of(result.repetend, result.repetend.unroll(6))
    assert not has_order_of(result.repetend, gpipe(m_shape(4), 6))


def test_wrong_input() -> None:
    periodic = one_f_one_b_of(2)
    profile = noisy_profile(periodic.placement, 4, seed=0)
    with pytest.raises(EnergyError, match=r"deadline_ms: 3 cannot be kept by a plan that repeats, the sho"):
        periodic_plan(periodic, profile, 40, 3.0)
    with pytest.raises(EnergyError, match="num_micro_batches: 0 is not at least 1"):
        periodic_plan(periodic, profile, 0, 1e4)
    with pytest.raises(EnergyError, match="num_micro_batches: 0 is not at least 1"):
        periodic_plan(periodic, profile, 4, 1e4).unrolled(0)


def test_settles_where_a_device_is_hardly_slower_than_the_others() -> None:
    """At the shortest time of nearly equal devices lateness is made up slowly, so more rounds must settle."""
    steps = [(900, 20.0, 900.0), (1400, 12.5, 1300.0)]
    uneven = {
        f"{letter}{i}": [(clock, ms * (1 + 1e-4 * i * (-1) ** i), mj) for clock, ms, mj in steps]
        for letter in "FB"
        for i in range(4)
    }
    profile = profile_of(30.0, **uneven)
    periodic = one_f_one_b_of(4)
    deadline = maximum_ms(periodic, profile, 60)
    assert periodic_plan(periodic, profile, 60, deadline).unrolled(60).time_ms <= deadline * (1 + 1e-9)


def test_loses_little_on_a_measured_profile() -> None:
    """GPT-3 on 8 A100, two free rounds on each side, 24 micro-batches without slowdown."""
    profile = measured("gpt3-175b+a100_sxm_bf16", 83.64)
    placement = profile.times_for(v_shape(8))
    repetend = repetend_of(lambda n: one_f_one_b(placement, n), 12)
    periodic = PeriodicSchedule(repetend, placement, free_rounds=2)
    schedule, deadline = periodic.schedule(24), maximum_ms(periodic, profile, 24)
    frontier = compute_frontier(schedule, profile, 3, deadline)
    plan = periodic_plan(periodic, profile, 24, deadline).unrolled(24)
    free = frontier.energy_next_to(frontier.at(deadline), deadline)
    assert plan.time_ms <= deadline * (1 + 1e-9)
    assert frontier.energy_next_to(plan, deadline) <= 1.005 * free
