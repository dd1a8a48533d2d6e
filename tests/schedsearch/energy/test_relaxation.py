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
