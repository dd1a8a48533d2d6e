"""The objective of each single-level policy, against another formulation and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cluster.policies.cases import (
    Case,
    can_make,
    case_of,
    isolated_rates,
    largest_sum,
    random_case,
    shortest_time,
)

from schedsearch.cluster.allocation import Allocation, InfeasibleError, check_allocation
from schedsearch.cluster.policies.fairness import isolated_steps_per_s
from schedsearch.cluster.policies.registry import policy_of

SEEDS = range(15)
FEW_SEEDS = range(8)
EXAMPLE = [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]
"""Three jobs on one V100 and one K80 (Sec. 5.4.1)."""


def decided(name: str, case: Case) -> Allocation:
    allocation = policy_of(name).allocate(case.demand())
    check_allocation(allocation)
    return allocation


def proportional(case: Case) -> np.ndarray:
    return case.rates @ (case.workers / case.workers.sum())


def equal_types(case: Case) -> Case:
    first = np.array([row[np.flatnonzero(row)[0]] for row in case.rates])
    return replace(case, rates=np.where(case.rates > 0, first[:, None], 0.0), pairs=[])


def forms(term: str, case: Case) -> list[tuple[str, Case]]:
    return [(term, case.without_pairs()), (f"{term}_packed", case), (f"{term}_agnostic", equal_types(case))]


@pytest.mark.parametrize("is_wide", [False, True])
def test_max_min_fairness_is_the_plain_programs(is_wide: bool) -> None:
    for seed in SEEDS:
        case = random_case(seed, is_wide=is_wide)
        for name, seen in forms("las", case):
            normal = seen.rates.max(axis=1) if name.endswith("agnostic") else proportional(case)
            best = 1 / shortest_time(seen, case.weights * normal / case.gpus)
            assert decided(name, case).objective == pytest.approx(best, rel=1e-6), (seed, name)


@pytest.mark.parametrize("is_wide", [False, True])
def test_makespan_is_the_plain_programs(is_wide: bool) -> None:
    for seed in SEEDS:
        case = random_case(seed, is_wide=is_wide)
        for name, seen in forms("makespan", case):
            result = decided(name, case)
            assert result.objective == pytest.approx(shortest_time(seen, case.steps), rel=1e-6), (seed, name)
            if not name.endswith("agnostic"):
                assert (case.steps / result.rates).max() == pytest.approx(result.objective, rel=1e-7)


@pytest.mark.parametrize("is_wide", [False, True])
def test_no_finish_time_ratio_below_the_found_one_can_be_had(is_wide: bool) -> None:
    for seed in SEEDS:
        case = random_case(seed, is_wide=is_wide)
        for name, seen in forms("finish_time_fairness", case):
            ratio = decided(name, case).objective
            alone_s = case.isolated_s + case.steps / isolated_rates(seen)
            for factor, is_possible in ((1 + 1e-6, True), (1 - 1e-6, False)):
                left_s = ratio * factor * alone_s - case.waited_s
                makes = bool((left_s > 0).all()) and can_make(seen, case.steps / left_s)
                assert makes == is_possible, (seed, name, factor)


def test_sums_of_throughputs_are_the_plain_programs() -> None:
    for seed in SEEDS:
        case = random_case(seed)
        order = np.arange(len(case.rates), 0, -1)
        for name, seen in forms("fifo", case):
            best = largest_sum(seen, order / seen.rates.max(axis=1))
            assert decided(name, case).objective == pytest.approx(best, rel=1e-6), (seed, name)
        total = largest_sum(case.without_pairs(), np.ones(len(case.rates)))
        assert decided("max_total_throughput", case).objective == pytest.approx(total, rel=1e-6)


def test_the_shortest_job_comes_first_and_the_rest_in_order() -> None:
    for seed in SEEDS:
        case = random_case(seed).without_pairs()
        fastest = case.rates.max(axis=1)
        times = case.steps / fastest
        floors = np.where(np.arange(len(times)) == times.argmin(), fastest, 0.0) * (1 - 1e-9)
        values = (len(times) - times.argsort().argsort()) / fastest
        allocation = decided("sjf", case)
        assert allocation.objective == pytest.approx(times.min(), rel=1e-6)
        assert values @ allocation.rates == pytest.approx(largest_sum(case, values, floors), rel=1e-6)


def test_the_example_by_hand() -> None:
    """Least 8/11 (isolated 2/3, so 9.09 % more); 90 s, all at once; rho 11/12 (references, G1 to G3)."""
    case = case_of([1, 1], EXAMPLE)
    fair = decided("las", case)
    assert fair.objective == pytest.approx(8 / 11)
    assert fair.shares.reshape(3, 2) == pytest.approx(
        np.array([[5 / 11, 0], [5 / 11, 1 / 11], [1 / 11, 10 / 11]])
    )
    assert decided("isolated", case).objective == pytest.approx(2 / 3)
    assert fair.objective / (2 / 3) - 1 == pytest.approx(1 / 11)
    makespan = decided("makespan", case)
    assert makespan.objective == pytest.approx(90.0)
    assert 1000 / makespan.rates == pytest.approx(np.full(3, 90.0))
    assert decided("finish_time_fairness", case).objective == pytest.approx(11 / 12)


def test_each_job_has_its_part_of_an_isolated_split() -> None:
    for seed in FEW_SEEDS:
        case = random_case(seed)
        allocation = decided("isolated", case)
        assert allocation.rates == pytest.approx(isolated_rates(case))
        assert isolated_steps_per_s(case.demand()) == pytest.approx(isolated_rates(case))


def test_what_is_left_can_be_given_too() -> None:
    """Two GPUs and two jobs, of which one needs a tenth of the time to end with the other."""
    case = replace(case_of([2], [[10.0], [10.0]]), steps=np.array([1000.0, 100.0]))
    allocation = decided("makespan", case)
    assert allocation.objective == pytest.approx(100.0)
    assert allocation.rates == pytest.approx([10.0, 10.0])


def test_an_agnostic_policy_divides_the_time_as_the_gpus() -> None:
    """Two jobs on 3 GPUs, two of the first type: all the time each, 2/3 of it on the first."""
    allocation = decided("las_agnostic", case_of([2, 1], [[40.0, 10.0], [12.0, 4.0]]))
    assert allocation.shares.reshape(2, 2) == pytest.approx(np.array([[2 / 3, 1 / 3], [2 / 3, 1 / 3]]))
    assert allocation.rates == pytest.approx(np.array([30.0, 28 / 3]))


@pytest.mark.parametrize(
    "name", ["las", "isolated", "makespan", "finish_time_fairness_packed", "water_filling"]
)
def test_a_job_without_throughput_is_named(name: str) -> None:
    case = case_of([1, 0], [[40.0, 10.0], [0.0, 4.0]])
    with pytest.raises(InfeasibleError, match="job 1 has no throughput on any GPU type that has its 1 GPUs"):
        policy_of(name).allocate(case.demand())


@pytest.mark.parametrize("name", ["las", "las_agnostic"])
def test_jobs_that_are_alike_get_the_same_and_the_least_is_the_plain_programs(name: str) -> None:
    """Many jobs of few types, scale factors and weights, in mixed order."""
    for seed in range(6):
        few = random_case(seed)
        chosen = np.random.default_rng(seed).integers(0, len(few.rates), 25)
        columns = ("rates", "gpus", "weights", "steps", "waited_s", "isolated_s")
        case = replace(few, pairs=[], **{column: getattr(few, column)[chosen] for column in columns})
        seen = case if name == "las" else equal_types(case)
        normal = proportional(case) if name == "las" else seen.rates.max(axis=1)
        allocation = decided(name, case)
        best = 1 / shortest_time(seen, case.weights * normal / case.gpus)
        assert allocation.objective == pytest.approx(best, rel=1e-6)
        times = allocation.demand.times(allocation.shares)
        for kind in np.unique(chosen):
            assert np.ptp(times[chosen == kind]) < 1e-12
