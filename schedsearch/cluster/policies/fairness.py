"""Max-min fairness (least attained service, LAS), and its baseline, the isolated split.

(Dissertation, Sec. 5.4.1.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import NOBODY, Demand, FloatArray, IntArray
from schedsearch.cluster.policies.policy import SharesPolicy, check_runnable, filled
from schedsearch.cluster.policies.program import AllocationProgram


@dataclass(frozen=True)
class MaxMinFairness(SharesPolicy):
    """Maximizes the least of scale factor x throughput / (weight x proportional throughput).

    The proportional throughput is that of a job whose time is divided among the types as their GPUs. Agnostic
    of the types it is the least of scale factor x time / weight: the classical policy. Where no two jobs
    share GPUs, jobs of one type, scale factor and weight get the same.
    """

    term: ClassVar[str] = "las"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        if self.shares_space or not demand.jobs:
            return self._of_groups(demand, np.ones(len(demand.jobs)))
        check_runnable(demand, self.name)
        groups = _alike(demand)
        counts = np.array([len(ways) for ways in groups], dtype=np.float64)
        shares, objective = self._of_groups(_joined(demand, groups), counts)
        of_all, ends = np.zeros(len(demand.configurations)), np.cumsum([ways.shape[1] for ways in groups])
        for ways, of_group in zip(groups, np.split(shares, ends[:-1]), strict=True):
            of_all[ways] = of_group
        return of_all, objective

    def _of_groups(self, demand: Demand, counts: FloatArray) -> tuple[FloatArray, float]:
        """Return shares and objective, where each job stands for its number of equal jobs in `counts`."""
        factors, program = fair_factors(demand, self.name, self.is_agnostic), AllocationProgram(demand)
        shares, least = program.maximize_least(factors)
        return filled(program, shares, least / factors, counts), least


def _alike(demand: Demand) -> list[IntArray]:
    """Return groups of jobs that the policy cannot tell apart: configurations, shape (jobs, ways).

    If all of a group have the average of their shares, the least is no lower; so one job with the GPUs and
    the weight of all of them stands for the group.
    """
    configs, per_weight = demand.configurations, demand.scale_factors / demand.weights
    job = configs.jobs[:, 0]
    order = np.lexsort((configs.is_unconsolidated, configs.clock_mhz, configs.gpus, configs.gpu_type, job))
    parts = configs.steps_per_s[:, 0] / demand.fastest_steps_per_s[job]
    columns = configs.gpu_type, configs.gpus, configs.clock_mhz, configs.is_unconsolidated, configs.power_w
    rows = np.column_stack([*columns, parts, per_weight[job]])
    members: dict[bytes, list[IntArray]] = {}
    for ways in np.split(order, np.searchsorted(job[order], np.arange(1, len(demand.jobs)))):
        members.setdefault(rows[ways].tobytes(), []).append(ways)
    return [np.stack(alike) for alike in members.values()]


def _joined(demand: Demand, groups: list[IntArray]) -> Demand:
    """Return the demand with one job for each group, which has the GPUs and the weight of all of them."""
    jobs, first = [], demand.configurations.only(np.concatenate([ways[0] for ways in groups]))
    for ways in groups:
        active, count = demand.jobs[demand.configurations.jobs[ways[0, 0], 0]], len(ways)
        gpus, weight = count * active.job.scale_factor, count * active.job.weight
        job = replace(active.job, scale_factor=gpus, weight=weight, other_scale_factors=())
        jobs.append(replace(active, job=job))
    group = np.repeat(np.arange(len(groups)), [ways.shape[1] for ways in groups])
    times = np.array([len(ways) for ways in groups])[group]
    pairs = np.column_stack([group, np.full(len(group), NOBODY)])
    configs = replace(first, jobs=pairs, gpus=first.gpus * times, power_w=first.power_w * times)
    return replace(demand, jobs=tuple(jobs), configurations=configs)


@dataclass(frozen=True)
class IsolatedSplit:
    """Gives each of n jobs 1/n of the GPUs of each type, as if each had a cluster of its own.

    The policy reads no throughputs, so all types are equal to it. Its objective is the one of max-min
    fairness, whose optimum is never lower.
    """

    name: ClassVar[str] = "isolated"
    shares_space: ClassVar[bool] = False
    is_agnostic: ClassVar[bool] = True

    def allocate(self, demand: Demand) -> Allocation:
        """Return the split."""
        factors = fair_factors(demand, self.name)
        split = demand.without_pairs()
        shares = split.shares_alone(_isolated_times(split))
        return Allocation(split, shares, float((factors * split.rates(shares)).min(initial=np.inf)))


def fair_factors(demand: Demand, policy: str, is_agnostic: bool = False) -> FloatArray:
    """Return each job's factor on its throughput in max-min fairness, in seconds per step.

    Raises:
        InfeasibleError: A job has no throughput.
    """
    check_runnable(demand, policy)
    normal = demand.alone_steps_per_s.max(axis=1) if is_agnostic else demand.proportional_steps_per_s
    return demand.scale_factors / (demand.weights * normal)


def isolated_steps_per_s(demand: Demand) -> FloatArray:
    """Return the throughput of each job in the isolated split, in steps per second."""
    rates: FloatArray = (demand.alone_steps_per_s * _isolated_times(demand)).sum(axis=1)
    return rates


def _isolated_times(demand: Demand) -> FloatArray:
    """Return the share of the time of each job on each type if each has 1/n of the GPUs, (jobs, types).

    A job that would have more GPUs than it can use runs all the time, divided among the types as their GPUs.
    """
    times = demand.workers / (max(len(demand.jobs), 1) * demand.scale_factors[:, None])
    capped: FloatArray = times / np.maximum(times.sum(axis=1, keepdims=True), 1.0)
    return capped
