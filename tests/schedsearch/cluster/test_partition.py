from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cluster.policies.cases import Case, case_of, random_case

from schedsearch.cluster.allocation import InfeasibleError, check_allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.partition import partitioned
from schedsearch.cluster.policies.registry import policy_of


def many(seed: int, num_jobs: int, workers: list[int]) -> Case:
    draw = np.random.default_rng(seed)
    rates = draw.uniform(1, 10, (num_jobs, 1)) * np.sort(draw.uniform(0.1, 1, (num_jobs, len(workers))))
    gpus = draw.choice([1.0, 2.0], num_jobs, p=[0.8, 0.2])
    return replace(case_of(workers, rates.tolist()), gpus=gpus)


@pytest.mark.parametrize("name", ["las", "las_packed", "water_filling", "max_total_throughput", "makespan"])
def test_one_part_is_the_whole(name: str) -> None:
    for seed in range(4):
        demand = random_case(seed).demand()
        whole, one = policy_of(name).allocate(demand), partitioned(name, 1).allocate(demand)
        check_allocation(one)
        assert one.objective == pytest.approx(whole.objective, rel=1e-6)


@pytest.mark.parametrize("name", ["las", "las_packed", "hierarchical", "gandiva"])
def test_parts_keep_the_rules_together(name: str) -> None:
    for seed in range(4):
        case = replace(
            random_case(seed), workers=np.array([16.0, 16, 17, 18])[: random_case(seed).rates.shape[1]]
        )
        policy = partitioned(name, 2, seed)
        for _ in range(2):
            allocation = policy.allocate(case.demand())
            check_allocation(allocation)
            assert (allocation.rates > 0).all()


def test_a_job_stays_in_its_part_and_newcomers_go_where_there_is_room() -> None:
    case = many(0, 40, [8, 8])
    demand = case.demand()
    policy = partitioned("las", 4, seed=1)
    before = policy.allocate(replace(demand, jobs=demand.jobs)).rates
    assert policy.allocate(demand).rates == pytest.approx(before)
    again = partitioned("las", 4, seed=1).allocate(demand)
    assert again.rates == pytest.approx(before)
    other = partitioned("las", 4, seed=2).allocate(demand)
    assert other.rates != pytest.approx(before)


def test_more_parts_than_a_job_allows_are_answered_in_one_line() -> None:
    case = replace(case_of([8], [[1.0], [1.0]]), gpus=np.array([1.0, 8.0]))
    with pytest.raises(InfeasibleError, match="job job 1 needs 8 GPUs of one type, but a part has 4 at most"):
        partitioned("las", 2).allocate(case.demand())
    with pytest.raises(ClusterError, match="makespan_budget has one budget"):
        partitioned("makespan_budget", 2, budget_dollars=5)


def test_more_parts_than_gpus_are_refused() -> None:
    demand = Demand.of(GpuCluster({"v100": 2, "k80": 1}), [], [])
    with pytest.raises(ClusterError, match="policy parts: 4 are more than the 3 GPUs; give fewer"):
        partitioned("las", 4).allocate(demand)


@pytest.mark.parametrize(
    ("name", "fills", "is_agnostic"),
    [("las", True, False), ("las_agnostic", True, True), ("fifo", False, False)],
)
def test_parts_are_simulated_as_their_policy(name: str, fills: bool, is_agnostic: bool) -> None:
    policy = partitioned(name, 2)
    assert (policy.fills_idle_gpus, policy.is_agnostic) == (fills, is_agnostic)
