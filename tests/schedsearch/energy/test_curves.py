"""Perseus's fitted exponential in place of the options' convex hull, while plans are made."""

from __future__ import annotations

import numpy as np
import pytest
from energy.cases import STEPS, check_plans, profile_of, profiles, relaxed_optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements

from placements import Profile
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import EnergyError, Frontier, compute_frontier
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.graph import instance_graph
from schedsearch.energy.relaxation import breakpoints
from schedsearch.schedule import Schedule


def check(schedule: Schedule, profile: Profile, num_plans: int, deadline: float) -> Frontier:
    """Everything that is true of a frontier of fitted curves, beside that of the hull."""
    hull = compute_frontier(schedule, profile, num_plans, deadline)
    fitted = compute_frontier(schedule, profile, num_plans, deadline, curve="exponential")
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    assert fitted.at(deadline).time_ms <= deadline * (1 + 1e-9)
    assert fitted.shortest.time_ms == pytest.approx(hull.shortest.time_ms)
    assert fitted.all_maximum == hull.all_maximum
    last, least = fitted.plans[-1], hull.plans[-1]
    assert last.energy_mj - waiting_w * last.time_ms == pytest.approx(
        least.energy_mj - waiting_w * least.time_ms, abs=1e-6
    )
    check_plans(schedule, profile, fitted.plans)
    return fitted


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_placement_and_profile(data: st.DataObject) -> None:
    """Profiles that fit no exponential; the bound is that of a linear program over the true options."""
    placement = data.draw(placements())
    profile = data.draw(profiles(placement))
    schedule = gpipe(placement, data.draw(st.integers(1, 3)))
    waiting_w = profile.blocking_power_w * placement.num_devices
    ends = compute_frontier(schedule, profile, num_plans=2)
    share = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    deadline = (1 - share) * ends.shortest.time_ms + share * ends.plans[-1].time_ms
    fitted = check(schedule, profile, 4, max(deadline, ends.shortest.time_ms))
    for plan in fitted.plans[:: max(len(fitted.plans) - 1, 1)]:
        optimum = relaxed_optimum(schedule, profile, plan.time_ms * (1 + 1e-9)) + waiting_w * plan.time_ms
        assert plan.lower_bound_mj == pytest.approx(optimum, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize(
    "points",
    [
        [(900, 20.0, 100.0 + 20.0 * 5), (1400, 12.5, 100.0 + 12.5 * 5)],
        [(900, 2000.0, 0.1), (1200, 1000.0, 0.2), (1400, 1.0, 1e7)],
        [(900, 20.0, 1000.0), (1200, 14.0, 1000.0 + 1e-10), (1400, 12.5, 1000.0 + 2e-10)],
    ],
    ids=["flat energies", "cliff", "all but flat"],
)
def test_profiles_that_fit_no_exponential(points: list[tuple[int, float, float]]) -> None:
    placement = m_shape(3)
    schedule = gpipe(placement, 3)
    profile = profile_of(5.0, **{block.name: points for block in placement.blocks})
    shortest = compute_frontier(schedule, profile, 1).shortest.time_ms
    check(schedule, profile, 5, shortest * 1.05)


def bent(at_ms: float) -> list[tuple[int, float, float]]:
    """31 clocks whose energy falls steeply until a time, and slowly from there."""
    times = np.linspace(20, 10, 31)
    energies = np.interp(times, [10, at_ms, 20], [1000.0, 300.0, 100.0])
    return [
        (1100 + 10 * i, *cost) for i, cost in enumerate(zip(times.tolist(), energies.tolist(), strict=True))
    ]


def test_a_bad_fit_costs_energy_and_the_gap_shows_it() -> None:
    """No exponential follows a bend; the hull of such options rounds without loss."""
    schedule = one_f_one_b(v_shape(2), 3)
    profile = profile_of(F0=bent(11.5), F1=bent(11.5), B0=bent(16.5), B1=bent(16.5))
    hull, fitted = (compute_frontier(schedule, profile, 20, curve=curve) for curve in ("hull", "exponential"))
    mean = [np.mean([plan.gap for plan in each.plans]) for each in (hull, fitted)]
    assert mean[0] < 1e-6
    assert mean[1] > 1e-3


def test_refuses_an_unknown_curve() -> None:
    with pytest.raises(EnergyError, match=r"^curve: 'line' is not known; use hull or exponential$"):
        compute_frontier(one_f_one_b(v_shape(1), 1), profile_of(F0=STEPS, B0=STEPS), curve="line")


def test_a_power_too_steep_for_one_push_is_pushed_in_parts() -> None:
    """One nearly vertical step beside flat ones needs more flow than 32 bits hold."""
    flat = [(1, 100.0, 0.0), (2, 50.0, 1e-3), (3, 49.0, 2e-3)]
    profile = profile_of(F0=flat, B0=flat, F1=flat, B1=[(1, 10.0, 0.0), (2, 10.0 - 1e-5, 1e3)])
    schedule = one_f_one_b(v_shape(2), 3)
    graph, curves = instance_graph(schedule), cost_curves(schedule.placement, profile)
    *_, found, _ = breakpoints(graph, curves)  # the shortest iteration is the last
    optimum = relaxed_optimum(schedule, profile, found.time_ms)
    assert found.energy_mj == pytest.approx(optimum, rel=1e-4)
