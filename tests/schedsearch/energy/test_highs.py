"""A solver that fails proves nothing: not that there is no plan, no price of time, and no bound."""

from __future__ import annotations

import numpy as np
import pytest
from energy.cases import STEPS, profile_of
from energy.test_periodic import one_f_one_b_of
from scipy.optimize import OptimizeResult
from scipy.sparse import csr_array

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import SwitchingLimits, compute_frontier, periodic_plan, switched_plan
from schedsearch.energy.programs import minimized
from schedsearch.schedule import Schedule

FAILED = "The solver gave up. (HiGHS Status 4: model_status is Solve error)"


def answers(
    monkeypatch: pytest.MonkeyPatch, status: int = 4, message: str = FAILED, **fields: object
) -> None:
    """Let every program have this answer."""
    made = OptimizeResult({"status": status, "message": message, "x": None, **fields})
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_args, **_options: made)


def case(num_micro_batches: int = 2) -> tuple[Schedule, Profile]:
    schedule = one_f_one_b(v_shape(2), num_micro_batches)
    return schedule, profile_of(10.0, **{block.name: STEPS for block in schedule.placement.blocks})


def asked(limit: float, value: float = 1.0) -> OptimizeResult | None:
    """Ask for the least x from 0 to 1 of which some multiple is at most a limit."""
    return minimized(np.ones(1), (np.zeros(1), np.ones(1)), csr_array([[value]]), np.array([limit]))


def test_the_solvers_own_answers(caplog: pytest.LogCaptureFixture) -> None:
    """A coefficient that is too large for HiGHS is refused, to which scipy gives the status of infeasible."""
    result = asked(1.0)
    assert result is not None and result.fun == 0
    assert asked(-1.0) is None
    assert "HiGHS failed" not in caplog.text
    assert asked(1.0, 1e200) is None
    assert "HiGHS failed" in caplog.text


def test_clocks_that_repeat_keep_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    periodic = one_f_one_b_of(2)
    _, profile = case()
    answers(monkeypatch)
    plan = periodic_plan(periodic, profile, 4, 200.0)
    assert plan.unrolled(4).time_ms <= 200.0


def test_a_bound_under_limits_holds_without_prices(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    schedule, profile = case()
    frontier = compute_frontier(schedule, profile, 5, 100.0)
    limits = SwitchingLimits(0.0, 2.0)
    known = switched_plan(schedule, profile, frontier, limits, 100.0)
    answers(monkeypatch)
    switched = switched_plan(schedule, profile, frontier, limits, 100.0)
    assert 0 < switched.lower_bound_mj <= known.lower_bound_mj * (1 + 1e-9)
    assert "so its bound is left out" in caplog.text
