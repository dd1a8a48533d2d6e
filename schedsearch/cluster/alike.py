"""Jobs that a policy cannot tell apart, decided on as one.

Max-min fairness asks for the same from all jobs of one type, scale factor and weight. If all of a group have
the average of their shares, the least is no lower; so one job with the GPUs of the whole group stands for it,
and the program has as many jobs as there are groups, however many jobs there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from schedsearch.cluster.demand import NOBODY, Demand, FloatArray, IntArray
from schedsearch.cluster.jobs import ActiveJob


@dataclass(frozen=True, eq=False)
class AlikeGroups:
    """Groups of jobs that are alike.

    Attributes:
        demand: Demand with the first job of each group, which has the GPUs, power and weight of all of it.
        counts: Jobs of each group.
        ways: For each configuration of all jobs that of the group.
    """

    demand: Demand
    counts: FloatArray
    ways: IntArray


def alike(demand: Demand, values: FloatArray) -> AlikeGroups:
    """Return the groups of jobs with one value and the same configurations, but for a factor of throughput.

    Args:
        demand: Demand without configurations of two jobs.
        values: Value of each job, in which jobs of a group must not differ.
    """
    found = demand.configurations
    job = found.jobs[:, 0]
    order = np.lexsort((found.is_unconsolidated, found.clock_mhz, found.gpus, found.gpu_type, job))
    ways_of = np.split(order, np.searchsorted(job[order], np.arange(1, len(demand.jobs))))
    parts = found.steps_per_s[:, 0] / demand.fastest_steps_per_s[job]
    columns = found.gpu_type, found.gpus, found.clock_mhz, found.is_unconsolidated, found.power_w, parts
    rows = np.column_stack(columns)
    members: dict[tuple[float, bytes], list[int]] = {}
    for index, value in enumerate(values.tolist()):
        members.setdefault((value, rows[ways_of[index]].tobytes()), []).append(index)
    group: list[int] = []
    kept: list[int] = []
    ways = np.empty(len(found), dtype=np.int64)
    for number, alike_jobs in enumerate(members.values()):
        of_first = ways_of[alike_jobs[0]]
        for index in alike_jobs:
            ways[ways_of[index]] = len(kept) + np.arange(len(of_first))
        group += [number] * len(of_first)
        kept += of_first.tolist()
    counts = np.array([len(one) for one in members.values()], dtype=np.int64)
    groups, chosen = np.array(group, dtype=np.int64), found.only(np.array(kept, dtype=np.int64))
    configurations = replace(
        chosen,
        jobs=np.column_stack([groups, np.full(len(groups), NOBODY)]),
        gpus=chosen.gpus * counts[groups],
        power_w=chosen.power_w * counts[groups],
    )
    jobs = tuple(_times(demand.jobs[one[0]], len(one)) for one in members.values())
    of_groups = replace(demand, jobs=jobs, configurations=configurations)
    return AlikeGroups(of_groups, counts.astype(np.float64), ways)


def _times(active: ActiveJob, count: int) -> ActiveJob:
    """Return a job with the GPUs and the weight of so many."""
    job = active.job
    others = tuple(count * gpus for gpus in job.other_scale_factors)
    gpus, weight = count * job.scale_factor, count * job.weight
    return replace(active, job=replace(job, scale_factor=gpus, other_scale_factors=others, weight=weight))
