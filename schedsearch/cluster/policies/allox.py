"""AlloX: the least average completion time, by a matching of jobs to places in the GPUs' queues.

A job that is the n-th from the end of a GPU's queue delays n jobs, itself among them, by its processing
time there; so the matching that minimizes the sum of n x processing time minimizes the sum of completion
times (Le et al., EuroSys 2020). What a job has waited so far adds the same to all of its places, and so
changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand, FloatArray, IntArray
from schedsearch.cluster.gpu_cluster import ClusterError, require


@dataclass
class AlloX:
    """Starts the first job of each GPU's queue; it keeps its GPU until it is done.

    The GPUs of a type are alike, so places of one type are told apart by their position alone, and no more
    positions are looked at than the queues of a type need for all jobs.

    Attributes:
        considered_share: Part of the jobs without a GPU that are matched, those that have waited longest;
            below 1 for less waiting of long jobs. Above 0 to 1.
    """

    considered_share: float = 1.0

    shares_space: ClassVar[bool] = False
    name: ClassVar[str] = "allox"

    _type_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the part."""
        share = self.considered_share
        require(0 < share <= 1, "policy allox: considered_share", share, "above 0 and at most 1")

    def allocate(self, demand: Demand) -> Allocation:
        """Return who has a GPU, all of the time.

        Its objective is the sum of the completion times of the queues, of jobs without a GPU, in seconds.

        Raises:
            ClusterError: A job runs on more than one GPU.
        """
        real = demand.without_pairs()
        for way in np.flatnonzero(real.configurations.gpus > 1)[:1].tolist():
            (job,), _, gpus = real.configurations[way]
            raise ClusterError(
                f"policy allox: job {real.jobs[job].name} runs on {gpus} GPUs, but AlloX places jobs of one "
                "GPU only; use another policy"
            )
        free = self._forget(real)
        waiting = [job for job, active in enumerate(real.jobs) if active.name not in self._type_of]
        waiting.sort(key=lambda job: -real.jobs[job].waited_s)
        considered = np.array(waiting[: math.ceil(self.considered_share * len(waiting))], dtype=np.int64)
        times_s = _processing_s(real)[considered]
        times_s[:, free == 0] = np.inf
        can_run = np.isfinite(times_s).any(axis=1)
        started, objective = _matched(times_s[can_run], free)
        for job, gpu_type in zip(considered[can_run].tolist(), started.tolist(), strict=True):
            if gpu_type >= 0:
                self._type_of[real.jobs[job].name] = gpu_type
        times = np.zeros((len(real.jobs), len(real.workers)))
        for job, active in enumerate(real.jobs):
            if active.name in self._type_of:
                times[job, self._type_of[active.name]] = 1.0
        return Allocation(real, real.shares_alone(times), objective)

    def _forget(self, demand: Demand) -> IntArray:
        """Forget jobs that are done or have lost their GPU, and return the free GPUs of each type."""
        free = demand.workers.astype(np.int64)
        kept: dict[str, int] = {}
        for active in demand.jobs:
            gpu_type = self._type_of.get(active.name)
            if gpu_type is not None and free[gpu_type] > 0:
                kept[active.name] = gpu_type
                free[gpu_type] -= 1
        self._type_of = kept
        return free


def _processing_s(demand: Demand) -> FloatArray:
    rates = demand.alone_steps_per_s
    steps = np.broadcast_to(demand.steps_left[:, None], rates.shape)
    times_s: FloatArray = np.divide(steps, rates, out=np.full(rates.shape, np.inf), where=rates > 0)
    return times_s


def _matched(times_s: FloatArray, free: IntArray) -> tuple[IntArray, float]:
    """Return the type on which each job starts now, -1 for none, and the sum of the completion times.

    Args:
        times_s: Time of each job on each type, infinite where it cannot run; each can run on one with a free
            GPU.
        free: GPUs of each type.
    """
    num_jobs = len(times_s)
    positions = [
        np.repeat(np.arange(1, math.ceil(num_jobs / max(count, 1)) + 1), count) for count in free.tolist()
    ]
    position = np.concatenate(positions)
    gpu_type = np.repeat(np.arange(len(free)), [len(one) for one in positions])
    costs = times_s[:, gpu_type] * position
    rows, places = linear_sum_assignment(costs)
    started = np.full(num_jobs, -1)
    for number, count in enumerate(free.tolist()):
        chosen = gpu_type[places] == number
        first = np.lexsort((rows[chosen], -position[places[chosen]]))[:count]  # of each of its queues
        started[rows[chosen][first]] = number
    return started, float(costs[rows, places].sum())
