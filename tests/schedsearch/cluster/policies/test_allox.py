"""AlloX against all orders of all queues, and against a matching with a place for each GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from cluster.policies.cases import Case, case_of

from schedsearch.cluster.allocation import check_allocation
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.policies.allox import AlloX


def drawn(seed: int, num_jobs: int, workers: list[int]) -> Case:
    draw = np.random.default_rng(seed)
    rates = draw.uniform(1, 20, (num_jobs, len(workers)))
    rates[:, 1:][draw.random((num_jobs, len(workers) - 1)) < 0.2] = 0.0
    case = case_of(workers, rates.tolist())
    return replace(case, steps=10 ** draw.uniform(1, 4, num_jobs), waited_s=draw.uniform(0, 100, num_jobs))


def min_of_all_orders(case: Case) -> float:
    """Return the least sum of completion times, by trial of each order on each GPU."""
    gpu_types = np.repeat(np.arange(len(case.workers)), case.workers.astype(int))
    best = np.inf
    for order in permutations(range(len(case.steps))):
        for gpus in product(range(len(gpu_types)), repeat=len(order)):
            ends, total = np.zeros(len(gpu_types)), 0.0
            for job, gpu in zip(order, gpus, strict=True):
                rate = case.rates[job, gpu_types[gpu]]
                ends[gpu] += case.steps[job] / rate if rate else np.inf
                total += ends[gpu]
            best = min(best, total)
    return best


def test_no_order_of_queues_has_a_smaller_sum_of_completion_times() -> None:
    for seed in range(4):
        case = drawn(seed, 4, [1, 1 + seed % 2])
        allocation = AlloX().allocate(case.demand())
        check_allocation(allocation)
        assert allocation.objective == pytest.approx(min_of_all_orders(case), rel=1e-9), seed


def test_a_job_keeps_its_gpu_until_it_is_done_and_the_next_takes_it() -> None:
    case = case_of([1, 1], [[10.0, 1.0], [10.0, 2.0], [10.0, 9.0]])
    policy = AlloX()
    first = policy.allocate(replace(case, steps=np.array([10.0, 500.0, 400.0])).demand())
    assert first.rates.tolist() == [10.0, 0.0, 9.0]
    later = policy.allocate(replace(case, steps=np.array([1e-3, 1e-3, 1e6])).demand())
    assert later.rates.tolist() == [10.0, 0.0, 9.0]
    demand = case.demand()
    without_first = replace(
        demand,
        jobs=demand.jobs[1:],
        configurations=replace(
            demand.configurations.only(demand.configurations.jobs[:, 0] > 0),
            jobs=demand.configurations.jobs[2:] - [1, 0],
        ),
    )
    assert policy.allocate(without_first).rates.tolist() == [10.0, 9.0]


def test_a_job_whose_gpu_fails_waits_for_another() -> None:
    case = case_of([2], [[1.0], [1.0]])
    policy = AlloX()
    policy.allocate(case.demand())
    assert policy.allocate(replace(case, workers=np.array([1.0])).demand()).rates.tolist() == [1.0, 0.0]
    assert policy.allocate(case.demand()).rates.tolist() == [1.0, 1.0]


def test_jobs_of_many_gpus_are_refused() -> None:
    case = replace(case_of([4], [[1.0]]), gpus=np.array([2.0]))
    with pytest.raises(ClusterError, match="policy allox: job job 0 runs on 2 GPUs"):
        AlloX().allocate(case.demand())
