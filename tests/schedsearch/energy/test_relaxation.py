from __future__ import annotations

import numpy as np
import pytest
from energy.cases import profile_of, relaxed_optimum

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.graph import instance_graph
from schedsearch.energy.relaxation import Breakpoint, breakpoints
from schedsearch.schedule import Schedule


def traced(schedule: Schedule, profile: Profile) -> list[Breakpoint]:
    """The breakpoints, shortest iteration first."""
    return list(breakpoints(instance_graph(schedule), cost_curves(schedule.placement, profile)))[::-1]


def test_ends_are_all_fastest_and_least_energy() -> None:
    profile = profile_of(
        F0=[(1, 10, 5), (2, 4, 10)], F1=[(1, 10, 5), (2, 4, 10)], B0=[(1, 7, 3)], B1=[(1, 9, 1), (2, 8, 9)]
    )
    found = traced(one_f_one_b(v_shape(2), 1), profile)
    assert found[0].time_ms == pytest.approx(4 + 4 + 8 + 7)
    assert found[-1].time_ms == pytest.approx(10 + 10 + 9 + 7)
    assert found[-1].energy_mj == pytest.approx(5 + 5 + 3 + 1)
    assert found[0].energy_mj == pytest.approx(10 + 10 + 3 + 9)


def test_events_at_breakpoints_cost_what_the_breakpoints_say() -> None:
    placement = v_shape(3)
    points = [(900, 20.0, 900.0), (1200, 14.0, 1000.0), (1400, 12.5, 1300.0)]
    profile = profile_of(**{block.name: points for block in placement.blocks})
    time, energy = [12.5, 14.0, 20.0], [1300.0, 1000.0, 900.0]
    for point in traced(one_f_one_b(placement, 5), profile):
        duration = point.event_ms[:, 1] - point.event_ms[:, 0]
        assert (duration >= 12.5 - 1e-9).all()
        assert np.interp(duration, time, energy).sum() == pytest.approx(point.energy_mj)


def test_a_power_too_steep_for_one_push_is_pushed_in_parts() -> None:
    """One nearly vertical step beside flat ones needs more flow than 32 bits hold."""
    flat = [(1, 100.0, 0.0), (2, 50.0, 1e-3), (3, 49.0, 2e-3)]
    profile = profile_of(F0=flat, B0=flat, F1=flat, B1=[(1, 10.0, 0.0), (2, 10.0 - 1e-5, 1e3)])
    schedule = one_f_one_b(v_shape(2), 3)
    found = traced(schedule, profile)
    optimum = relaxed_optimum(schedule, profile, found[1].time_ms)
    assert found[1].energy_mj == pytest.approx(optimum, rel=1e-4)
