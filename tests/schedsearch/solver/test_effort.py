"""Work is counted the same each time, and ends what the time limit does not."""

from __future__ import annotations

import time

import pytest
from numba.core.event import trigger_event

import schedsearch.graph.compiled  # noqa: F401 - tells of compilations
from placements.shapes import v_shape, x_shape
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.effort import Effort, OutOfTimeError, OutOfWorkError
from schedsearch.solver.interrupts import INTERRUPTS
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


def test_time_ends_it() -> None:
    assert Effort().require_s() > 1e9
    assert 500 < Effort(time.monotonic() + 1000.0).require_s() <= 1000
    with pytest.raises(OutOfTimeError):
        Effort(time.monotonic()).require_s()


def test_work_ends_it_and_no_call_gets_more_than_is_left() -> None:
    effort = Effort(limit=3.0)
    effort.spend(2.0)
    assert [effort.budget(work, seed=0).work for work in (0.5, 5.0)] == [0.5, 1.0]
    effort.budget(1.0, seed=0).spend(1.0)
    assert effort.is_over
    with pytest.raises(OutOfWorkError):
        effort.require_s()


def test_a_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(INTERRUPTS, "seen", True)
    with pytest.raises(KeyboardInterrupt):
        Effort().require_s()


@pytest.mark.parametrize(
    ("raised", "ended"),
    [
        (None, (False, False, False)),
        (OutOfTimeError, (False, True, False)),
        (OutOfWorkError, (False, False, True)),
        (KeyboardInterrupt, (True, False, False)),
    ],
)
def test_what_ended_it_is_told(raised: type[BaseException] | None, ended: tuple[bool, bool, bool]) -> None:
    with Effort().answered() as ending:
        if raised is not None:
            raise raised
    assert (ending.interrupted, ending.out_of_time, ending.out_of_work) == ended


def test_each_round_is_as_long_as_all_before_it_and_none_goes_on_in_vain() -> None:
    effort, ends = Effort(limit=30.0), []
    with pytest.raises(OutOfWorkError):
        for end in effort.rounds(2.5):
            ends.append(end)
            effort.spend(1.0)
    assert ends == [2.5, 5.0, 10.0, 20.0, 40.0]
    assert len(list(Effort().rounds(1e-9))) == 20


def test_the_compiler_takes_nothing_of_the_time_limit() -> None:
    """A first search after an installation once ended while its annealing was compiled."""
    effort = Effort(time.monotonic() + 10)
    left_s = effort.left_s
    with trigger_event("numba:compile"), trigger_event("numba:compile"):
        time.sleep(0.02)
    assert effort.left_s > left_s - 0.02
