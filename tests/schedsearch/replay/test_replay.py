"""Replayed jobs: simulated times equal measured ones; orders and assignments shorten them."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest
from made_up_job_traces import table
from places import SHARED_DATA

from schedsearch.replay import replay as module
from schedsearch.replay.job import Job, job_of
from schedsearch.replay.pipeline import job_pipeline
from schedsearch.replay.replay import (
    EQUAL,
    HALVES,
    ORDER,
    REASSIGNED,
    ReplayedIteration,
    best_orders,
    changes,
    division_bound_ms,
    replay,
    variants,
)
from schedsearch.schedule import Schedule
from schedsearch.traces.reading import read_folder
from schedsearch.validate import validate

MEASURED = {"stragglers": ("ST", 32), "primus_trace": ("pp8", 18)}


def uneven(step: int, replica: int, kind: str, block: int, n: int) -> float:
    long = 4 if (replica, n % 2) == (0, step % 2) else 1
    return long * (0.0100637 if kind == "F" else 0.0201913)


def replayed(job: Job, work_limit: float) -> tuple[list[ReplayedIteration], dict[str, Schedule]]:
    made = variants(job, job_pipeline(job))
    best = best_orders(made, work_limit)
    return replay(made, best, work_limit), best


@pytest.mark.parametrize(("stages", "chunks"), [(2, 1), (3, 1), (2, 2)])
def test_own_times_in_own_order_are_what_was_measured(stages: int, chunks: int) -> None:
    job = job_of(table(uneven, stages=stages, chunks=chunks, replicas=2, message=0.001))
    iterations, best = replayed(job, 0.05)
    assert [iteration.step for iteration in iterations] == [0, 1, 2]
    for iteration in iterations:
        assert iteration.simulated_ms == pytest.approx(iteration.measured_ms, rel=1e-3)
        assert iteration.reassigned_bound_ms <= iteration.reassigned_ms <= iteration.simulated_ms + 1e-6
        assert iteration.reordered_bound_ms <= min(iteration.reordered_ms, iteration.simulated_ms) + 1e-6
        assert iteration.split_bound_ms <= iteration.split_ms
        assert iteration.equal_bound_ms <= iteration.equal_ms
    for row in changes(iterations):
        assert row.bound_ms is None or row.bound_ms <= row.pipeline_ms
    for schedule in best.values():
        validate(schedule)


def test_long_micro_batches_go_to_the_replica_that_waits() -> None:
    (iteration,), _ = replayed(job_of(table(uneven, replicas=2, steps=(0,))), 0.2)
    assert iteration.moved >= 2
    assert iteration.reassigned_ms < 0.85 * iteration.reordered_ms


def test_a_slow_place_in_the_iteration_is_not_a_long_micro_batch() -> None:
    def first_is_slow(step: int, replica: int, kind: str, block: int, n: int) -> float:
        return (3 if n == 0 else 1) * (0.010 if kind == "F" else 0.020)

    job = job_of(table(first_is_slow, stages=3, number=6, steps=range(10)))
    iterations, best = replayed(job, 0.2)
    assert fmean(row.reordered_ms for row in iterations) == pytest.approx(iterations[0].simulated_ms)
    taken = [number for name, number in best[ORDER].order(0) if name == "F0"]
    assert taken == sorted(taken)


def test_halves_of_backwards_and_equal_stages_are_shorter() -> None:
    def last_is_slow(step: int, replica: int, kind: str, block: int, n: int) -> float:
        return (1.3 if block == 2 else 1) * (0.010 if kind == "F" else 0.020)

    job = job_of(table(last_is_slow, stages=3, number=6))
    iterations, _ = replayed(job, 0.5)
    rows = {row.change: row for row in changes(iterations)}
    assert rows[HALVES].pipeline_ms < rows[ORDER].pipeline_ms
    assert rows[EQUAL].pipeline_ms == pytest.approx(1.1 * 30 * 8)
    assert REASSIGNED not in rows


def test_no_division_beats_its_bound() -> None:
    job = job_of(table(even, stages=2, number=2, steps=(0,)))
    times = job_pipeline(job).delays.times(job.steps[0][0])
    # two stages, two micro-batches of 60 ms: 2 a and 2 b + a are equal where a = 2 b
    assert division_bound_ms(times, job) == pytest.approx(2 * 40)


def even(step: int, replica: int, kind: str, block: int, n: int) -> float:
    return 0.010 if kind == "F" else 0.020


def test_the_same_work_gives_the_same_answer() -> None:
    job = job_of(table(uneven, replicas=2, steps=(0,)))
    assert replayed(job, 0.1)[0] == replayed(job, 0.1)[0]


@pytest.mark.parametrize("folder", [*MEASURED])
def test_measured_jobs_are_simulated_within_half_a_percent(folder: str) -> None:
    if not (SHARED_DATA / folder).exists():
        pytest.skip("the measured job is not beside this checkout")
    (job,) = [job_of(table) for table in read_folder(SHARED_DATA / folder)]
    assert (job.name, len(job.steps)) == MEASURED[folder]
    assert job.lines == ()
    some = job._replace(steps=dict([*job.steps.items()][:8]))
    iterations, _ = replayed(some, 0.5)
    measured = fmean(iteration.measured_ms for iteration in iterations)
    assert fmean(iteration.simulated_ms for iteration in iterations) == pytest.approx(measured, rel=0.005)


def test_a_limit_of_work_is_of_all_iterations_together(monkeypatch: pytest.MonkeyPatch) -> None:
    job, given, real = job_of(table(uneven, replicas=2, steps=(0, 1))), list[float](), module._reassigned
    made = variants(job, job_pipeline(job))
    best = best_orders(made, 0.05)

    def counted(*of: Any) -> Any:
        given.append(of[3])
        return real(*of[:3], 1e-3, of[4])

    monkeypatch.setattr(module, "_reassigned", counted)
    replay(made, best, 2.0)
    assert given[0] == 1.0
    assert given[1] > 1.9, "what one leaves the next has"
