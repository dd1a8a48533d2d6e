"""Jobs shifted in time: against the policy of one job, dense programs, and the decision without a signal."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from demands_at_random import dense_rate, dense_rules, random_demand
from scipy.optimize import linprog

from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.planned_jobs.frontier_points import frontier_points
from schedsearch.cluster.policies.program import AllocationProgram
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.policies.spending.energy import FloorRules, Floors, LeastEnergy
from schedsearch.cluster.policies.spending.shifting import LeastSignalCost, min_cost_shares
from schedsearch.energy import FrequencyPlan, Frontier, Interval, SignalJob, min_cost_policy

DAY = (Interval(100.0, 3.0), Interval(100.0, 1.0))
"""Dear, then cheap."""


def waiting_job(now_s: float = 0.0, slo_s: float = 200.0, steps: float = 1000.0) -> Demand:
    """Return one job on one GPU of 10 steps/s and 360 W, or 8 steps/s and 180 W."""
    cluster = GpuCluster({"a100": 1})
    jobs = [ActiveJob(Job("only", "any", steps, slo_s=slo_s), steps)]
    points = [Configuration((0,), "a100", 1, (10.0,), 360.0), Configuration((0,), "a100", 1, (8.0,), 180.0)]
    return Demand.of(cluster, jobs, points, now_s)


def test_a_job_that_can_wait_for_the_cheap_time_does() -> None:
    """All 1000 steps fit into the cheap 100 s at the higher clock; then each of the last 200 takes 90 J more.

    At the lower clock 800 steps are done there for 18 kJ, 5 of the 36 kJ; 200 in the dear time take 4.5 kJ at
    three times the price, which is less than 18 kJ at once.
    """
    found = LeastSignalCost(signal=DAY, horizon_s=200.0).allocate(waiting_job())
    check_allocation(found)
    assert found.rates == pytest.approx([2.0], rel=1e-5)
    assert found.objective == pytest.approx((18e3 + 3 * 4.5e3) / 3.6e6, rel=1e-5)
    assert found.valid_until_s == 100.0


def test_what_is_decided_depends_on_the_time() -> None:
    policy = LeastSignalCost(signal=DAY, horizon_s=200.0)
    cheap = policy.allocate(waiting_job(now_s=1150.0, slo_s=200.0, steps=800.0))
    assert cheap.rates == pytest.approx([8.0], rel=1e-5)
    assert cheap.valid_until_s == pytest.approx(1200.0)
    dear = policy.allocate(waiting_job(now_s=1000.0, steps=400.0))
    assert dear.rates == pytest.approx([0.0])


def frontier_at_random(rng: np.random.Generator) -> Frontier:
    """Return one of two devices, whose power grows with the cube of the clock."""
    clocks = np.sort(rng.uniform(0.4, 1, 6))[::-1]
    plans = tuple(
        FrequencyPlan({}, float(100 / x), float(100 / x * (200 + rng.uniform(500, 700) * x**3)), 0.0)
        for x in clocks
    )
    return Frontier(plans, plans[0], 30.0, 2)


@pytest.mark.parametrize("seed", range(20))
def test_for_one_job_it_reaches_the_bound_of_the_policy_of_one_job(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frontier = frontier_at_random(rng)
    signal = tuple(Interval(float(rng.uniform(50, 200)), float(rng.uniform(0.1, 3))) for _ in range(5))
    length_s = math.fsum(interval.duration_s for interval in signal)
    steps = int(length_s * 1e3 / frontier.shortest.time_ms * rng.uniform(0.05, 0.95))
    pause_w = float(rng.choice([0.0, 30.0]))
    wanted = min_cost_policy(frontier, SignalJob(steps, signal, pause_w)).min_cost

    cluster = GpuCluster({"a100": 2}, idle_power_w={"a100": pause_w})
    jobs = [ActiveJob(Job("only", "any", steps, 2, slo_s=length_s), steps)]
    points = frontier_points(frontier, 20, pause_w).points
    demand = Demand.of(
        cluster, jobs, [Configuration((0,), "a100", 2, (p.steps_per_s,), p.power_w) for p in points]
    )
    assert LeastSignalCost(signal=signal, horizon_s=length_s).allocate(demand).objective == pytest.approx(
        wanted, rel=1e-5
    )


def dense_cost(demand: Demand, floors: Floors, intervals: tuple[Interval, ...]) -> float:
    """Return the least cost of intervals, by a program written down row by row."""
    n, horizon_s = len(demand.configurations), math.fsum(one.duration_s for one in intervals)
    rows, limits, begin_s = [], [], 0.0
    inside = []  # seconds of each interval in which each configuration may run
    for k, interval in enumerate(intervals):
        for row, limit in zip(*dense_rules(demand), strict=True):
            rows.append([0.0] * (n * k) + row + [0.0] * (n * (len(intervals) - k - 1)))
            limits.append(limit)
        for i in range(n):
            ends = [float(floors.window_s[job]) for job in demand.configurations[i][0]]
            inside.append(min(max(min(ends) - begin_s, 0.0), interval.duration_s))
        begin_s += interval.duration_s
    for job, active in enumerate(demand.jobs):
        end_s = min(float(floors.window_s[job]), horizon_s)
        done = [rate * s for rate, s in zip(dense_rate(demand, job) * len(intervals), inside, strict=True)]
        rows += [done, [-steps for steps in done]]
        limits += [active.steps_left, -min(float(floors.steps_per_s[job]) * end_s, active.steps_left)]
    prices = [interval.price_per_kwh for interval in intervals for _ in range(n)]
    watts = [*demand.added_power_w] * len(intervals)
    cost = [price * w * s / 3.6e6 for price, w, s in zip(prices, watts, inside, strict=True)]
    found = linprog(cost, rows, limits, method="highs-ds")
    assert found.status == 0, found.message
    waiting = sum(one.price_per_kwh * one.duration_s for one in intervals) * demand.idle_power_w / 3.6e6
    return float(found.fun + waiting)


@pytest.mark.parametrize("seed", range(30))
def test_the_least_cost_is_that_of_a_dense_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    demand = random_demand(seed, cap_share=float(rng.uniform(0.2, 1)) if rng.random() < 0.5 else math.inf)
    intervals = tuple(Interval(float(rng.uniform(10, 60)), float(rng.uniform(-0.2, 3))) for _ in range(4))
    floors = FloorRules(min_share=0.8).set_floors(AllocationProgram(demand))
    found = min_cost_shares(demand, floors, intervals)
    for each in found.shares:
        check_allocation(Allocation(demand, each, 0.0))
    assert found.cost == pytest.approx(dense_cost(demand, floors, intervals), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_at_a_constant_price_it_takes_no_more_than_the_decision_of_least_energy(seed: int) -> None:
    """With one interval it is that decision; SLOs beyond the horizon are kept pro rata."""
    demand = random_demand(seed)
    far = [
        replace(one, steps_left=1e4, job=replace(one.job, slo_s=one.job.slo_s * 100)) for one in demand.jobs
    ]
    demand = replace(demand, jobs=tuple(far))
    now = LeastEnergy().allocate(demand)
    over_time = LeastSignalCost(signal=(Interval(50.0, 2.0),), horizon_s=50.0).allocate(demand)
    assert over_time.objective == pytest.approx(2 * 50 * now.objective / 3.6e6, rel=1e-5)


def test_of_floors_that_do_not_fit_each_job_has_the_same_share() -> None:
    found = min_cost_shares(waiting_job(steps=2000.0), Floors(np.array([11.0]), np.array([100.0])), DAY)
    assert found.slo_share == pytest.approx(10 / 11)
    assert found.shares[0] == pytest.approx([1.0, 0.0], abs=1e-5)
    lost = LeastSignalCost(1.0, signal=DAY, horizon_s=200.0).allocate(waiting_job(slo_s=50.0))
    assert lost.valid_until_s == 100.0
    assert lost.notes == ("job only: nothing keeps its SLO; it has a fair share",)


@pytest.mark.parametrize("seed", range(20))
def test_slos_come_before_promises_and_both_have_the_highest_share(seed: int) -> None:
    """A little more of what jobs have cannot be kept, by the program written down row by row."""
    rng = np.random.default_rng(seed)
    demand = random_demand(seed)
    intervals = tuple(Interval(float(rng.uniform(10, 60)), float(rng.uniform(0.1, 3))) for _ in range(3))
    horizon_s = math.fsum(one.duration_s for one in intervals)
    far = [replace(one, steps_left=1e5) for one in demand.jobs]
    demand = replace(demand, jobs=tuple(far))
    alone = np.array([max(dense_rate(demand, job)) for job in range(len(far))])
    wanted = Floors(alone * rng.uniform(0.5, 1, len(far)), rng.uniform(20, 1.5 * horizon_s, len(far)))
    promised = np.flatnonzero(rng.random(len(far)) < 0.5)
    found = min_cost_shares(demand, wanted, intervals, promised)

    def kept(slo_share: float, promised_share: float) -> bool:
        parts = np.where(np.isin(np.arange(len(far)), promised), promised_share, slo_share)
        try:
            dense_cost(demand, replace(wanted, steps_per_s=wanted.steps_per_s * parts), intervals)
        except AssertionError:
            return False
        return True

    slo, rest = found.slo_share, found.promised_share
    assert kept(slo * (1 - 1e-4), rest * (1 - 1e-4))
    assert slo == 1 or not kept(slo * (1 + 1e-4), 0.0)
    assert rest == 1 or not kept(slo * (1 - 1e-6), rest * (1 + 1e-3) + 1e-4)


def on_one_gpu(*jobs: ActiveJob, now_s: float = 0.0) -> Demand:
    """Return jobs of one step per second at 300 W."""
    points = [Configuration((number,), "a100", 1, (1.0,), 300.0) for number in range(len(jobs))]
    return Demand.of(GpuCluster({"a100": 1}), jobs, points, now_s)


def test_slos_that_can_be_kept_one_after_the_other_are_kept() -> None:
    """At constant rates the first would have two thirds of what it needs."""
    flat = (Interval(100.0, 1.0), Interval(100.0, 1.0))
    jobs = [
        ActiveJob(Job(name, "any", 100.0, slo_s=end_s), 100.0) for name, end_s in (("a", 100), ("b", 200))
    ]
    found = LeastSignalCost(signal=flat, horizon_s=200.0).allocate(on_one_gpu(*jobs))
    assert found.rates == pytest.approx([1.0, 0.0], abs=1e-5)
    assert found.notes == ()


def test_a_job_promised_little_beside_slos_is_promised_more_when_these_are_done() -> None:
    """Beside a job that takes the GPU for 1000 s the floor of the other is next to nothing."""
    policy = LeastSignalCost(0.5, signal=DAY, horizon_s=200.0)
    hurried, other = (
        ActiveJob(Job("slo", "any", 1e3, slo_s=1e3), 1e3),
        ActiveJob(Job("other", "any", 50.0), 50.0),
    )
    assert policy.allocate(on_one_gpu(hurried, other)).rates == pytest.approx([1.0, 0.0], abs=1e-4)
    dear = policy.allocate(on_one_gpu(other, now_s=1000.0))
    assert policy._promised_s == {"other": pytest.approx(1100.0)}  # half the speed it would have alone
    assert dear.rates == pytest.approx([0.5], rel=1e-5)
    later = policy.allocate(on_one_gpu(replace(other, steps_left=30.0), now_s=1060.0))
    assert later.rates == pytest.approx([30 / 40], rel=1e-5)


def test_a_promise_that_nothing_keeps_is_made_anew() -> None:
    policy = LeastSignalCost(0.5, signal=DAY, horizon_s=200.0)
    other = ActiveJob(Job("other", "any", 50.0), 50.0)
    policy.allocate(on_one_gpu(other))
    policy.allocate(on_one_gpu(other, now_s=60.0))  # its GPU was away
    assert policy._promised_s == {"other": pytest.approx(160.0)}


@pytest.mark.parametrize(("signal", "horizon_s", "field"), [((), 10.0, "signal"), (DAY, 0.0, "horizon_s")])
def test_wrong_signals_are_refused(signal: tuple[Interval, ...], horizon_s: float, field: str) -> None:
    with pytest.raises(ClusterError, match=field):
        LeastSignalCost(signal=signal, horizon_s=horizon_s)


def test_by_name_it_reads_the_signal_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "carbon.csv"
    path.write_text("duration_s,price_per_kwh\n100,3\n100,1\n")
    policy = policy_of("least_signal_cost", signal=str(path), horizon_s=200.0)
    assert policy == LeastSignalCost(signal=DAY, horizon_s=200.0)
    assert policy_of("least_energy_slo", min_share=0.5) == LeastEnergy(0.5)
