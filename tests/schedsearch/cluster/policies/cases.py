"""Small problems of a cluster as plain matrices, and their best objectives by scipy's dense programs.

Nothing here uses the cluster's types but `Case.demand`: the formulations are independent of the package's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """Jobs by rows, types by columns.

    Attributes:
        workers: GPUs of each type.
        rates: Steps per second alone, (jobs, types).
        gpus: Of each job.
        weights: Of each job.
        steps: Left, of each job.
        waited_s: Of each job.
        isolated_s: So far, of each job.
        pairs: (job, other, type, steps per second of the job, of the other).
        prices: Of a GPU-hour of each type.
        slo_s: Of each job.
    """

    workers: Array
    rates: Array
    gpus: Array
    weights: Array
    steps: Array
    waited_s: Array
    isolated_s: Array
    pairs: list[tuple[int, int, int, float, float]] = field(default_factory=list)
    prices: Array | None = None
    slo_s: Array | None = None

    def demand(self) -> Demand:
        """Return it as the package's type."""
        num_jobs, num_types = self.rates.shape
        alone = [
            Configuration((job,), f"type {number}", int(self.gpus[job]), (float(self.rates[job, number]),))
            for job in range(num_jobs)
            for number in range(num_types)
        ]
        together = [
            Configuration((one, two), f"type {number}", int(self.gpus[one]), (first, second))
            for one, two, number, first, second in self.pairs
        ]
        columns = (self.steps, self.weights, self.waited_s, self.isolated_s, self.slo_s)
        columns = tuple(np.full(num_jobs, np.inf) if column is None else column for column in columns)
        jobs = [
            ActiveJob(
                Job(f"job {job}", "any", steps, int(self.gpus[job]), weight, slo_s=slo_s),
                steps,
                waited_s,
                isolated_s,
            )
            for job, (steps, weight, waited_s, isolated_s, slo_s) in enumerate(np.array(columns).T.tolist())
        ]
        names = [f"type {number}" for number in range(num_types)]
        prices = [] if self.prices is None else self.prices.tolist()
        cluster = GpuCluster(
            dict(zip(names, self.workers.astype(int).tolist(), strict=True)),
            dict(zip(names, prices, strict=False)),
        )
        return Demand.of(cluster, jobs, [*alone, *together])

    def without_pairs(self) -> Case:
        """Return it without pairs."""
        return replace(self, pairs=[])

    def rows(self) -> tuple[Array, Array, Array]:
        """Return each variable's throughputs and time of all jobs and GPUs of all types, as columns."""
        num_jobs, num_types = self.rates.shape
        entries = [
            ({job: self.rates[job, number]}, number, self.gpus[job])
            for job in range(num_jobs)
            for number in range(num_types)
            if self.rates[job, number] > 0
        ]
        entries += [
            ({a: first, b: second}, number, self.gpus[a]) for a, b, number, first, second in self.pairs
        ]
        made, time, used = (np.zeros((size, len(entries))) for size in (num_jobs, num_jobs, num_types))
        for column, (rates, number, gpus) in enumerate(entries):
            used[number, column] = gpus
            for job, rate in rates.items():
                made[job, column], time[job, column] = rate, 1.0
        return made, time, used


def case_of(workers: list[int], rates: list[list[float]], steps: float = 1000.0) -> Case:
    """Return a case of jobs with one GPU, of weight 1, that have just arrived."""
    ones = np.ones(len(rates))
    return Case(np.array(workers, float), np.array(rates), ones, ones, steps * ones, 0 * ones, 0 * ones)


def random_case(seed: int, *, is_wide: bool = False) -> Case:
    """Return a case with pairs, scale factors, weights, zeros, and types without GPUs.

    All jobs can run on the first type, which has the most GPUs; often there are too few for all at once.

    Args:
        seed: Of the generator.
        is_wide: Throughputs from 0.01 to 1000 steps per second, and steps up to 1e8.
    """
    draw = np.random.default_rng(seed)
    num_jobs, num_types = int(draw.integers(1, 13)), int(draw.integers(1, 5))
    workers = draw.integers(0, draw.choice([3, 6, 10]), num_types).astype(float)
    workers[0] = max(workers.max(), 1)
    gpus = np.minimum(
        draw.choice([1.0, 2.0, 4.0, 8.0], num_jobs, p=[0.6, 0.2, 0.1, 0.1]), 2.0 ** int(np.log2(workers[0]))
    )
    span = (-2, 3) if is_wide else (0, 1.5)
    rates = 10 ** draw.uniform(*span, (num_jobs, 1)) * draw.uniform(0.1, 1, (num_jobs, num_types))
    rates[:, 1:][draw.random((num_jobs, num_types - 1)) < 0.25] = 0.0
    rates[gpus[:, None] > workers] = 0.0
    pairs = [
        (one, two, number, *(rates[[one, two], number] * draw.uniform(0.2, 1.0, 2)).tolist())
        for one in range(num_jobs)
        for two in range(one + 1, num_jobs)
        for number in range(num_types)
        if gpus[one] == gpus[two] and rates[one, number] * rates[two, number] > 0 and draw.random() < 0.7
    ]
    steps = 10 ** (draw.uniform(0, 8, num_jobs) if is_wide else draw.uniform(2, 5, num_jobs))
    waited = draw.choice([0.0, 1e3, 1e5], num_jobs) * draw.random(num_jobs)
    isolated = waited * draw.uniform(0.2, 1.5, num_jobs)
    weights = draw.choice([1.0, 2.0, 5.0], num_jobs)
    return Case(workers, rates, gpus, weights, steps, waited, isolated, pairs)


def largest_sum(case: Case, values: Array, floors: Array | None = None) -> float:
    """Return the largest sum of value x throughput; with floors under throughputs, if there are any."""
    made, time, used = case.rows()
    rows, limits = [time, used], [np.ones(len(time)), case.workers]
    if floors is not None:
        rows, limits = [*rows, -made], [*limits, -floors]
    result = linprog(-(values @ made), np.vstack(rows), np.concatenate(limits))
    assert result.status == 0, result.message
    return float(-result.fun)


def shortest_time(case: Case, work: Array) -> float:
    """Return the shortest time in which each job does its work; in seconds of use, not in shares.

    The longest job alone is the unit. Work below 1e-9 of it is raised to that, as the solver takes smaller
    numbers for 0: with a few jobs that changes less than the tests look at.
    """
    made, time, used = case.rows()
    alone_s = work / made.max(axis=1)
    rows = np.vstack(
        [time, used, -made / (made.max(axis=1) * np.maximum(alone_s / alone_s.max(), 1e-9))[:, None]]
    )
    of_length = np.concatenate([-np.ones(len(time)), -case.workers, np.zeros(len(made))])
    rows = np.column_stack([rows, of_length])
    right = np.concatenate([np.zeros(len(time) + len(used)), -np.ones(len(made))])
    result = linprog(np.eye(rows.shape[1])[-1], rows, right)
    assert result.status == 0, result.message
    return float(result.fun * alone_s.max())


def can_make(case: Case, steps_per_s: Array) -> bool:
    """Return whether all jobs can have these throughputs at once."""
    return shortest_time(case, steps_per_s) <= 1.0


def isolated_rates(case: Case) -> Array:
    """Return the throughputs with 1/n of the cluster (Gavel's rule, one job at a time)."""
    job_rates = []
    for rates, gpus in zip(case.rates, case.gpus, strict=True):
        share = case.workers / len(case.rates) / gpus
        job_rates.append(float(rates @ (share / max(1.0, share.sum()))))
    return np.array(job_rates)
