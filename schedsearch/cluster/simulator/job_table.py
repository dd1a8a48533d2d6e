"""How far each job is while a simulation runs, as arrays with one entry for each job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.demand import FloatArray, IntArray
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.simulator.outcome import JobOutcome

_FIRST_SIZE = 64


class Progress(NamedTuple):
    """How far a simulation is.

    Attributes:
        jobs_done: Of those that are wanted.
        jobs_wanted: 0 where the trace does not tell.
        simulated_h: Hours since the begin of the trace.
        active_jobs: Jobs that have arrived and are not done.
    """

    jobs_done: int
    jobs_wanted: int
    simulated_h: float
    active_jobs: int


_FLOATS = {
    "steps_left": 0.0,
    "steps_saved": 0.0,
    "isolated_s": 0.0,
    "isolated_steps_per_s": np.nan,
    "first_start_s": np.nan,
    "finish_s": np.nan,
    "gpu_s": 0.0,
    "dollars": 0.0,
    "kwh": 0.0,
}
_COUNTS = ("starts", "renewals", "failures")


class JobTable:
    """All jobs that arrived; most columns are those of `JobOutcome`.

    Attributes:
        jobs: In the order of arrival.
        index: Of each active job by name, in the order of arrival.
        steps_left: Until it is done; exactly 0 then.
        steps_saved: Steps that it had left when its lease began.
        isolated_steps_per_s: On its own share of the cluster, since the last decision.
    """

    steps_left: FloatArray
    steps_saved: FloatArray
    isolated_s: FloatArray
    isolated_steps_per_s: FloatArray
    first_start_s: FloatArray
    finish_s: FloatArray
    gpu_s: FloatArray
    dollars: FloatArray
    kwh: FloatArray
    starts: IntArray
    renewals: IntArray
    failures: IntArray

    def __init__(self) -> None:
        """Begin without jobs."""
        self.jobs: list[Job] = []
        self.index: dict[str, int] = {}
        for name, value in _FLOATS.items():
            setattr(self, name, np.full(_FIRST_SIZE, value))
        for name in _COUNTS:
            setattr(self, name, np.zeros(_FIRST_SIZE, dtype=np.int64))

    def add(self, job: Job) -> None:
        """Add a job that arrived."""
        number = len(self.jobs)
        if number == len(self.steps_left):
            for name in (*_FLOATS, *_COUNTS):
                grown = np.concatenate([getattr(self, name)] * 2)
                grown[number:] = _FLOATS.get(name, 0)
                setattr(self, name, grown)
        self.jobs.append(job)
        self.index[job.name] = number
        self.steps_left[number] = job.steps

    def active(self, names: list[str], now_s: float) -> list[ActiveJob]:
        """Return active jobs as a policy sees them."""
        numbers = [self.index[name] for name in names]
        left, isolated = self.steps_left[numbers].tolist(), self.isolated_s[numbers].tolist()
        return [
            ActiveJob(self.jobs[number], steps, now_s - self.jobs[number].arrival_s, isolated_s)
            for number, steps, isolated_s in zip(numbers, left, isolated, strict=True)
        ]

    def begin(self, numbers: IntArray, renewed: npt.NDArray[np.bool_], start_s: float) -> None:
        """Note which jobs run in a round that begins, and whether each keeps its GPUs."""
        self.renewals[numbers[renewed]] += 1
        new = numbers[~renewed]
        first = new[self.starts[new] == 0]
        self.first_start_s[first] = start_s
        self.starts[new] += 1
        self.steps_saved[new] = self.steps_left[new]

    def advance(self, numbers: IntArray, steps: FloatArray, steps_left: FloatArray) -> None:
        """Note steps of jobs, below 0 where they lost some, and what they have left then."""
        self.isolated_s[numbers] += steps / self.isolated_steps_per_s[numbers]
        self.steps_left[numbers] = steps_left

    def outcomes(self) -> tuple[JobOutcome, ...]:
        """Return what became of all jobs until now."""
        columns = ("first_start_s", "finish_s", "isolated_s", "gpu_s", "dollars", "kwh", *_COUNTS)
        rows = zip(*(getattr(self, name)[: len(self.jobs)].tolist() for name in columns), strict=True)
        left = self.steps_left[: len(self.jobs)].tolist()
        return tuple(
            JobOutcome(job, job.steps - steps, *row)
            for job, steps, row in zip(self.jobs, left, rows, strict=True)
        )
