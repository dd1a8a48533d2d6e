from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cluster.policies.cases import Case, case_of, random_case

from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.policies.gandiva import Gandiva
from schedsearch.cluster.policies.registry import policy_of


def crowd(num_jobs: int, part_of_alone: float) -> Case:
    """Return jobs for half as many GPUs, each pair of which runs at a part of its throughput alone."""
    case = case_of([num_jobs // 2], [[10.0]] * num_jobs)
    rate = 10.0 * part_of_alone
    pairs = [(one, two, 0, rate, rate) for one in range(num_jobs) for two in range(one + 1, num_jobs)]
    return replace(case, pairs=pairs)


def pairs_in(allocation: Allocation) -> set[tuple[int, ...]]:
    configs = allocation.demand.configurations
    return {configs[index][0] for index in np.flatnonzero(allocation.shares) if not configs.is_alone[index]}


def test_jobs_that_fit_run_alone_on_as_many_gpus_of_each_type() -> None:
    case = replace(crowd(4, 0.9), workers=np.array([8.0]))
    allocation = Gandiva().allocate(case.demand())
    assert not pairs_in(allocation)
    assert allocation.rates == pytest.approx(np.full(4, 10.0))
    assert allocation.objective == pytest.approx(4)


def test_pairs_that_are_worth_it_are_kept() -> None:
    policy, demand = Gandiva(seed=3), crowd(8, 0.5).demand()
    first = policy.allocate(demand)
    check_allocation(first)
    assert len(pairs_in(first)) == 4
    assert first.rates == pytest.approx(np.full(8, 5.0))
    assert all(pairs_in(policy.allocate(demand)) == pairs_in(first) for _ in range(3))


def test_pairs_that_are_not_are_broken_and_never_tried_again() -> None:
    policy, demand = Gandiva(), crowd(4, 0.4).demand()
    tried: list[tuple[int, ...]] = []
    for _ in range(20):
        tried.extend(pairs_in(policy.allocate(demand)))
    assert len(tried) == len({*tried}) == 6
    assert policy.allocate(demand).rates == pytest.approx(np.full(4, 5.0))


def test_it_keeps_the_rules_of_all_allocations_and_gives_each_job_time() -> None:
    for seed in range(15):
        demand = random_case(seed).demand()
        policy = policy_of("gandiva", seed=seed)
        for _ in range(3):
            allocation = policy.allocate(demand)
            check_allocation(allocation)
            assert (allocation.rates > 0).all(), seed
            of_pairs = [demand.scale_factors[list(pair)] for pair in pairs_in(allocation)]
            assert all(one == other for one, other in of_pairs)
