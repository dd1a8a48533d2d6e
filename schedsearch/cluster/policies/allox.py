"""AlloX: the least average completion time, by a matching of jobs to places in the GPUs' queues.

A job that is the n-th from the end of a GPU's queue delays n jobs, itself among them, by its processing
time there; so the matching that minimizes the sum of n x processing time minimizes the sum of completion
times (Le et al., EuroSys 2020). The time that a job has waited so far adds the same to all of its places,
and so changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand, FloatArray, IntArray
from schedsearch.cluster.gpu_cluster import ClusterError


@dataclass
class AlloX:
    """AlloX's policy: the first job of each GPU's queue starts, and keeps its GPU until the job is done.

    The GPUs of a type are alike, so places of one type are told apart by their position alone, and no more
    positions are looked at than the queues of a type need for all jobs.
    """

    shares_space: ClassVar[bool] = False
    name: ClassVar[str] = "allox"

    _type_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation: the jobs that have a GPU keep it all of the time.

        Its objective is the sum of completion times in seconds, over the jobs that had no GPU before.

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
        free, type_of = real.workers.astype(np.int64), np.full(len(real.jobs), -1)
        for job, active in enumerate(real.jobs):
            kept = self._type_of.get(active.name, -1)
            if kept >= 0 and free[kept] > 0:
                type_of[job] = kept
                free[kept] -= 1
        rates = np.where(free > 0, real.alone_steps_per_s, 0.0)
        waiting = np.flatnonzero((type_of < 0) & (rates > 0).any(axis=1))
        waited_s = np.array([active.waited_s for active in real.jobs])
        waiting = waiting[np.argsort(-waited_s[waiting], kind="stable")]
        with np.errstate(divide="ignore"):
            times_s = real.steps_left[waiting, None] / rates[waiting]
        type_of[waiting], objective = _matched(times_s, free)
        self._type_of = {real.jobs[job].name: int(type_of[job]) for job in np.flatnonzero(type_of >= 0)}
        times = np.eye(len(free) + 1)[type_of, :-1]
        return Allocation(real, real.shares_alone(times), objective)


def _matched(times_s: FloatArray, free: IntArray) -> tuple[IntArray, float]:
    """Return the type on which each job starts now, -1 for none, and the sum of the completion times.

    A job's time is infinite on a type where it cannot run; each can run on one with a free GPU.
    """
    num_jobs = len(times_s)
    depths = np.ceil(num_jobs / np.maximum(free, 1)).astype(np.int64)
    position = np.concatenate(
        [np.repeat(np.arange(depth) + 1, count) for depth, count in zip(depths, free, strict=True)]
    )
    gpu_type = np.repeat(np.arange(len(free)), depths * free)
    costs = times_s[:, gpu_type] * position
    rows, places = linear_sum_assignment(costs)
    started = np.full(num_jobs, -1)
    for number, count in enumerate(free.tolist()):
        chosen = gpu_type[places] == number
        first = np.lexsort((rows[chosen], -position[places[chosen]]))[:count]  # of each of its queues
        started[rows[chosen][first]] = number
    return started, float(costs[rows, places].sum())
