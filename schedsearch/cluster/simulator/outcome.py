"""The outcome of a simulation: every job, the cluster over time, and the figures that follow.

The module does not know how a simulation runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from schedsearch.cluster.demand import FloatArray, IntArray
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job

PERCENTILES = (50, 90, 95, 99)
"""Percentiles of job completion times that are reported."""


@dataclass(frozen=True)
class JobOutcome:
    """The course of one job.

    Attributes:
        job: The job as submitted.
        steps_done: Steps done by the end of the simulation.
        first_start_s: Begin of its first round; nan where it never ran.
        finish_s: When its last step ended; nan where it is not done.
        isolated_s: Time that its steps would have taken on its own share of the cluster: 1/n of the GPUs of
            each type, where n is the number of active jobs at the decision before these steps, as in
            Gavel's code (dissertation, Sec. 5.4.2, leaves n over time open).
        gpu_s: GPU seconds in which it ran, alone or beside another.
        dollars: Its part of the price of its GPUs; two jobs on the same GPUs pay half each.
        kwh: Its part of their energy.
        starts: Leases of GPUs; one more than it was stopped or moved.
        renewals: Rounds in which it kept the GPUs of the round before.
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

    @property
    def is_done(self) -> bool:
        """Return whether all steps of the job are done."""
        return not math.isnan(self.finish_s)

    @property
    def jct_s(self) -> float:
        """Return the job completion time in s, from arrival to end; nan if the job is not done."""
        return self.finish_s - self.job.arrival_s

    @property
    def finish_time_ratio(self) -> float:
        """Return the finish-time fairness rho: completion time over `isolated_s`; nan if it is not done."""
        return self.jct_s / self.isolated_s if self.is_done else math.nan

    @property
    def preemptions(self) -> int:
        """Return the number of times that the job lost its GPUs before it was done."""
        return max(self.starts - 1, 0)


class RoundSeries(NamedTuple):
    """The cluster in each round, as arrays with one entry for each round.

    Attributes:
        start_s: When it began.
        busy_gpus: GPUs of each type that ran a job, shape (rounds, types).
        active_jobs: Jobs that had arrived and were not done.
        waiting_jobs: Active jobs that did not run.
    """

    start_s: FloatArray
    busy_gpus: IntArray
    active_jobs: IntArray
    waiting_jobs: IntArray


class JobRun(NamedTuple):
    """One configuration in one round.

    Attributes:
        jobs: Index of the job, or of both, in the order of arrival.
        gpu_type: Index of the type.
        gpu_ids: Ids of its GPUs among those of the type; server k has those from k times its size.
        steps_per_s: Speed of each job.
        power_w: Power of all its GPUs.
        first_step_s: Time of its jobs' first step, after the cost of their start.
        end_s: When its last job stopped.
        steps: Steps of each job.
        renewed: Whether each job kept its GPUs of the round before.
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


class Round(NamedTuple):
    """The runs of one round that began at `start_s`."""

    start_s: float
    runs: tuple[JobRun, ...]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a simulation.

    Attributes:
        policy: Its name.
        cluster: GPUs of the cluster.
        round_s: Length of a round.
        window: First job that counts, and the one after the last, in the order of arrival.
        end_s: When the simulation ended.
        reason: Reason why it ended before the jobs of the window were done; "" where they are.
        jobs: All that had arrived, in the order of arrival.
        busy_s: Seconds in which GPUs of each type ran a job, summed over its GPUs.
        rounds: The cluster over time.
        decided_s: When the policy decided.
        share_errors: Of each decision the mean over the configurations with a share, or that ran, of the
            difference between the share of the time that was received until the next decision and the
            target; nan where no time passed.
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
    rounds: RoundSeries
    decided_s: FloatArray
    share_errors: FloatArray
    recorded: tuple[Round, ...] = ()

    @cached_property
    def measured(self) -> tuple[JobOutcome, ...]:
        """Return the jobs of the window that arrived."""
        return self.jobs[slice(*self.window)]

    @property
    def missing(self) -> str:
        """Return a line on why the simulation ended early and the jobs not done; "" if all jobs are done."""
        wanted, done = self.window[1] - self.window[0], len(self.jcts_s)
        if done == wanted:
            return ""
        return (
            f"{self.reason}: {wanted - done} of {wanted} jobs are not done at {self.end_s / 3600:.1f} h, "
            f"{wanted - len(self.measured)} of them have not arrived; averages are over the done jobs"
        )

    @cached_property
    def jcts_s(self) -> FloatArray:
        """Return the completion times of the window's jobs that are done, in the order of arrival."""
        return np.array([one.jct_s for one in self.measured if one.is_done], dtype=np.float64)

    @cached_property
    def finish_time_ratios(self) -> FloatArray:
        """Return the finish-time fairness rho of the window's jobs that are done."""
        return np.array([one.finish_time_ratio for one in self.measured if one.is_done], dtype=np.float64)

    @cached_property
    def figures(self) -> dict[str, float]:
        """Return all figures by name, nan for figures without data; times in s, energy in kWh.

        Figures are of the window's jobs, completion times and fairness of its done jobs; dollars and energy
        are of all jobs, and energy also of idle GPUs. Percentiles are linear between neighbours, the makespan
        is from the first arrival to the last finish, utilisation the share of the time from 0 to the end in
        which a GPU ran a job, and `share_error` the average of `share_errors` over time.
        """
        jobs, cluster, busy_s = self.measured, self.cluster, self.busy_s
        none = np.array([math.nan])
        jcts_s, ratios = (array if len(array) else none for array in (self.jcts_s, self.finish_time_ratios))
        last_s = max((one.finish_s for one in jobs if one.is_done), default=math.nan)
        idle_s = {name: count * self.end_s - busy_s[name] for name, count in cluster.workers.items()}
        idle_j = math.fsum(power_w * idle_s[name] for name, power_w in cluster.idle_power_w.items())
        with_slo = sum(math.isfinite(one.job.slo_s) for one in jobs)
        late = sum(self.is_late(one) for one in jobs)
        counts = np.isfinite(self.share_errors)
        weights_s = np.diff(np.append(self.decided_s, self.end_s))[counts]
        errors = (self.share_errors[counts], weights_s) if weights_s.sum() else (none, None)
        return {
            "average_jct_s": float(jcts_s.mean()),
            **{f"jct_p{one}_s": float(np.percentile(jcts_s, one)) for one in PERCENTILES},
            "makespan_s": last_s - min((one.job.arrival_s for one in jobs), default=0.0),
            "utilisation": sum(busy_s.values()) / (cluster.num_gpus * self.end_s) if self.end_s else 0.0,
            "average_finish_time_ratio": float(ratios.mean()),
            "dollars": math.fsum(one.dollars for one in self.jobs),
            "kwh": math.fsum(one.kwh for one in self.jobs) + idle_j / 3.6e6,
            "slo_violations": late,
            "slo_violation_share": late / with_slo if with_slo else 0.0,
            "preemptions": sum(one.preemptions for one in jobs),
            "lease_renewals": sum(one.renewals for one in jobs),
            "share_error": float(np.average(errors[0], weights=errors[1])),
            "max_finish_time_ratio": float(ratios.max()),
        }

    def is_late(self, one: JobOutcome) -> bool:
        """Return whether a job ended after its SLO, or is not done although its SLO is over."""
        return (one.finish_s if one.is_done else self.end_s) - one.job.arrival_s > one.job.slo_s
