"""Policies about money against dense programs, the dissertation's own procedures, and by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from cluster.policies.cases import Case, case_of
from one_line_errors import raises_line
from scipy.optimize import linprog

from schedsearch.cluster.allocation import Allocation, InfeasibleError, check_allocation
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.policies.spending import MakespanWithinBudget, MinCost, MinCostWithSlos

Array = np.ndarray
SEEDS = range(20)


def rules(case: Case) -> tuple[Array, Array]:
    """Return rows and limits of time and GPUs, over the shares of (job, type)."""
    num_jobs, num_types = case.rates.shape
    time = np.kron(np.eye(num_jobs), np.ones(num_types))
    used = np.kron(case.gpus, np.eye(num_types))
    return np.vstack([time, used]), np.concatenate([np.ones(num_jobs), case.workers])


def made(case: Case) -> Array:
    """Return the throughput of each job over the shares of (job, type)."""
    num_jobs, num_types = case.rates.shape
    return np.kron(np.eye(num_jobs), np.ones(num_types)) * case.rates.ravel()


def dollars_per_s(case: Case) -> Array:
    return np.outer(case.gpus, case.prices).ravel() / 3600


def drawn(seed: int, slack: float = 1.0) -> Case:
    """Return a case whose SLOs can be met together if `slack` is at least 1: some allocation meets them."""
    draw = np.random.default_rng(seed)
    num_jobs, num_types = int(draw.integers(1, 9)), int(draw.integers(1, 4))
    workers = draw.integers(4, 9, num_types).astype(float)
    gpus = draw.choice([1.0, 2.0, 4.0], num_jobs, p=[0.6, 0.3, 0.1])
    rates = 10 ** draw.uniform(0, 2, (num_jobs, 1)) * draw.uniform(0.1, 1, (num_jobs, num_types))
    rates[:, 1:][draw.random((num_jobs, num_types - 1)) < 0.2] = 0.0
    shares = draw.random(rates.shape)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    shares /= max(1.0, *(gpus @ shares / workers))
    steps = 10 ** draw.uniform(3, 6, num_jobs)
    slo_s = np.where(draw.random(num_jobs) < 0.6, slack * steps / (rates * shares).sum(axis=1), np.inf)
    prices, ones = draw.uniform(0.3, 4, num_types), np.ones(num_jobs)
    return Case(workers, rates, gpus, ones, steps, 0 * ones, 0 * ones, [], prices, slo_s)


def decided(policy: MinCost | MakespanWithinBudget, case: Case) -> Allocation:
    allocation = policy.allocate(case.demand())
    check_allocation(allocation)
    return allocation


SINGLE = replace(
    case_of([1, 1], [[22.0, 10.0]], 1500.0), prices=np.array([2.48, 0.45]), slo_s=np.full(1, 100.0)
)
"""One job on a V100 or a K80 that needs 15 steps/s."""


def test_one_job_with_a_deadline_mixes_types_and_without_one_takes_the_cheapest() -> None:
    without, within = (policy_of(name) for name in ("min_cost", "min_cost_slo"))
    assert without.allocate(SINGLE.demand()).shares == pytest.approx(np.array([0, 1]))
    assert within.allocate(SINGLE.demand()).shares == pytest.approx(np.array([5 / 12, 7 / 12]))


@pytest.mark.parametrize("has_slos", [False, True])
def test_steps_per_dollar_is_gavels_program(has_slos: bool) -> None:
    policy = MinCostWithSlos() if has_slos else MinCost()
    for seed in SEEDS:
        case = drawn(seed, 1.01)
        rows, limits = rules(case)
        if has_slos:
            rows, limits = np.vstack([rows, -made(case)]), np.append(limits, -case.steps / case.slo_s)
        values = (case.rates / case.prices).ravel()
        result = linprog(-values, rows, limits, bounds=[(0, None if value else 0) for value in values])
        allocation = decided(policy, case)
        assert allocation.objective == pytest.approx(-result.fun, rel=1e-6), seed
        assert not has_slos or (allocation.rates >= case.steps / case.slo_s * (1 - 1e-6)).all()


@pytest.mark.parametrize("name", ["min_cost", "min_cost_slo"])
def test_steps_per_dollar_counts_all_gpus_where_a_job_can_run_on_several_numbers(name: str) -> None:
    jobs = [ActiveJob(Job("a", "t", 1000.0, scale_factor=2, other_scale_factors=(1, 4)), 1000.0)]
    configs = [Configuration((0,), "v100", gpus, (rate,)) for gpus, rate in ((1, 10.0), (2, 18.0), (4, 30.0))]
    allocation = policy_of(name).allocate(Demand.of(GpuCluster({"v100": 4}, {"v100": 1.0}), jobs, configs))
    assert allocation.rates == pytest.approx(np.array([10.0]))  # 10 steps/s per dollar, not 9 or 7.5
    assert allocation.objective == pytest.approx(20.0)  # of two GPUs, the job's usual number


def test_slos_that_cannot_be_kept_are_told() -> None:
    case = replace(SINGLE, slo_s=np.full(1, 50.0))
    result = MinCostWithSlos().allocate(case.demand())
    assert result.notes == ("job job 0: nothing keeps its SLO",)
    two = replace(case_of([1], [[10.0], [10.0]]), prices=np.ones(1), slo_s=np.array([150.0, 160.0]))
    result = MinCostWithSlos().allocate(two.demand())
    share = 1 / (100 / 150 + 100 / 160)
    assert result.rates * two.slo_s / two.steps == pytest.approx([share, share], rel=1e-6)
    assert result.notes == (f"the other SLOs cannot all be kept: each job has {share:.4g} of what it needs",)


def test_a_margin_is_kept_where_it_can_be() -> None:
    case = replace(SINGLE, slo_s=np.full(1, 110.0))
    assert MinCostWithSlos(margin_s=10).allocate(case.demand()).rates == pytest.approx(np.array([15.0]))
    assert MinCostWithSlos(margin_s=100).allocate(case.demand()).rates == pytest.approx(np.array([22.0]))


def shortest_by_bisection(case: Case, budget: float) -> float:
    """Return the least makespan as the dissertation finds it."""
    rows, limits = rules(case)

    def is_enough(makespan: float) -> bool:
        all_rows = np.vstack(
            [rows, -made(case) / case.steps[:, None] * makespan, dollars_per_s(case) * makespan]
        )
        right = np.concatenate([limits, -np.ones(len(case.steps)), [budget]])
        return linprog(np.zeros(rows.shape[1]), all_rows, right).status == 0

    low = float((case.steps / case.rates.max(axis=1)).max()) * 0.99
    high = 1e4 * low
    while high > low * (1 + 1e-6):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def min_budget(case: Case) -> float:
    per_step = dollars_per_s(case).reshape(case.rates.shape) / case.rates.clip(1e-9)
    return float(case.steps @ per_step.min(axis=1))


def test_makespan_within_a_budget_is_that_of_bisection() -> None:
    for seed in range(8):
        case = drawn(seed)
        for times in (1.02, 1.3, 3.0):
            budget = times * min_budget(case)
            allocation = decided(MakespanWithinBudget(budget), case)
            assert allocation.objective == pytest.approx(shortest_by_bisection(case, budget), rel=1e-5), seed
            assert (case.steps / allocation.rates).max() == pytest.approx(allocation.objective, rel=1e-6)
            assert allocation.objective * allocation.dollars_per_hour / 3600 <= budget * (1 + 1e-6)


def test_no_budget_is_the_plain_makespan_and_a_larger_budget_is_never_slower() -> None:
    for seed in range(12):
        case = drawn(seed)
        budgets = [min_budget(case) * times for times in (1, 1.1, 1.5, 2, 100)]
        times_s = [decided(MakespanWithinBudget(budget), case).objective for budget in [*budgets, np.inf]]
        assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(times_s))
        assert times_s[-1] == pytest.approx(policy_of("makespan").allocate(case.demand()).objective, rel=1e-6)


def test_a_budget_that_is_too_small_is_answered_with_the_least_that_would_do() -> None:
    case = replace(SINGLE, steps=np.full(1, 3.6e6))
    with pytest.raises(InfeasibleError, match=r"at least 45\.00 dollars.*give budget_dollars=45\.00 or more"):
        MakespanWithinBudget(44.0).allocate(case.demand())
    allocation = MakespanWithinBudget(45.0).allocate(case.demand())
    assert allocation.shares == pytest.approx(np.array([0, 1]), abs=1e-6)


def test_a_run_stays_within_its_budget() -> None:
    """Jobs that are a tenth further at each decision, some of them with other types by then."""
    for seed in range(10):
        case = drawn(seed)
        budget = 1.2 * min_budget(case)
        policy, spent, left = MakespanWithinBudget(budget), 0.0, case.steps.copy()
        while (left > 1e-3 * case.steps).any():
            here = replace(case, steps=np.maximum(left, 1e-6))
            allocation = policy.allocate(here.demand())
            seconds = 0.3 * allocation.objective
            spent += seconds * allocation.dollars_per_hour / 3600
            left = left - seconds * allocation.rates
        assert spent <= budget * (1 + 1e-3), seed


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("min_cost_slo", {"margin_s": -1}, "policy min_cost_slo: margin_s: -1 is not 0 or more"),
        (
            "makespan_budget",
            {"budget_dollars": 0},
            "policy makespan_budget: budget_dollars: 0 is not above 0",
        ),
    ],
)
def test_wrong_options_get_one_line(name: str, options: dict[str, object], said: str) -> None:
    with raises_line(ClusterError, said):
        policy_of(name, **options)


def test_a_type_without_a_price_is_named() -> None:
    case = replace(SINGLE, prices=np.array([2.48, 0.0]))
    with pytest.raises(ClusterError, match=r"cluster\.dollars_per_hour\.type 1 is not above 0"):
        MinCost().allocate(case.demand())
