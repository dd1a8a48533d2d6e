from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from energy.accounting import accounted
from energy.cases import exact_plan, noisy_profile, profiles
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements

from placements import Placement, Profile
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import EnergyError, all_maximum_clocks, compute_frontier, simulate_at_clocks
from schedsearch.energy.orders.any_order import any_order_mj
from schedsearch.energy.orders.ordering import OrderChoice, best_order, relaxed, swapped
from schedsearch.procedures.alternatives import order_key
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.validate import InvalidScheduleError, validate


def maximum_ms(schedule: Schedule, profile: Profile) -> float:
    return simulate_at_clocks(schedule, profile, all_maximum_clocks(schedule, profile)).time_ms


def until(
    deadline_ms: float, schedule: Schedule, profile: Profile, time_ms: float, energy_mj: float
) -> float:
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    return energy_mj + waiting_w * max(deadline_ms - time_ms, 0.0)


def check(chosen: OrderChoice, profile: Profile) -> None:
    """Everything that is true of every choice."""
    for rated in chosen.judged:
        validate(rated.schedule)
        if rated.plan is None:
            continue
        time_ms, energy_mj = accounted(rated.schedule, profile, rated.plan.clock_mhz)
        assert time_ms <= chosen.deadline_ms * (1 + 1e-8)
        expected = until(chosen.deadline_ms, rated.schedule, profile, time_ms, energy_mj)
        assert rated.energy_mj == pytest.approx(expected)
        assert rated.lower_bound_mj <= rated.energy_mj * (1 + 1e-7) + 1e-6
        assert chosen.best.energy_mj <= rated.energy_mj * (1 + 1e-6)
    assert chosen.best in chosen.judged


def neighborhood(schedule: Schedule) -> Iterator[Schedule]:
    for device in range(schedule.placement.num_devices):
        order = schedule.order(device)
        for first, second in pairwise(order):
            other = swapped(schedule, first, second)
            if other is not None:
                yield other


def all_orders(schedule: Schedule) -> list[Schedule]:
    """Every order that swaps of neighbors lead to."""
    seen = {order_key(schedule): schedule}
    fresh = [schedule]
    while fresh:
        fresh = [near for schedule in fresh for near in neighborhood(schedule) if order_key(near) not in seen]
        seen |= {order_key(schedule): schedule for schedule in fresh}
    return list(seen.values())


def test_no_order_of_a_small_schedule_is_below_the_bound_and_the_choice_is_near() -> None:
    """Against the exact plans of all orders."""
    placement = v_shape(2).with_memory([2, 1])
    first = one_f_one_b(placement, 3)
    profile = noisy_profile(placement, 4, 7)
    deadline_ms = maximum_ms(first, profile) * 1.3
    energies = []
    for schedule in all_orders(first):
        if compute_frontier(schedule, profile, 1).shortest.time_ms <= deadline_ms * (1 + 1e-9):
            exact = exact_plan(schedule, profile, deadline_ms)
            assert exact.gap < 1e-6
            energies.append(until(deadline_ms, schedule, profile, exact.time_ms, exact.energy_mj))
    chosen = best_order([first], profile, deadline_ms, max_swaps=30, work_limit=30.0)
    check(chosen, profile)
    assert min(energies) * (1 - 1e-6) <= chosen.best.energy_mj <= 1.01 * min(energies)
    assert chosen.lower_bound_mj <= min(energies) * (1 + 1e-6)


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_no_order_is_below_the_bound_of_all_orders(data: st.DataObject) -> None:
    placement = data.draw(placements(max_forward=3))
    profile = data.draw(profiles(placement))
    number = data.draw(st.integers(1, 3))
    for make in (gpipe, one_by_one):
        schedule = make(placement, number)
        deadline_ms = maximum_ms(schedule, profile) * data.draw(st.sampled_from([1.0, 1.3]))
        energy_mj, _ = relaxed(schedule, profile, deadline_ms)
        assert any_order_mj(schedule, profile, deadline_ms) <= energy_mj * (1 + 1e-7)


def one_by_one(placement: Placement, number: int) -> Schedule:
    """One micro-batch after the other."""
    single = gpipe(placement, 1)
    orders = [
        [(name, n) for n in range(number) for name, _ in single.order(device)]
        for device in range(placement.num_devices)
    ]
    return as_soon_as_possible(placement, number, orders)


def test_swaps_never_make_it_worse_and_may_make_it_better() -> None:
    first = gpipe(m_shape(4), 6)
    profile = noisy_profile(first.placement, 8, 1)
    deadline_ms = maximum_ms(first, profile)
    chosen = best_order([first], profile, deadline_ms, max_swaps=150)
    check(chosen, profile)
    assert chosen.gain is not None
    assert chosen.gain > 0.001
    assert chosen.best.is_swapped
    assert chosen.best.candidate == 0
    again = best_order([first], profile, deadline_ms, max_swaps=150)
    assert again.schedule == chosen.schedule
    kept = best_order([first], profile, deadline_ms, max_swaps=150, keeps=lambda _: False)
    assert kept.schedule == first
    assert kept.gain == 0


def test_one_candidate_is_chosen_and_others_need_a_reason() -> None:
    schedule = one_f_one_b(v_shape(3), 5)
    profile = noisy_profile(schedule.placement, 5, 0)
    worse = one_by_one(v_shape(3), 5)
    chosen = best_order([schedule, worse], profile, 1.05 * maximum_ms(worse, profile))
    check(chosen, profile)
    assert chosen.best is chosen.judged[0]
    assert chosen.gain == 0
    assert chosen.judged[1].plan is None
    assert chosen.plan.time_ms <= chosen.deadline_ms
    assert chosen.schedule == schedule


def test_a_candidate_that_keeps_the_deadline_where_the_first_does_not() -> None:
    short, long = one_f_one_b(v_shape(3), 5), one_by_one(v_shape(3), 5)
    profile = noisy_profile(short.placement, 5, 0)
    chosen = best_order([long, short], profile, maximum_ms(short, profile))
    assert (chosen.schedule, chosen.gain) == (short, None)
    assert np.isinf(chosen.judged[0].lower_bound_mj)
    with pytest.raises(EnergyError, match="by any of 1 schedules; the shortest takes .* ms at the highest"):
        best_order([long], profile, maximum_ms(short, profile))
    with pytest.raises(EnergyError, match="candidates: there are none"):
        best_order([], profile, 1.0)


def test_an_invalid_candidate_is_rejected() -> None:
    schedule = gpipe(v_shape(2), 2)
    profile = noisy_profile(schedule.placement, 3, 0)
    wrong = Schedule(schedule.placement, 2, schedule.blocks[1:])
    with pytest.raises(InvalidScheduleError):
        best_order([schedule, wrong], profile, 1e6)


def test_an_interruption_keeps_the_best() -> None:
    schedule = gpipe(v_shape(3), 4)
    profile = noisy_profile(schedule.placement, 5, 0)

    def candidates() -> Iterator[Schedule]:
        yield schedule
        yield one_f_one_b(v_shape(3), 4)
        raise KeyboardInterrupt

    chosen = best_order(candidates(), profile, 1.1 * maximum_ms(schedule, profile))
    check(chosen, profile)
    assert chosen.interrupted
    assert len(chosen.judged) == 2
