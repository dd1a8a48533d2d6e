"""Several solvers as one: who is asked when, and whose answer counts, in turn and at once."""

import math
import time
from threading import Event

import pytest

from placements.shapes import nn_shape, v_shape, x_shape
from schedsearch.repetend import Repetend
from schedsearch.solver import cpsat, smt
from schedsearch.solver import portfolio as module
from schedsearch.solver.budget import AMPLE, SolverBudget
from schedsearch.solver.portfolio import portfolio
from schedsearch.solver.query import Decision, Query, Solver, Verdict

QUERY = Query(v_shape(), 1, 4)

REPETEND = smt.decide(QUERY)[1]

OTHER = smt.decide(Query(v_shape(2), 1, 4))[1]


def fake(
    answer: Verdict,
    work: float,
    repetend: Repetend | None = None,
    asked: list[float] | None = None,
    takes_s: float = 0.0,
) -> Solver:
    """Return a solver that knows an answer after some work."""

    def ask(query: Query, budget: SolverBudget = AMPLE) -> Decision:
        if asked is not None:
            asked.append(budget.work)
        end = time.monotonic() + min(takes_s, budget.timeout_s)
        while time.monotonic() < end and not (budget.unwanted is not None and budget.unwanted.is_set()):
            time.sleep(0.005)
        knows = work <= budget.work and takes_s <= budget.timeout_s
        return (answer, repetend) if knows else (Verdict.UNKNOWN, None)

    return ask


@pytest.fixture(params=[1, 2], ids=["one core", "two cores"])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As many cores as a portfolio sees."""
    monkeypatch.setattr(module, "usable_cores", lambda: request.param)
    return request.param


def test_each_round_has_four_times_the_work(cores: int) -> None:
    one, other = [], []
    both = portfolio(fake(Verdict.UNKNOWN, 0.0, asked=one), fake(Verdict.YES, 5.0, REPETEND, asked=other))
    assert both(QUERY, SolverBudget(timeout_s=30.0)) == (Verdict.YES, REPETEND)
    assert one == other == [0.5, 2.0, 8.0]


def test_the_repetend_of_whom_comes_first_counts_however_long_it_takes(cores: int) -> None:
    both = portfolio(fake(Verdict.YES, 1.0, REPETEND, takes_s=0.3), fake(Verdict.YES, 1.0, OTHER))
    assert both(QUERY, SolverBudget(timeout_s=30.0)) == (Verdict.YES, REPETEND)


def test_that_there_is_none_counts_at_once_where_both_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    asked: list[float] = []
    noted = fake(Verdict.UNKNOWN, 0.0, asked=asked)

    def unless_first(query: Query, budget: SolverBudget = AMPLE) -> Decision:
        noted(query, budget)
        if budget.unwanted is not None:
            assert budget.unwanted.wait(60.0), "it is told that nobody needs its answer"
        return Verdict.UNKNOWN, None

    assert portfolio(unless_first, fake(Verdict.NO, 1.0))(QUERY, SolverBudget(timeout_s=100.0)) == (
        Verdict.NO,
        None,
    )
    assert asked == [0.5, 2.0]


def test_unknown_when_the_time_is_over(cores: int) -> None:
    none = portfolio(*[fake(Verdict.YES, math.inf, REPETEND, takes_s=1.0)] * 2)
    assert none(QUERY, SolverBudget(timeout_s=0.2)) == (Verdict.UNKNOWN, None)


@pytest.mark.parametrize(
    "query",
    [
        Query(nn_shape().with_memory(6), 1, 8),
        Query(x_shape(6).with_memory(6), 2, 26),
        Query(v_shape(6).with_memory(4), 2, 9),
    ],
)
def test_solvers_give_one_answer_on_one_core_and_on_two(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So little work that there are several rounds."""
    monkeypatch.setattr(module, "_WORK", 1e-4)
    answers = []
    for cores in (1, 2, 2):
        monkeypatch.setattr(module, "usable_cores", lambda cores=cores: cores)
        answers.append(portfolio(smt.decide, cpsat.decide)(query, SolverBudget(timeout_s=100.0)))
    assert answers[0][0] is not Verdict.UNKNOWN
    assert answers[0] == answers[1] == answers[2]
    if (repetend := answers[0][1]) is not None:
        assert repetend.period == query.period


@pytest.mark.parametrize("solver", [smt, cpsat])
def test_work_ends_a_question_that_is_hard(solver) -> None:
    """A question that neither answers in half a minute; a tenth of a second's work takes no whole minute."""
    query = Query(nn_shape().with_memory(3), 3, 31)
    assert solver.decide(query, SolverBudget(0.1)) == (Verdict.UNKNOWN, None)
    unwanted = Event()
    unwanted.set()
    assert solver.decide(query, SolverBudget(unwanted=unwanted)) == (Verdict.UNKNOWN, None)
