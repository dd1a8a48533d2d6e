"""Demands at random with operating points, GPU counts, pairs, SLOs and power; and a dense program."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job


def random_demand(seed: int, *, cap_share: float = math.inf, max_jobs: int = 5) -> Demand:
    """Return a demand; its cap lies between idle power (0) and the highest power of all GPUs (1)."""
    rng = np.random.default_rng(seed)
    types = ["v100", "a100", "h100"][: rng.integers(1, 4)]
    workers = {gpu_type: int(rng.integers(2, 6)) for gpu_type in types}
    idle_w = {gpu_type: float(rng.uniform(0, 60)) for gpu_type in types}
    jobs, configurations = [], []
    for index in range(int(rng.integers(1, max_jobs + 1))):
        others = (2,) if rng.random() < 0.4 else ()
        slo_s = float(rng.uniform(30, 400)) if rng.random() < 0.5 else math.inf
        job = Job(str(index), "any", 100.0, 1, float(rng.uniform(0.5, 2)), 0.0, slo_s, "", others)
        jobs.append(ActiveJob(job, float(rng.uniform(10, 100)), float(rng.uniform(0, 20))))
        for gpus in job.scale_factors:
            for gpu_type in types:
                rate, watts = rng.uniform(0.2, 2) * gpus**0.9, rng.uniform(200, 500) * gpus
                for clock in (1.0, *sorted(rng.uniform(0.4, 1, 2), reverse=True)):
                    power_w = watts * (0.3 + 0.7 * clock**3)
                    configurations.append(
                        Configuration((index,), gpu_type, gpus, (rate * clock,), power_w, int(1000 * clock))
                    )
    for _ in range(int(rng.integers(0, 3)) if len(jobs) > 1 else 0):
        one, two = sorted(int(job) for job in rng.choice(len(jobs), 2, replace=False))
        rates = float(rng.uniform(0.1, 1)), float(rng.uniform(0.1, 1))
        configurations.append(Configuration((one, two), types[0], 1, rates, float(rng.uniform(200, 500))))
    cluster = GpuCluster(
        workers, {gpu_type: float(rng.uniform(1, 5)) for gpu_type in types}, {}, math.inf, idle_w
    )
    demand = Demand.of(cluster, jobs, configurations)
    if math.isfinite(cap_share):
        max_w = 500.0 * cluster.num_gpus
        cap_w = demand.cluster.all_idle_w + cap_share * (max_w - demand.cluster.all_idle_w)
        demand = replace(demand, cluster=replace(cluster, power_cap_w=cap_w))
    return demand


def dense_rules(demand: Demand) -> tuple[list[list[float]], list[float]]:
    """Return rows and limits of time, GPUs and power, written down one by one."""
    configs, cluster = demand.configurations, demand.cluster
    indices = range(len(configs))
    rows, limits = [], []
    for job in range(len(demand.jobs)):
        rows.append([1.0 if job in configs[i][0] else 0.0 for i in indices])
        limits.append(1.0)
    for number, gpu_type in enumerate(cluster.gpu_types):
        rows.append([float(configs[i][2]) if configs[i][1] == number else 0.0 for i in indices])
        limits.append(float(cluster.workers[gpu_type]))
    if math.isfinite(cluster.power_cap_w):
        idle = [cluster.idle_power_w[cluster.gpu_types[configs[i][1]]] for i in indices]
        rows.append([float(configs.power_w[i]) - idle[i] * configs[i][2] for i in indices])
        limits.append(
            cluster.power_cap_w - sum(cluster.idle_power_w[t] * n for t, n in cluster.workers.items())
        )
    return rows, limits


def dense_rate(demand: Demand, job: int) -> list[float]:
    """Return a job's steps per second by the share of each configuration."""
    configs = demand.configurations
    return [
        float(configs.steps_per_s[i][list(configs[i][0]).index(job)]) if job in configs[i][0] else 0.0
        for i in range(len(configs))
    ]


def dense_most_of_least(demand: Demand, factors: dict[int, float], floors: dict[int, float]) -> float:
    """Return the most that the least of factor times throughput of some jobs can be, beside floors."""
    rows, limits = dense_rules(demand)
    rows = [[*row, 0.0] for row in rows]
    for job, floor in floors.items():
        rows.append([*(-rate for rate in dense_rate(demand, job)), 0.0])
        limits.append(-floor)
    for job, factor in factors.items():
        rows.append([*(-factor * rate for rate in dense_rate(demand, job)), 1.0])
        limits.append(0.0)
    cost = [0.0] * len(demand.configurations) + [-1.0]
    result = linprog(cost, rows, limits, method="highs-ds")
    assert result.status == 0, result.message
    return float(-result.fun)
