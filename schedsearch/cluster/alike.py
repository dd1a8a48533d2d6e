"""Jobs that a policy cannot tell apart, decided on as one.

Max-min fairness asks for the same from all jobs of one type, scale factor and weight. If all of a group have
the average of their shares, the least is no lower; so one job with the GPUs of the whole group stands for it,
and the program has as many jobs as there are groups, however many jobs there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from schedsearch.cluster.demand import Demand, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class AlikeGroups:
    """Groups of jobs that are alike.

    Attributes:
        demand: Demand with the first job of each group, which has the GPUs, power and weight of all of it.
        first: Index of that job among all jobs.
        counts: Jobs of each group.
        ways: For each configuration of all jobs that of the group.
    """

    demand: Demand
    first: IntArray
    counts: FloatArray
    ways: IntArray

    def of_all(self, shares: FloatArray) -> FloatArray:
        """Return the shares of all jobs from those of the groups: the same for each of a group."""
        of_all: FloatArray = shares[self.ways]
        return of_all


def alike(demand: Demand, values: FloatArray) -> AlikeGroups:
    """Return the groups of jobs with one value and the same configurations, but for a factor of throughput.

    Args:
        demand: Demand without configurations of two jobs.
        values: Value of each job, in which jobs of a group must not differ.
    """
    found = demand.configurations
    job = found.jobs[:, 0]
    order = np.lexsort((found.is_unconsolidated, found.clock_mhz, found.gpus, found.gpu_type, job))
    parts = found.steps_per_s[:, 0] / demand.fastest_steps_per_s[job]
    columns = found.gpu_type, found.gpus, found.clock_mhz, found.is_unconsolidated, found.power_w, parts
    rows = np.column_stack(columns)[order]
    ends = np.searchsorted(job[order], np.arange(len(demand.jobs) + 1))
    group_of: dict[tuple[float, bytes], int] = {}
    groups = np.array(
        [
            group_of.setdefault((value, rows[begin:end].tobytes()), len(group_of))
            for value, begin, end in zip(values.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    _, first = np.unique(groups, return_index=True)
    counts = np.bincount(groups, minlength=len(first))
    place = np.arange(len(found)) - ends[job[order]]  # of each configuration among those of its job, in order
    is_first = np.isin(job[order], first)
    begins = np.cumsum(np.append(0, (ends[1:] - ends[:-1])[first]))
    ways = np.empty(len(found), dtype=np.int64)
    ways[order] = begins[groups[job[order]]] + place
    kept = order[is_first][np.argsort(groups[job[order[is_first]]], kind="stable")]
    return AlikeGroups(_of_groups(demand, first, counts, kept), first, counts.astype(np.float64), ways)


def _of_groups(demand: Demand, first: IntArray, counts: IntArray, kept: IntArray) -> Demand:
    found = demand.configurations
    group_of = np.full(len(demand.jobs), -1)
    group_of[first] = np.arange(len(first))
    groups = group_of[found.jobs[kept, 0]]
    jobs = found.jobs[kept]
    jobs[:, 0] = groups
    members = counts[groups]
    stand_ins = []
    for index, count in zip(first.tolist(), counts.tolist(), strict=True):
        active = demand.jobs[index]
        others = tuple(count * gpus for gpus in active.job.other_scale_factors)
        gpus, weight = count * active.job.scale_factor, count * active.job.weight
        job = replace(active.job, scale_factor=gpus, other_scale_factors=others, weight=weight)
        stand_ins.append(replace(active, job=job))
    return replace(
        demand,
        jobs=tuple(stand_ins),
        configurations=replace(
            found.only(kept),
            jobs=jobs,
            gpus=found.gpus[kept] * members,
            power_w=found.power_w[kept] * members,
        ),
    )
