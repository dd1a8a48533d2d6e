"""Several solvers as one: one answer on any number of cores, and a limit of work for hard queries."""

from threading import Event

import pytest

from placements.shapes import nn_shape, v_shape, x_shape
from schedsearch.solver import cpsat, smt
from schedsearch.solver import portfolio as module
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.portfolio import portfolio
from schedsearch.solver.query import Query, Verdict


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
