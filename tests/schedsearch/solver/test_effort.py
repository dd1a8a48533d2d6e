"""Work is counted the same each time, and compilation takes nothing of the time limit."""

from __future__ import annotations

import time

import pytest
from numba.core.event import trigger_event

import schedsearch.graph.compiled  # noqa: F401 - tells of compilations
from placements.shapes import v_shape, x_shape
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.effort import Effort
from schedsearch.solver.portfolio import SOLVERS
from schedsearch.solver.query import Query, Verdict


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(
    ("query", "work"),
    [(Query(v_shape(6).with_memory(4), 2, 9), 60.0), (Query(x_shape(8).with_memory(5), 3, 25), 0.2)],
)
def test_a_solver_counts_the_same_work_each_time(name: str, query: Query, work: float) -> None:
    counted = []
    for _ in range(2):
        effort = Effort()
        answer, _ = SOLVERS[name]()(query, SolverBudget(work, spend=effort.spend))
        counted.append((answer, effort.spent))
    assert counted[0] == counted[1]
    assert effort.spent > 0
    if answer is Verdict.UNKNOWN:
        assert work <= effort.spent <= 2 * work + 0.5, "and a model is made each time"


def test_the_compiler_takes_nothing_of_the_time_limit() -> None:
    """A first search after an installation once ended while its annealing was compiled."""
    effort = Effort(time.monotonic() + 10)
    left_s = effort.left_s
    with trigger_event("numba:compile"), trigger_event("numba:compile"):
        time.sleep(0.02)
    assert effort.left_s > left_s - 0.02
