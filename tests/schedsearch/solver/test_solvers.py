"""Z3 and CP-SAT answer the same questions in the same way."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from interrupting import interrupted
from oracles import min_period
from ortools.sat.python import cp_model
from strategies import placements as random_placements
from strategies import tight

from placements import Placement
from placements.shapes import nn_shape, v_shape
from schedsearch.metrics import peak_memory
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.proof.check.claims import check
from schedsearch.searches.certificate import certificate_of
from schedsearch.searches.search import search
from schedsearch.solver import cpsat, smt
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.query import Query, Verdict
from schedsearch.validate import validate


@settings(max_examples=20, deadline=None)
@given(
    random_placements(),
    st.integers(1, 2),
    st.integers(3, 30),
    st.none() | st.integers(3, 30),
    st.integers(0, 2),
)
def test_they_agree(
    placement: Placement, micro_batches: int, period: int, span: int | None, spare: int
) -> None:
    placement = tight(placement, spare)
    query = Query(placement, micro_batches, period, span)
    one, _ = smt.decide(query, SolverBudget(0.5))
    other, repetend = cpsat.decide(query, SolverBudget(0.5))
    assume(Verdict.UNKNOWN not in (one, other))  # Z3 takes minutes for one of some thousand
    assert one is other
    if repetend is not None:
        assert repetend.period == period
        assert span is None or repetend.span <= span
        validate(repetend.at_initiation_interval(4))


@settings(max_examples=20, deadline=None)
@given(
    random_placements(max_devices=2, max_forward=2, max_time=2, max_transfer=1, by_device=True),
    st.integers(0, 2),
)
def test_equal_optima_where_memory_differs_by_device(placement: Placement, spare: int) -> None:
    """Optima equal brute force; schedules are valid on every device, and proofs can be rechecked."""
    placement = tight(placement, spare)
    least = min_period(placement, longest=sum(block.time for block in placement.blocks) + 4)
    for solver in ("z3", "cpsat"):
        result = search(placement, 3, solver=solver, micro_batches_per_repetend=1, objectives=["period"])
        assert (result.repetend.period if result.repetend else None) == least
        if result.repetend is not None:
            assert check(certificate_of(placement, result)).optimal
            assert list(result.repetend.peak_memory) == peak_memory(result.repetend.unroll(20)).tolist()
            validate(result.repetend.unroll(20))


@pytest.mark.parametrize("decide", [smt.decide, cpsat.decide])
def test_ctrl_c_is_kept_for_a_place_where_it_can_be_raised(decide) -> None:
    with pytest.raises(KeyboardInterrupt), INTERRUPTS.watched():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            decide(Query(v_shape(), 1, 4))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert decide(Query(v_shape(), 1, 4))[0] is Verdict.YES, "whoever comes next was not interrupted"


@pytest.mark.parametrize("solver", [smt, cpsat])
def test_ctrl_c_ends_a_wait(solver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that neither solver answers in half a minute."""
    monkeypatch.setattr(solver, "interruptible", interrupted)
    hard = nn_shape().with_memory(3)
    with pytest.raises(KeyboardInterrupt), INTERRUPTS.watched():
        solver.decide(Query(hard, 3, 31), SolverBudget(timeout_s=100))


def test_ctrl_c_ends_what_all_threads_and_those_that_work_for_them_wait_for() -> None:
    def seen() -> bool:
        with INTERRUPTS.answered() as ending, ThreadPoolExecutor(1) as helpers:
            begun.set()
            assert ended.wait(60)
            assert helpers.submit(lambda: INTERRUPTS.seen).result(timeout=300)
        return ending.interrupted

    begun, ended = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as executor, INTERRUPTS.answered() as ending:
        answer = executor.submit(seen)
        assert begun.wait(60)
        signal.raise_signal(signal.SIGINT)
        ended.set()
        assert answer.result(timeout=300)
    assert ending.interrupted


def test_ctrl_c_after_the_last_question_is_not_lost() -> None:
    with INTERRUPTS.answered() as ending:
        pass
    assert not ending.interrupted
    with INTERRUPTS.answered() as ending:
        with INTERRUPTS.answered() as inner:
            signal.raise_signal(signal.SIGINT)
        assert inner.interrupted
    assert ending.interrupted


def test_a_solver_that_fails_on_its_hints_is_asked_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As OR-Tools 9.15 does, rarely, with an error inside its presolve."""
    asked: list[int] = []
    solve = cp_model.CpSolver.solve

    def fail_on_hints(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
        asked.append(len(model.proto.solution_hint.vars))
        if asked[-1]:
            raise IndexError("absl::btree_map::at")
        return solve(solver, model)

    monkeypatch.setattr(cp_model.CpSolver, "solve", fail_on_hints)
    model = CpSatModel()
    number = model.new_int_var(0, 9, "number")
    model.add_hint(number, 3)
    model.maximize(number)
    solver = cp_model.CpSolver()
    assert cpsat.solve(solver, model) is Verdict.YES
    assert asked == [1, 0]
    assert solver.value(number) == 9
