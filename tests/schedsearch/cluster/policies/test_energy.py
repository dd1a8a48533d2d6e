"""Least energy and cost with SLOs, and fairness under a power cap, against dense programs and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from demands_at_random import dense_most_of_least, dense_rate, dense_rules, random_demand
from scipy.optimize import linprog

from schedsearch.cluster.allocation import check_allocation
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.fairness import MaxMinFairness
from schedsearch.cluster.policies.spending import LeastCost, LeastEnergy

FAST, SLOW = (10.0, 400.0), (8.0, 200.0)
"""Steps per second and W of one GPU at two clocks."""


def two_speeds(cap_w: float = math.inf, slo_s: float = math.inf, idle_w: float = 0.0) -> Demand:
    """Return two equal jobs of 1000 steps on two GPUs with two clocks; the first has an SLO."""
    cluster = GpuCluster({"a100": 2}, {"a100": 3.0}, {}, cap_w, {"a100": idle_w})
    jobs = [
        ActiveJob(Job("first", "any", 1000.0, slo_s=slo_s), 1000.0),
        ActiveJob(Job("second", "any", 1e3), 1e3),
    ]
    points = [(job, *point) for job in range(2) for point in (FAST, SLOW)]
    return Demand.of(
        cluster, jobs, [Configuration((job,), "a100", 1, (rate,), watts) for job, rate, watts in points]
    )


def fastest_only(demand: Demand) -> Demand:
    """Return the demand without all configurations of the same job and GPUs that are slower than another."""
    configs = demand.configurations
    keys = [configs[i] for i in range(len(configs))]
    best = {key: max(configs.steps_per_s[i][0] for i, k in enumerate(keys) if k == key) for key in keys}
    kept = [configs.steps_per_s[i][0] == best[key] for i, key in enumerate(keys)]
    return replace(demand, configurations=configs.only(np.array(kept)))


def test_under_a_cap_fairness_picks_lower_clocks_instead_of_idle_gpus() -> None:
    """At the highest clock 400 W run one of two GPUs, 5 steps/s each; at the lower clock both, 8 each."""
    demand = two_speeds(cap_w=400.0)
    at_highest = MaxMinFairness().allocate(fastest_only(demand))
    with_clocks = MaxMinFairness().allocate(demand)
    check_allocation(with_clocks)
    assert at_highest.objective == pytest.approx(0.5)
    assert with_clocks.objective == pytest.approx(0.8)
    assert with_clocks.power_w == pytest.approx(400.0)


@pytest.mark.parametrize("seed", range(10))
def test_with_clocks_fairness_is_never_worse_under_a_cap(seed: int) -> None:
    demand = random_demand(
        seed, cap_share=float(np.random.default_rng(seed).uniform(0.1, 0.8))
    ).without_pairs()
    with_clocks = MaxMinFairness().allocate(demand)
    check_allocation(with_clocks)
    assert with_clocks.objective >= MaxMinFairness().allocate(fastest_only(demand)).objective - 1e-7
    factors = demand.scale_factors / (demand.weights * demand.proportional_steps_per_s)
    assert with_clocks.objective == pytest.approx(
        dense_most_of_least(demand, dict(enumerate(factors)), {}), rel=1e-5
    )


def test_without_powers_the_least_energy_of_nothing_is_no_answer() -> None:
    points = [Configuration((0,), "a100", 1, (1.0,))]
    demand = Demand.of(GpuCluster({"a100": 1}), [ActiveJob(Job("one", "any", 9.0), 9.0)], points)
    with pytest.raises(ClusterError, match="policy least_energy_slo: the throughputs say nothing of powers"):
        LeastEnergy().allocate(demand)


def test_an_slo_that_is_lost_leaves_the_job_its_fair_share() -> None:
    allocation = LeastEnergy(min_share=1.0).allocate(two_speeds(slo_s=50.0))
    assert allocation.rates == pytest.approx([10.0, 10.0], rel=1e-5)
    assert allocation.notes == ("job first: nothing keeps its SLO",)


@pytest.mark.parametrize("rules", [{"min_share": 1.5}, {"margin_s": -1.0}])
def test_wrong_rules_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(ClusterError, match=next(iter(rules))):
        LeastEnergy(**rules)


def dense_least(demand: Demand, cost: list[float], min_share: float) -> float:
    """Return the least cost by the rules of the module, each program dense."""
    best = {job: dense_most_of_least(demand, {job: 1.0}, {}) for job in range(len(demand.jobs))}
    needed = {
        job: active.steps_left / active.slo_left_s
        for job, active in enumerate(demand.jobs)
        if 0 < active.slo_left_s < math.inf
    }
    kept = {job: rate for job, rate in needed.items() if rate <= best[job]}
    share = (
        min(dense_most_of_least(demand, {job: 1 / rate for job, rate in kept.items()}, {}), 1.0)
        if kept
        else 1.0
    )
    floors = {job: rate * min(share, 1.0) * (1 - 1e-7) for job, rate in kept.items()}
    others = [job for job in range(len(demand.jobs)) if job not in kept]
    if others:
        factors = {
            job: demand.jobs[job].job.scale_factor
            / (demand.jobs[job].job.weight * demand.proportional_steps_per_s[job])
            for job in others
        }
        least = dense_most_of_least(demand, factors, floors)
        floors |= {job: min_share * least * (1 - 1e-7) / factors[job] for job in others}
    rows, limits = dense_rules(demand)
    rows += [[-rate for rate in dense_rate(demand, job)] for job in floors]
    result = linprog(cost, rows, [*limits, *(-floor for floor in floors.values())], method="highs-ds")
    assert result.status == 0, result.message
    return float(result.fun)


@pytest.mark.parametrize("seed", range(10))
def test_the_least_is_that_of_a_dense_program(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    demand = random_demand(seed, cap_share=float(rng.uniform(0.2, 1)) if rng.random() < 0.6 else math.inf)
    min_share = float(rng.uniform(0, 1))
    energy = LeastEnergy(min_share).allocate(demand)
    cost = LeastCost(min_share, dollars_per_kwh=0.2).allocate(demand)
    for allocation in (energy, cost):
        check_allocation(allocation)
    watts = demand.added_power_w.tolist()
    wanted = demand.cluster.all_idle_w + dense_least(demand, watts, min_share)
    assert energy.objective == pytest.approx(wanted, rel=1e-5)
    dollars = [gpus + 0.2 * w / 1e3 for gpus, w in zip(demand.dollars_per_hour, watts, strict=True)]
    wanted = 0.2 * demand.cluster.all_idle_w / 1e3 + dense_least(demand, dollars, min_share)
    assert cost.objective == pytest.approx(wanted, rel=1e-5)


def test_wrong_clusters_and_jobs_are_refused() -> None:
    with pytest.raises(ClusterError, match="not above the power of idle GPUs, 100 W"):
        two_speeds(cap_w=90.0, idle_w=50.0)
    with pytest.raises(ClusterError, match="other_scale_factors"):
        Job("one", "any", 1.0, 1, other_scale_factors=(1,))
