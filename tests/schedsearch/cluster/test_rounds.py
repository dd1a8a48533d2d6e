"""Who runs in a round: by hand, and how near received times come to drawn allocations."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.fairness import MaxMinFairness
from schedsearch.cluster.rounds import Assignment, FreeGpus, RoundScheduler

ROUND_S = 360.0


def allocation_of(
    cluster: GpuCluster, gpus: list[int], shares: dict[tuple[tuple[int, ...], str], float]
) -> Allocation:
    """Return an allocation of jobs named by their index, by jobs and GPU type."""
    jobs = [ActiveJob(Job(str(number), "any", 1.0, count), 1.0) for number, count in enumerate(gpus)]
    demand = Demand.of(
        cluster, jobs, [Configuration(who, where, gpus[who[0]], (1.0,) * len(who)) for who, where in shares]
    )
    return Allocation(demand, np.array([*shares.values()]), 0.0)


def run_rounds(rounds: RoundScheduler, count: int) -> list[list[Assignment]]:
    """Return the assignments of a number of whole rounds."""
    history = []
    for _ in range(count):
        assigned = rounds.next_round()
        rounds.receive([run.candidate for run in assigned], np.full(len(assigned), ROUND_S))
        history.append(assigned)
    return history


def test_received_times_converge_to_fair_allocations() -> None:
    """Bounds of the reference (its check of Sec. 5.3.2): 0.06 after 50 rounds, 0.035 after 500."""
    random = Random(0)
    cluster = GpuCluster({"a": random.randint(2, 4), "b": random.randint(2, 4), "c": random.randint(2, 4)})
    jobs = [ActiveJob(Job(str(number), "any", 1.0), 1.0) for number in range(random.randint(6, 12))]
    demand = Demand.of(
        cluster,
        jobs,
        [
            Configuration((job,), name, 1, (random.uniform(1, 10),))
            for job in range(len(jobs))
            for name in cluster.workers
        ],
    )
    allocation = MaxMinFairness().allocate(demand)
    rounds = RoundScheduler(cluster, ROUND_S)
    rounds.decide(allocation, 0.0)
    done = 0
    for count, least in ((50, 0.93), (500, 0.968)):
        run_rounds(rounds, count - done)
        done = count
        received = (rounds.received_s - ROUND_S / 2) / (count * ROUND_S)
        assert (rounds.share - received).max() <= (0.06 if count == 50 else 0.035) + 1e-9
        by_key = dict(zip(rounds.keys, received, strict=True))
        shares = np.array(
            [
                by_key.get(((str(job),), number, 1, 0, False), 0.0)
                for job in range(len(jobs))
                for number in range(3)
            ]
        )
        assert (demand.rates(shares) / allocation.rates).min() >= least


def test_types_in_turn_take_what_others_would_need_more() -> None:
    """As in Gavel's simulator: the first type serves job 0, whose turn it would be on the second."""
    cluster = GpuCluster({"v100": 1, "k80": 1})
    shares = {((0,), "v100"): 0.1, ((0,), "k80"): 0.9, ((1,), "v100"): 0.05}
    for order, first in (
        (None, {("0",): 1, ("1",): 0}),
        ([0, 1], {("0",): 0}),
        ([1, 0], {("0",): 1, ("1",): 0}),
    ):
        rounds = RoundScheduler(cluster, ROUND_S)
        rounds.decide(allocation_of(cluster, [1, 1], shares), 0.0)
        assert {run.jobs: run.gpu_type for run in rounds.next_round(order)} == first


def test_priority_is_share_over_received_then_what_is_owed() -> None:
    cluster = GpuCluster({"v100": 1})
    both = {((0,), "v100"): 0.5, ((1,), "v100"): 0.5}
    rounds = RoundScheduler(cluster, ROUND_S)
    rounds.decide(allocation_of(cluster, [1, 1], both), 0.0)
    assert [run.jobs for run in rounds.next_round()] == [("0",)]
    rounds.receive([0], np.array([ROUND_S]))
    rounds.decide(allocation_of(cluster, [1, 1], both), ROUND_S)  # job 0 got too much, job 1 too little
    assert rounds.deficits_s[("0",), 0, 1, 0, False] == -ROUND_S / 2
    assert rounds.deficits_s[("1",), 0, 1, 0, False] == ROUND_S / 2
    assert [run.jobs for run in rounds.next_round()] == [("1",)]


def test_a_larger_job_that_does_not_fit_lets_others_by_and_gets_its_turn() -> None:
    cluster = GpuCluster({"v100": 4})
    shares = {((0,), "v100"): 0.9, ((1,), "v100"): 0.5, ((2,), "v100"): 0.5}
    rounds = RoundScheduler(cluster, ROUND_S)
    rounds.decide(allocation_of(cluster, [1, 4, 1], shares), 0.0)
    history = run_rounds(rounds, 20)
    assert [run.jobs for run in history[0]] == [("0",), ("2",)]
    assert any(run.jobs == ("1",) for assigned in history for run in assigned)


def test_jobs_keep_their_gpus_and_larger_ones_choose_first() -> None:
    cluster = GpuCluster({"v100": 8}, gpus_per_server={"v100": 4})
    shares = {((0,), "v100"): 1.0, ((1,), "v100"): 1.0, ((2,), "v100"): 1.0}
    rounds = RoundScheduler(cluster, ROUND_S)
    rounds.decide(allocation_of(cluster, [1, 4, 2], shares), 0.0)
    first, second = run_rounds(rounds, 2)
    assert {run.jobs: run.gpu_ids for run in first} == {("1",): (0, 1, 2, 3), ("2",): (4, 5), ("0",): (6,)}
    assert [run.gpu_ids for run in first] == [run.gpu_ids for run in second]
    assert not any(flag for run in first for flag in run.renewed)
    assert all(flag for run in second for flag in run.renewed)


@pytest.mark.parametrize("seed", range(3))
def test_gpus_of_a_job_are_on_as_few_servers_as_can_be(seed: int) -> None:
    random = Random(seed)
    per_server = random.choice((1, 2, 4, 8))
    ids = random.sample(range(32), random.randint(8, 32))
    gpus = random.randint(1, 8)
    chosen = FreeGpus(ids, per_server).best(gpus)
    assert len({*chosen}) == gpus
    assert {*chosen} <= {*ids}
    sizes = sorted(
        (sum(gpu // per_server == k for gpu in ids) for k in range(32 // per_server)), reverse=True
    )
    fewest = next(count for count in range(1, 17) if sum(sizes[:count]) >= gpus)
    assert len({gpu // per_server for gpu in chosen}) == fewest
