"""A solver that fails proves nothing: not that there is no plan, no price of time, and no bound."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
from energy.cases import profile_of
from energy.test_periodic import one_f_one_b_of
from schedsearch.energy.relaxed.highs import SolverStatus, status_of
from schedsearch.energy.switching import bound as switching_bound
from scipy.optimize import OptimizeResult, linprog

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import (
    PowerCap,
    SwitchingLimits,
    best_order,
    capped_plan,
    compute_frontier,
    periodic_plan,
    switched_plan,
)
from schedsearch.schedule import Schedule

STEPS = [(900, 20.0, 900.0), (1200, 14.0, 1000.0), (1400, 12.5, 1300.0)]
FAILED = "The solver gave up. (HiGHS Status 4: model_status is Solve error)"
REFUSED = "The problem is infeasible. (HiGHS Status 2: model_status is Model error)"


def answer(status: int, message: str = FAILED, **fields: object) -> OptimizeResult:
    return OptimizeResult({"status": status, "message": message, "x": None, **fields})


def fail(monkeypatch: pytest.MonkeyPatch, module: ModuleType, status: int = 4, message: str = FAILED) -> None:
    monkeypatch.setattr(module, "minimized", lambda *_args, **_options: answer(status, message))


def case(num_micro_batches: int = 2) -> tuple[Schedule, Profile]:
    schedule = one_f_one_b(v_shape(2), num_micro_batches)
    return schedule, profile_of(10.0, **{block.name: STEPS for block in schedule.placement.blocks})


@pytest.mark.parametrize(
    ("made", "status", "is_told"),
    [
        (answer(0, x=[1.0]), SolverStatus.OPTIMAL, False),
        (answer(0), SolverStatus.UNKNOWN, True),
        (answer(1, x=[1.0]), SolverStatus.UNKNOWN, True),  # a point of the simplex method
        (answer(2, "The problem is infeasible. (HiGHS Status 8: )"), SolverStatus.INFEASIBLE, False),
        (answer(2, REFUSED), SolverStatus.UNKNOWN, True),
        (answer(3), SolverStatus.UNBOUNDED, False),
        (answer(4), SolverStatus.UNKNOWN, True),
        (answer(4, x=[1.0]), SolverStatus.UNKNOWN, True),
    ],
)
def test_every_status(
    made: OptimizeResult, status: SolverStatus, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert status_of(made) is status
    assert bool(caplog.records) == is_told
    assert all(made.message in record.getMessage() for record in caplog.records)


def test_the_solvers_own_answers() -> None:
    assert status_of(linprog([1.0], bounds=(0, 1))) is SolverStatus.OPTIMAL
    assert status_of(linprog([1.0], A_ub=[[1.0]], b_ub=[-1.0])) is SolverStatus.INFEASIBLE
    assert status_of(linprog([-1.0])) is SolverStatus.UNBOUNDED


def test_a_program_that_is_refused_is_not_infeasible() -> None:
    """Its coefficient is too large for HiGHS; scipy gives it the status of an infeasible one."""
    refused = linprog([1.0], A_ub=[[1e200]], b_ub=[1.0])
    assert (refused.status, status_of(refused)) == (2, SolverStatus.UNKNOWN)


def test_an_order_is_judged_by_what_is_known_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second order is the only one that keeps the deadline; without a plan there would be none."""
    (short, profile), long = case(4), gpipe(v_shape(2).with_memory(4), 4)
    deadline = compute_frontier(short, profile, 2).shortest.time_ms
    fail(monkeypatch, timing_program)
    chosen = best_order([long, short], profile, 1.02 * deadline, max_swaps=3)
    for each in chosen.judged:
        assert each.lower_bound_mj <= each.energy_mj
        assert each.lower_bound_mj < math.inf
    assert chosen.judged[1].plan is not None


def test_the_shortest_time_is_no_less_a_time_where_the_program_misses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule, profile = case()
    deadline = compute_frontier(schedule, profile, 2).shortest.time_ms
    fail(monkeypatch, timing_program, 2, "The problem is infeasible. (HiGHS Status 8: )")
    chosen = best_order([schedule, schedule], profile, deadline)
    assert all(each.lower_bound_mj < math.inf for each in chosen.judged)


def test_a_power_cap_is_kept_by_plans_of_the_frontier(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, profile = case()
    frontier = compute_frontier(schedule, profile, 5)
    cap = PowerCap(job_w=0.9 * frontier.shortest.energy_mj / frontier.shortest.time_ms)
    known = capped_plan(schedule, profile, frontier, cap)
    fail(monkeypatch, timing_program)
    found = capped_plan(schedule, profile, frontier, cap)
    assert found.min_ms == pytest.approx(frontier.shortest.time_ms)
    assert found.min_ms <= known.min_ms <= found.plan.time_ms < math.inf


def test_clocks_that_repeat_have_a_bound_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    periodic = one_f_one_b_of(2)
    _, profile = case()
    known = periodic_plan(periodic, profile, 4, 200.0)
    plan = known.unrolled(4)
    fail(monkeypatch, timing_program)
    found = periodic_plan(periodic, profile, 4, 200.0)
    assert found.relaxed_mj <= known.relaxed_mj <= plan.energy_mj + 20.0 * (200.0 - plan.time_ms)
    assert found.unrolled(4).time_ms <= 200.0


@pytest.mark.parametrize("module", [timing_program, switching_bound])
def test_a_bound_under_limits_holds_without_prices(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    schedule, profile = case()
    frontier = compute_frontier(schedule, profile, 5, 100.0)
    limits = SwitchingLimits(0.0, 2.0)
    known = switched_plan(schedule, profile, frontier, limits, 100.0)
    fail(monkeypatch, module)
    found = switched_plan(schedule, profile, frontier, limits, 100.0)
    assert 0 < found.lower_bound_mj <= known.lower_bound_mj * (1 + 1e-9)
    assert "so its bound is left out" in caplog.text
