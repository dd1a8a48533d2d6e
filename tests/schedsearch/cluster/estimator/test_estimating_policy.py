"""A policy on estimates of pairs: what jobs get is real, and pairs that ran are known."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from cluster.small_clusters import Drawn
from outcome_check import plain

from schedsearch.cluster.estimator.estimating_policy import EstimatingPolicy, ThroughputProfile, profiled
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.fairness import MaxMinFairness
from schedsearch.cluster.simulator.job_table import ClusterProgress
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

SHARED = MaxMinFairness(shares_space=True)


def of_types(names: str, share: Callable[[], float]) -> Throughputs:
    """Return types of 10 steps per second, of which each keeps a share beside another."""
    alone = {(name, 1): {"v100": (JobOperatingPoint(10.0),)} for name in names}
    pairs = {
        (one, other, 1): {"v100": (10 * share(), 10 * share())}
        for number, one in enumerate(names)
        for other in names[number:]
    }
    return Throughputs(alone, pairs)


def pairs_of_three(share: float) -> Throughputs:
    return of_types("abc", lambda: share)


def two_jobs(throughputs: Throughputs) -> list[ActiveJob]:
    return [ActiveJob(Job(name, name, 100.0), 100.0) for name, _ in list(throughputs.alone)[:2]]


def test_a_policy_decides_by_estimates_and_jobs_get_what_is_real() -> None:
    """Pairs that keep 0.9 of their throughput are said to keep 0.1, and so are not used."""
    real, wrong = pairs_of_three(0.9), pairs_of_three(0.1)
    demand = real.demand(GpuCluster({"v100": 1}), two_jobs(real), shares_space=True)
    known = SHARED.allocate(demand)
    misled = EstimatingPolicy(SHARED, ThroughputProfile(wrong, "abc")).allocate(demand)
    assert known.rates == pytest.approx([9.0, 9.0])
    assert misled.rates == pytest.approx([5.0, 5.0])
    assert misled.demand is demand
    assert np.all(misled.shares[~demand.configurations.is_alone] == pytest.approx(0))
    right = EstimatingPolicy(SHARED, ThroughputProfile(real, "abc")).allocate(demand)
    assert right.rates == pytest.approx(known.rates)
    assert right.demand is demand


def without(throughputs: Throughputs, *pair: str) -> Throughputs:
    kept = {key: each for key, each in throughputs.pairs.items() if {*key[:2]} != {*pair}}
    return Throughputs(throughputs.alone, kept)


@pytest.mark.parametrize("learns", [False, True])
def test_a_pair_that_ran_is_measured(learns: bool) -> None:
    """All known pairs keep 0.9, but the one of a and b, which was not measured, only 0.1."""
    real = pairs_of_three(0.9)
    real = Throughputs(real.alone, {**real.pairs, ("a", "b", 1): {"v100": (1.0, 1.0)}})
    demand = real.demand(GpuCluster({"v100": 1}), two_jobs(real), shares_space=True)
    policy = EstimatingPolicy(SHARED, ThroughputProfile(without(real, "a", "b"), "c"), learns)
    assert policy.allocate(demand).rates == pytest.approx([1.0, 1.0], rel=1e-3)
    again = policy.allocate(demand).rates
    assert again == pytest.approx([5.0, 5.0] if learns else [1.0, 1.0], rel=1e-3)
    assert policy._learned == ({("a", "b", 1, "v100"): (1.0, 1.0)} if learns else {})


def test_resumed_it_knows_what_it_learned(tmp_path: Path) -> None:
    """The policy below draws its shares, as one that solves programs may take another of equal answers."""
    random = Random(3)
    throughputs = of_types("abcdef", lambda: random.uniform(0.5, 0.95))
    jobs = [
        Job(str(n), random.choice("abcdef"), random.uniform(2e4, 9e4), arrival_s=900.0 * n) for n in range(20)
    ]
    cluster, state = GpuCluster({"v100": 3}), tmp_path / "state.pkl"

    def simulated(at: int | None = None) -> tuple[EstimatingPolicy, dict[str, object]]:
        left = at

        def interrupt(_: ClusterProgress) -> None:
            nonlocal left
            left = None if left is None else left - 1
            if left == 0:
                raise KeyboardInterrupt

        policy = EstimatingPolicy(Drawn(5, shares_space=True), profiled(throughputs, 0.5, 1, 1))
        found = simulate_cluster(jobs, cluster, throughputs, policy, SimulationOptions(), interrupt, state)
        return policy, plain(found)

    policy, whole = simulated()
    assert policy._learned
    interrupted, _ = simulated(at=30)
    _, kept = pickle.loads(state.read_bytes())
    assert kept["policy"]._learned == interrupted._learned != {}
    assert kept["policy"]._estimated.pairs == interrupted._estimated.pairs
    _, found = simulated()
    assert found == whole


def test_what_is_profiled_is_what_was_asked_for() -> None:
    throughputs = pairs_of_three(0.5)
    found = profiled(throughputs, 0.34, 1, 0)
    assert len(found.references) == 1
    (reference,) = found.references
    assert {frozenset(key[:2]) for key in found.measured.pairs} == {
        frozenset((name, reference)) for name in "abc"
    }
    assert {*profiled(throughputs, 1.0, 1, 0).measured.pairs} == {*throughputs.pairs}


def test_wrong_profiles_and_policies_are_refused() -> None:
    throughputs = pairs_of_three(0.5)
    with pytest.raises(ClusterError, match=r"reference_share: 1.5 is not above 0 and at most 1"):
        profiled(throughputs, 1.5, 3, 0)
    with pytest.raises(ClusterError, match="profiled: 0 is not 1 or more"):
        profiled(throughputs, 0.5, 0, 0)
    with pytest.raises(ClusterError, match="policy las does not look at pairs"):
        EstimatingPolicy(MaxMinFairness(), profiled(throughputs, 0.5, 3, 0))
