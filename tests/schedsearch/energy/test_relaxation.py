from __future__ import annotations

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


def test_a_power_too_steep_for_one_push_is_pushed_in_parts() -> None:
    """One nearly vertical step beside flat ones needs more flow than 32 bits hold."""
    flat = [(1, 100.0, 0.0), (2, 50.0, 1e-3), (3, 49.0, 2e-3)]
    profile = profile_of(F0=flat, B0=flat, F1=flat, B1=[(1, 10.0, 0.0), (2, 10.0 - 1e-5, 1e3)])
    schedule = one_f_one_b(v_shape(2), 3)
    found = traced(schedule, profile)
    optimum = relaxed_optimum(schedule, profile, found[1].time_ms)
    assert found[1].energy_mj == pytest.approx(optimum, rel=1e-4)
