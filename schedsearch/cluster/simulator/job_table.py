"""The jobs of a simulation: as they arrive, each checked then, and how far each one is, as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.demand import FloatArray, IntArray
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.simulator.outcome import JobOutcome
from schedsearch.cluster.throughputs import Throughputs

_FIRST_SIZE = 64


class ClusterProgress(NamedTuple):
    """How far a simulation is.

    Attributes:
        jobs_done: Jobs done, of those that are wanted.
        jobs_wanted: 0 where the trace does not tell.
        simulated_h: Hours since the begin of the trace.
        active_jobs: Jobs that have arrived and are not done.
    """

    jobs_done: int
    jobs_wanted: int
    simulated_h: float
    active_jobs: int


_OF_OUTCOME = {one.name: one.default for one in fields(JobOutcome) if one.name not in ("job", "steps_done")}
"""Columns that are fields of a `JobOutcome` too, with what they are at first."""

_COLUMNS = {"steps_left": 0.0, "steps_saved": 0.0, "isolated_steps_per_s": math.nan, **_OF_OUTCOME}

_BLANK = np.array(tuple(_COLUMNS.values()), dtype=[(name, type(value)) for name, value in _COLUMNS.items()])
"""The row of a job at first."""


class JobTable:
    """All jobs that arrived.

    Attributes:
        jobs: In the order of arrival.
        index: Index of each active job by name, in the order of arrival.
        rows: A row for each job, and blank ones after the last. Columns are those of `JobOutcome` and
            ``steps_left``, until it is done, exactly 0 then; ``steps_saved``, which it had left when its
            lease began; and ``isolated_steps_per_s``, on its own share of the cluster, since the last
            decision.
    """

    def __init__(self) -> None:
        """Begin without jobs."""
        self.jobs: list[Job] = []
        self.index: dict[str, int] = {}
        self.rows: npt.NDArray[np.void] = np.full(_FIRST_SIZE, _BLANK)

    def add(self, job: Job) -> None:
        """Add a job that arrived."""
        number = len(self.jobs)
        if number == len(self.rows):
            self.rows = np.concatenate([self.rows, np.full(number, _BLANK)])
        self.jobs.append(job)
        self.index[job.name] = number
        self.rows["steps_left"][number] = job.steps

    def active(self, names: list[str], now_s: float) -> list[ActiveJob]:
        """Return active jobs as a policy sees them."""
        numbers = [self.index[name] for name in names]
        left, isolated = self.rows["steps_left"][numbers].tolist(), self.rows["isolated_s"][numbers].tolist()
        return [
            ActiveJob(self.jobs[number], steps, now_s - self.jobs[number].arrival_s, isolated_s)
            for number, steps, isolated_s in zip(numbers, left, isolated, strict=True)
        ]

    def begin(self, numbers: IntArray, renewed: npt.NDArray[np.bool_], start_s: float) -> None:
        """Note which jobs run in a round that begins, and whether each keeps its GPUs."""
        self.rows["renewals"][numbers[renewed]] += 1
        new = numbers[~renewed]
        first = new[self.rows["starts"][new] == 0]
        self.rows["first_start_s"][first] = start_s
        self.rows["starts"][new] += 1
        self.rows["steps_saved"][new] = self.rows["steps_left"][new]

    def advance(self, numbers: IntArray, steps: FloatArray, steps_left: FloatArray) -> None:
        """Note steps of jobs, below 0 where they lost some, and what they have left then."""
        self.rows["isolated_s"][numbers] += steps / self.rows["isolated_steps_per_s"][numbers]
        self.rows["steps_left"][numbers] = steps_left

    def outcomes(self) -> tuple[JobOutcome, ...]:
        """Return what became of all jobs until now."""
        rows = self.rows[: len(self.jobs)]
        columns = zip(self.jobs, rows["steps_left"].tolist(), rows[[*_OF_OUTCOME]].tolist(), strict=True)
        return tuple(JobOutcome(job, job.steps - left, *row) for job, left, row in columns)


def arriving(trace: Iterable[Job], cluster: GpuCluster, throughputs: Throughputs) -> Iterator[Job]:
    """Yield the jobs of a trace, which may be without end; a sequence is checked as a whole before.

    Raises:
        ClusterError: A job cannot run anywhere, arrives before the one above it, or has a name again.
    """
    if isinstance(trace, Sequence):
        for _ in _checked(trace, cluster, throughputs):
            pass
    yield from _checked(trace, cluster, throughputs)


def _checked(trace: Iterable[Job], cluster: GpuCluster, throughputs: Throughputs) -> Iterator[Job]:
    names, last_s = set[str](), 0.0
    for job in trace:
        if job.name in names:
            raise ClusterError(f"job {job.name} is there twice in the trace; give each job its own name")
        if job.arrival_s < last_s:
            raise ClusterError(
                f"job {job.name}: arrival_s: {job.arrival_s!r} is before the job above it; sort the trace"
            )
        names.add(job.name)
        last_s = job.arrival_s
        largest = max(cluster.workers, key=lambda gpu_type: cluster.workers[gpu_type])
        if job.scale_factor > cluster.workers[largest]:
            raise ClusterError(
                f"job {job.name}: scale_factor: {job.scale_factor} GPUs are more than any type has; "
                f"{largest} has most, {cluster.workers[largest]}; ask for fewer, or give more"
            )
        if not can_run(job, cluster, throughputs):
            fitting = [name for name, workers in cluster.workers.items() if workers >= job.scale_factor]
            raise ClusterError(
                f"job {job.name}: {job.type!r} on {job.scale_factor} GPUs has no throughput on "
                f"{', '.join(fitting)}; add one, or leave the job out"
            )
        yield job


def can_run(job: Job, cluster: GpuCluster, throughputs: Throughputs) -> bool:
    """Return whether a job has a throughput on a type with enough GPUs, in servers as they are there."""
    return throughputs.can_run(cluster, job.type, job.scale_factor)
