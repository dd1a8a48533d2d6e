"""Workers that search side by side: as good as one alone, the same twice, and none is waited for in vain."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from placements import Placement
from placements.shapes import m_shape, nn_shape, v_shape
from schedsearch.core import team
from schedsearch.core.answer import Answer, EndedBy, SearchError, SearchProgress, Status
from schedsearch.core.objective import Objective
from schedsearch.procedures.team_search import best_of, objective_value
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.searches.search import search
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch
from schedsearch.validate import validate

OPEN = nn_shape(8).with_memory(8)
"""A placement whose search is not proved in some seconds."""


def values(answer: Answer) -> list[float]:
    return [objective_value(answer, objective) for objective in (Objective.PERIOD, Objective.MAKESPAN)]


def test_two_workers_end_the_same_twice_and_no_worse_than_one() -> None:
    progress: list[SearchProgress] = []
    one = search(OPEN, 32, work_limit=5.5)
    two, again = (search(OPEN, 32, work_limit=5.5, workers=2, on_progress=progress.append) for _ in range(2))
    assert values(two) <= values(one)
    assert two.makespan_bound >= one.makespan_bound
    assert two.queries > one.queries
    assert two.ended_by is EndedBy.WORK_LIMIT
    assert validate(two.schedule) == two.schedule
    assert schedule_to_dict(two.schedule) == schedule_to_dict(again.schedule)
    assert (two.repetend, two.period_bound, two.work) == (again.repetend, again.period_bound, one.work)
    of_makespan = [step.best for step in progress[: len(progress) // 2] if step.phase == Objective.MAKESPAN]
    assert of_makespan == sorted(of_makespan, reverse=True)


@pytest.mark.parametrize("placement", [v_shape(4).with_memory(4), m_shape(2)])
def test_a_proof_ends_all(placement: Placement) -> None:
    began = time.monotonic()
    answer, alone = search(placement, 8, workers=2, work_limit=500), search(placement, 8)
    assert (answer.status, answer.ended_by) == (Status.OPTIMAL, EndedBy.PROOF)
    assert values(answer) == values(alone)
    assert time.monotonic() - began < 60


def test_a_worker_that_is_killed_is_left_out_with_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = list[team._Process]()

    class Killed(team._Process):
        def __init__(self, call: str) -> None:
            super().__init__(call)
            if not kept:
                self._process.send_signal(signal.SIGKILL)
            kept.append(self)

    monkeypatch.setattr(team, "_Process", Killed)
    answer, alone = search(OPEN, 32, work_limit=3, workers=3), search(OPEN, 32, work_limit=3)
    assert values(answer) <= values(alone)
    (line,) = caplog.messages
    assert line == "search.workers: worker 2 is left out, the others go on: signal 9"
    assert all(worker._process.poll() is not None for worker in kept)


def test_a_worker_that_fails_is_left_out_with_its_last_words(caplog: pytest.LogCaptureFixture) -> None:
    with team.Leader(int, ["many"], team.Effort()) as leader:
        assert leader.finish(team.Ending(out_of_work=True), 1.0) == []
    assert caplog.messages == [
        "search.workers: worker 2 is left out, the others go on: exit code 1: TypeError: '_Follower' object "
        "cannot be interpreted as an integer"
    ]


def test_ctrl_c_keeps_the_best_of_all_workers() -> None:
    stop = threading.Timer(6.0, os.kill, (os.getpid(), signal.SIGINT))
    stop.start()
    began = time.monotonic()
    answer = search(OPEN, 32, time_limit_s=100, workers=2)
    assert answer.ended_by is EndedBy.INTERRUPT
    assert time.monotonic() - began < 25
    assert validate(answer.schedule).makespan >= answer.makespan_bound


def test_what_another_worker_found_is_taken_over() -> None:
    """The shortest schedule and the highest bounds count, whoever has them: a team may prove its answer."""
    poor = search(OPEN, 32, work_limit=0.5, strategies=["greedy", "queries"])
    good = search(OPEN, 32, work_limit=3)
    wanted = (Objective.PERIOD, Objective.MAKESPAN)
    assert values(best_of(poor, [good], wanted)) == [*map(min, values(poor), values(good))]
    bounds = replace(good, period_bound=values(good)[0], makespan_bound=good.schedule.makespan)
    proved = best_of(good, [bounds], wanted)
    assert (proved.status, proved.ended_by) == (Status.OPTIMAL, EndedBy.PROOF)
    impossible = replace(poor, status=Status.INFEASIBLE, schedule=None, repetend=None)
    assert best_of(good, [impossible], wanted) is impossible


@pytest.mark.parametrize("replicas", [1, 2])
def test_unequal_micro_batches(replicas: int) -> None:
    from schedsearch.unequal.replica_work import replica_work
    from schedsearch.unequal.unequal_search import replica_search

    placement = v_shape(4, 1, 2)
    times = [1 + (7 * n * n + 3 * n) % 11 for n in range(24)]
    rows = [MicroBatchRow(n, block.name, float(t)) for n, t in enumerate(times) for block in placement.blocks]
    work = replica_work(unequal_batch(placement, rows), replicas)
    searches = (replica_search(work, work_limit=1, workers=workers) for workers in (1, 2, 2))
    (one, _), (two, answer), (again, _) = searches
    assert two.value(Objective.MAKESPAN) <= one.value(Objective.MAKESPAN)
    assert two == again
    assert answer.makespan_bound <= two.value(Objective.MAKESPAN)


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, message in (
        ({"workers": 0}, "search.workers: 0 is not at least 1"),
        (
            {"workers": 2, "method": "tessel"},
            "search.workers: tessel searches in one process; leave it out or",
        ),
    ):
        with pytest.raises(SearchError, match=f"^{message}"):
            search(v_shape(2), 4, **options)
    with pytest.raises(ValueError, match="^search.workers: 1000 are too many here; give up to "):
        search(v_shape(2), 4, workers=1000)
    monkeypatch.setenv("RAY_ADDRESS", "nowhere:1")
    with pytest.raises(ValueError, match=r"^RAY_ADDRESS: nowhere:1: .*; start the cluster, or unset it$"):
        search(v_shape(2), 4, workers=2)
