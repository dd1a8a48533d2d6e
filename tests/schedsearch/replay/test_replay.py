"""Replayed jobs: the simulator gives what was measured, orders and assignments make it shorter."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from made_up_job_traces import write_trace
from places import SHARED_DATA

from schedsearch.replay import replay as module
from schedsearch.replay.replay import ReplayedIteration, mean_of, replay
from schedsearch.replay.trace import read_job_trace
from schedsearch.unequal.unequal_search import replica_search

REAL = SHARED_DATA / "stragglers" / "trace-ST.csv.gz"


def uneven(step: int, replica: int, kind: str, block: int, n: int) -> float:
    long = 4 if (replica, n % 2) == (0, step % 2) else 1
    return long * (0.0100637 if kind == "F" else 0.0201913)


@pytest.mark.parametrize(("stages", "chunks"), [(2, 1), (3, 1), (2, 2)])
def test_own_times_in_own_order_are_what_was_measured(tmp_path: Path, stages: int, chunks: int) -> None:
    path = write_trace(tmp_path, uneven, stages=stages, chunks=chunks, message=0.001)
    told: list[ReplayedIteration] = []
    found = replay(read_job_trace(path), 0.05, on_iteration=told.append)
    assert told == found
    assert [each.step for each in found] == [3, 4]
    for each in found:
        assert each.simulated_ms == pytest.approx(each.measured_ms, rel=1e-3)
        assert each.bound_ms <= each.reassigned_ms <= each.reordered_ms <= each.simulated_ms + 1e-6
        assert each.measured_mean_ms < each.measured_ms


def test_long_micro_batches_go_to_the_replica_that_waits(tmp_path: Path) -> None:
    trace = read_job_trace(write_trace(tmp_path, uneven, steps=(0,)))
    (found,) = replay(trace, 0.2)
    assert found.moved >= 2
    assert found.reassigned_ms < 0.85 * found.reordered_ms
    assert found.reassigned_ms < 1.05 * found.reassigned_mean_ms
    mean = mean_of([found])
    assert (mean.job, mean.iterations) == ("job", 1)
    assert mean.bound_ms <= mean.reassigned_ms


def test_the_same_work_gives_the_same_answer(tmp_path: Path) -> None:
    trace = read_job_trace(write_trace(tmp_path, uneven, steps=(0,)))
    assert replay(trace, 0.1) == replay(trace, 0.1)


@pytest.mark.skipif(not REAL.exists(), reason="the measured job is not beside this checkout")
def test_the_measured_job_is_simulated_within_half_a_percent() -> None:
    trace = read_job_trace(REAL)
    assert (trace.num_stages, len(trace.steps), trace.lines) == (4, 32, ())
    some = trace._replace(steps=dict(list(trace.steps.items())[:6]))
    found = replay(some, 0.02)
    measured = fmean(each.measured_ms for each in found)
    assert fmean(each.simulated_ms for each in found) == pytest.approx(measured, rel=0.002)
    assert fmean(each.reassigned_ms for each in found) < 0.998 * measured


def test_a_limit_of_work_is_of_all_iterations_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[float] = []

    def counted(*of: Any, work_limit: float, **options: Any) -> Any:
        given.append(work_limit)
        found, answer = replica_search(*of, work_limit=1e-3, **options)
        return found, dataclasses.replace(answer, work=work_limit / 2)

    monkeypatch.setattr(module, "replica_search", counted)
    replay(read_job_trace(write_trace(tmp_path, uneven)), 2.0)
    assert given == pytest.approx([0.4, 0.6, 0.6, 0.9]), "what one leaves the next has"
