"""The outcome of a simulation: every job, the cluster over time, and the numbers that follow.

It does not know how these were found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.allocation import UsedConfiguration
from schedsearch.cluster.demand import FloatArray, IntArray
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job

PERCENTILES = (50, 90, 95, 99)
"""Percentiles of job completion times that are reported."""

_METRICS = (
    *("makespan_s", "utilisation", "average_finish_time_ratio", "dollars", "kwh", "slo_violations"),
    *("slo_violation_share", "preemptions", "lease_renewals", "share_error"),
)
"""Numbers of an outcome that are reported besides completion times."""


@dataclass(frozen=True)
class JobOutcome:
    """The course of one job.

    Attributes:
        job: What was submitted.
        steps_done: Steps done by the end of the simulation.
        first_start_s: Begin of its first round; nan where it never ran.
        finish_s: When its last step ended; nan where it is not done.
        isolated_s: What its steps would have taken on its own share of the cluster: 1/n of the GPUs of
            each type, where n is the number of active jobs at the decision before these steps, as in
            Gavel's code (dissertation, Sec. 5.4.2, leaves n over time open).
        gpu_s: GPU seconds in which it ran, alone or beside another.
        dollars: Its part of the price of its GPUs; two jobs on the same GPUs pay half each.
        kwh: Its part of their energy.
        starts: Leases of GPUs; one more than it was stopped or moved.
        renewals: Rounds in which it kept the GPUs of the round before.
        failures: Rounds that a GPU's failure ended.
    """

    job: Job
    steps_done: float = 0.0
    first_start_s: float = math.nan
    finish_s: float = math.nan
    isolated_s: float = 0.0
    gpu_s: float = 0.0
    dollars: float = 0.0
    kwh: float = 0.0
    starts: int = 0
    renewals: int = 0
    failures: int = 0

    @property
    def is_done(self) -> bool:
        """Return whether all its steps are done."""
        return not math.isnan(self.finish_s)

    @property
    def jct_s(self) -> float:
        """Return its completion time, from its arrival; nan where it is not done."""
        return self.finish_s - self.job.arrival_s

    @property
    def finish_time_ratio(self) -> float:
        """Return its finish-time fairness rho: completion time over `isolated_s`; nan if it is not done."""
        return self.jct_s / self.isolated_s if self.is_done else math.nan

    @property
    def preemptions(self) -> int:
        """Return how often it lost its GPUs before it was done."""
        return max(self.starts - 1, 0)


@dataclass(frozen=True, eq=False)
class RoundSeries:
    """The cluster in each round, as arrays with one entry for each round.

    Attributes:
        start_s: When it began.
        busy_gpus: GPUs of each type that ran a job, shape (rounds, types).
        active_jobs: Those that had arrived and were not done.
        waiting_jobs: Those of them that did not run.
    """

    start_s: FloatArray
    busy_gpus: IntArray
    active_jobs: IntArray
    waiting_jobs: IntArray


@dataclass(frozen=True, eq=False)
class DecisionSeries:
    """The decisions of the policy, as arrays with one entry for each.

    Attributes:
        time_s: When it was made.
        jobs: Active jobs that it was about.
        error: Mean over the configurations with a share, or that ran, of the difference between the share
            of the time that was received until the next decision and the target; nan where no time passed.
        shortfall: The most that a configuration got less than its target; 0 where none did.
    """

    time_s: FloatArray
    jobs: IntArray
    error: FloatArray
    shortfall: FloatArray


class Snapshot(NamedTuple):
    """An allocation that was kept: its time, and the configurations that have a share."""

    time_s: float
    shares: tuple[UsedConfiguration, ...]


class JobRun(NamedTuple):
    """One configuration in one round.

    Attributes:
        jobs: Index of the job, or of both, in the order of arrival.
        gpu_type: Index of the type.
        gpu_ids: Ids of its GPUs among those of the type; server k has those from k times its size.
        steps_per_s: Speed of each job.
        power_w: Power of all its GPUs.
        first_step_s: When its jobs began, after what their start cost.
        end_s: When its last job stopped, or one of its GPUs failed.
        steps: Steps of each job, kept at the end of the round; below 0 where a failure took back more.
        renewed: Whether each job kept its GPUs of the round before.
        failed: A GPU failed before its jobs stopped.
    """

    jobs: tuple[int, ...]
    gpu_type: int
    gpu_ids: tuple[int, ...]
    steps_per_s: tuple[float, ...]
    power_w: float
    first_step_s: float
    end_s: float
    steps: tuple[float, ...]
    renewed: tuple[bool, ...]
    failed: bool = False


class Round(NamedTuple):
    """Who ran in one round that began at `start_s`."""

    start_s: float
    runs: tuple[JobRun, ...]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a simulation.

    Attributes:
        policy: Its name.
        cluster: What there was.
        round_s: Length of a round.
        window: First job that counts, and the one after the last, in the order of arrival.
        end_s: When the simulation ended.
        reason: Why it ended before all that was asked for was done; "" where it is.
        jobs: All that had arrived, in the order of arrival.
        busy_s: Seconds in which GPUs of each type ran a job, summed over its GPUs.
        idle_kwh: Energy of GPUs that ran no job.
        rounds: The cluster over time.
        decisions: Decisions of the policy.
        snapshots: Allocations that were kept.
        recorded: Who ran in each round, where that was asked for.
    """

    policy: str
    cluster: GpuCluster
    round_s: float
    window: tuple[int, int]
    end_s: float
    reason: str
    jobs: tuple[JobOutcome, ...]
    busy_s: Mapping[str, float]
    idle_kwh: float
    rounds: RoundSeries
    decisions: DecisionSeries
    snapshots: tuple[Snapshot, ...] = ()
    recorded: tuple[Round, ...] = ()

    @cached_property
    def measured(self) -> tuple[JobOutcome, ...]:
        """Return the jobs of the window that arrived."""
        return self.jobs[slice(*self.window)]

    @property
    def missing(self) -> str:
        """Return why it ended early and what is not there, in one line; "" where all jobs are done."""
        wanted = self.window[1] - self.window[0]
        done = sum(one.is_done for one in self.measured)
        if done == wanted:
            return ""
        late = wanted - len(self.measured)
        return (
            f"{self.reason}: {wanted - done} of {wanted} jobs are not done at {self.end_s / 3600:.1f} h, "
            f"{late} of them have not arrived; averages are of those that are done"
        )

    @cached_property
    def jcts_s(self) -> FloatArray:
        """Return the completion times of the window's jobs that are done, in the order of arrival."""
        return np.array([one.jct_s for one in self.measured if one.is_done], dtype=np.float64)

    @property
    def average_jct_s(self) -> float:
        """Return the mean completion time; nan where no job is done."""
        return float(self.jcts_s.mean()) if len(self.jcts_s) else math.nan

    @property
    def jct_percentiles_s(self) -> dict[int, float]:
        """Return percentiles of the completion times, linear between neighbours; nan without any."""
        if not len(self.jcts_s):
            return dict.fromkeys(PERCENTILES, math.nan)
        return {one: float(np.percentile(self.jcts_s, one)) for one in PERCENTILES}

    @property
    def makespan_s(self) -> float:
        """Return the time from the first arrival to the last finish of the window's jobs; nan without any."""
        finished = [one.finish_s for one in self.measured if one.is_done]
        if not finished:
            return math.nan
        return max(finished) - min(one.job.arrival_s for one in self.measured)

    @property
    def utilisation(self) -> float:
        """Return the mean share of the time, from 0 to the end, in which a GPU ran a job."""
        return sum(self.busy_s.values()) / (self.cluster.num_gpus * self.end_s) if self.end_s > 0 else 0.0

    @cached_property
    def finish_time_ratios(self) -> FloatArray:
        """Return the finish-time fairness rho of the window's jobs that are done."""
        return np.array([one.finish_time_ratio for one in self.measured if one.is_done], dtype=np.float64)

    @property
    def average_finish_time_ratio(self) -> float:
        """Return the mean finish-time fairness rho; nan where no job is done."""
        return float(self.finish_time_ratios.mean()) if len(self.finish_time_ratios) else math.nan

    @property
    def dollars(self) -> float:
        """Return what all jobs paid, those outside the window too."""
        return math.fsum(one.dollars for one in self.jobs)

    @property
    def kwh(self) -> float:
        """Return the energy of all jobs and of idle GPUs."""
        return math.fsum(one.kwh for one in self.jobs) + self.idle_kwh

    @property
    def slo_violations(self) -> int:
        """Return how many of the window's jobs were late, or are not done although their time is over."""
        return int(sum(self.is_late(one) for one in self.measured))

    @property
    def slo_violation_share(self) -> float:
        """Return the late ones' share of the window's jobs that have an SLO; 0 where none has."""
        with_slo = sum(math.isfinite(one.job.slo_s) for one in self.measured)
        return self.slo_violations / with_slo if with_slo else 0.0

    @property
    def preemptions(self) -> int:
        """Return how often jobs of the window lost their GPUs before they were done."""
        return sum(one.preemptions for one in self.measured)

    @property
    def lease_renewals(self) -> int:
        """Return how often jobs of the window kept their GPUs for one more round."""
        return sum(one.renewals for one in self.measured)

    @property
    def share_error(self) -> float:
        """Return `DecisionSeries.error`, averaged over time; nan where nothing was measured."""
        lengths = np.diff(np.append(self.decisions.time_s, self.end_s))
        counts: npt.NDArray[np.bool_] = np.isfinite(self.decisions.error)
        if not lengths[counts].sum():
            return math.nan
        return float(np.average(self.decisions.error[counts], weights=lengths[counts]))

    @property
    def metrics(self) -> dict[str, float]:
        """Return all numbers by name; times in s, energy in kWh."""
        percentiles = {f"jct_p{one}_s": value for one, value in self.jct_percentiles_s.items()}
        return {"average_jct_s": self.average_jct_s, **percentiles} | {
            name: getattr(self, name) for name in _METRICS
        }

    def is_late(self, one: JobOutcome) -> bool:
        """Return whether a job is done after its SLO, or is not done although its time is over."""
        return self.end_of(one) - one.job.arrival_s > one.job.slo_s

    def end_of(self, one: JobOutcome) -> float:
        """Return when a job was done, in s; the end of the simulation where it is not."""
        return one.finish_s if one.is_done else self.end_s
