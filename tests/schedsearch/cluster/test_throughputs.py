"""The demand of many jobs is that of its configurations written one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

import numpy as np
import pytest
from cluster.small_clusters import drawn_jobs, drawn_throughputs

from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs


def one_by_one(
    throughputs: Throughputs, cluster: GpuCluster, jobs: list[ActiveJob], shares_space: bool
) -> Iterator[Configuration]:
    for index, active in enumerate(jobs):
        gpus = active.job.scale_factor
        for gpu_type, points in throughputs.alone.get((active.job.type, gpus), {}).items():
            for one in points if cluster.workers.get(gpu_type, 0) >= gpus else ():
                yield Configuration((index,), gpu_type, gpus, (one.steps_per_s,), one.power_w, one.clock_mhz)
    for (first, one), (second, two) in combinations(enumerate(jobs), 2) if shares_space else ():
        gpus = one.job.scale_factor
        if two.job.scale_factor == gpus:
            for gpu_type, rates in throughputs.pair(one.job.type, two.job.type, gpus).items():
                if cluster.workers.get(gpu_type, 0) >= gpus:
                    yield Configuration((first, second), gpu_type, gpus, rates)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shares_space", [False, True])
def test_the_demand_is_the_same_as_one_by_one(seed: int, shares_space: bool) -> None:
    random = Random(seed)
    throughputs = drawn_throughputs(random, ("v100", "k80", "p4"), pairs=True)
    for _ in range(3):  # rows are kept from one demand to the next, for other clusters too
        cluster = GpuCluster({name: random.randint(0, 4) for name in ("v100", "k80")})
        jobs = [ActiveJob(job, job.steps) for job in drawn_jobs(random, random.randint(0, 20), 4)]
        found = throughputs.demand(cluster, jobs, shares_space=shares_space)
        wanted = Demand.of(cluster, jobs, one_by_one(throughputs, cluster, jobs, shares_space))
        for name in ("jobs", "gpu_type", "gpus", "steps_per_s", "power_w", "clock_mhz"):
            left, right = getattr(found.configurations, name), getattr(wanted.configurations, name)
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


def test_clocks_and_power_are_in_the_demand() -> None:
    points = (JobOperatingPoint(9.0, 300.0, 1980), JobOperatingPoint(6.0, 150.0, 1200))
    demand = Throughputs({("a", 1): {"h100": points}}).demand(
        GpuCluster({"h100": 1}),
        [ActiveJob(job, 1.0) for job in drawn_jobs(Random(0), 30, 1) if job.type == "a"],
    )
    assert demand.configurations.clock_mhz[:2].tolist() == [1980, 1200]
    assert demand.configurations.power_w[:2].tolist() == [300.0, 150.0]
