"""Water filling against a plain procedure of dense programs, one per job, and its properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cluster.policies.cases import Case, case_of, random_case
from one_line_errors import raises_line
from scipy.optimize import linprog

from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.policies.program import AllocationProgram
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.policies.water_filling import Entity, Hierarchical, WaterFilling, water_levels

SEEDS = range(10)
Array = np.ndarray


def limit_rows(case: Case) -> tuple[Array, Array]:
    """Return the normalized throughputs of all jobs, and the used shares of time and of each GPU type."""
    made, time, used = case.rows()
    normal = case.rates @ case.workers / case.workers.sum() / case.gpus
    return made / normal[:, None], np.vstack([time, used / np.maximum(case.workers, 1e-9)[:, None]])


def best(made: Array, used: Array, goal: Array, floors: Array) -> Array:
    """Return the normalized throughputs with the largest sum of goal x throughput above floors."""
    result = linprog(
        -(goal @ made), np.vstack([used, -made]), np.concatenate([np.ones(len(used)), -floors + 1e-9])
    )
    assert result.status == 0, result.message
    return np.asarray(made @ result.x)


def plainly_filled(case: Case, weights_of: Callable[[Array], Array]) -> list[tuple[Array, Array]]:
    """Return levels and who can rise, asking of each job alone whether it can."""
    made, used = limit_rows(case)
    levels, is_open, fillings = np.zeros(len(made)), np.ones(len(made), bool), []
    while is_open.any():
        weights = weights_of(is_open) * is_open
        rows = np.vstack([used, -made])
        pace = np.concatenate([np.zeros(len(used)), weights])
        limits = np.concatenate([np.ones(len(used)), -levels + 1e-10])
        level = linprog(-np.eye(rows.shape[1] + 1)[-1], np.column_stack([rows, pace]), limits)
        assert level.status == 0, level.message
        levels = levels + level.x[-1] * weights
        before = is_open.copy()
        for job in np.flatnonzero(is_open):
            highest = best(made, used, np.eye(len(made))[job], levels)[job]
            is_open[job] = highest > levels[job] + 1e-5 * levels.max()
        assert (is_open != before).any()
        fillings.append((levels.copy(), is_open.copy()))
    return fillings


def normalized(case: Case, allocation: Allocation) -> Array:
    return np.asarray(allocation.rates * case.gpus / (case.rates @ case.workers / case.workers.sum()))


def with_entities(demand: Demand, entities: list[str]) -> Demand:
    jobs = [
        replace(active, job=replace(active.job, entity=entity))
        for active, entity in zip(demand.jobs, entities, strict=True)
    ]
    return replace(demand, jobs=tuple(jobs))


def test_the_dissertations_example() -> None:
    """Four jobs and GPUs, one job of weight 3 (Sec. 5.4.3): 1, 1/3, 1/3, 1/3, then all 1."""
    case = replace(case_of([4], [[1.0]] * 4), weights=np.array([3.0, 1, 1, 1]))
    first, *_, last = water_levels(AllocationProgram(case.demand()), lambda _: case.weights)
    assert first == pytest.approx(np.array([1, 1 / 3, 1 / 3, 1 / 3]))
    assert last == pytest.approx(np.ones(4))
    assert policy_of("water_filling").allocate(case.demand()).objective == pytest.approx(1 / 3)


@pytest.mark.parametrize("shares_space", [False, True])
def test_levels_are_those_of_the_plain_procedure(shares_space: bool) -> None:
    """The result is the one lexicographically largest vector of throughputs / weights, so it is unique."""
    for seed in SEEDS:
        case = random_case(seed) if shares_space else random_case(seed).without_pairs()
        allocation = WaterFilling(shares_space=shares_space).allocate(random_case(seed).demand())
        check_allocation(allocation)
        levels = plainly_filled(case, lambda _, case=case: case.weights)  # type: ignore[misc]
        assert normalized(case, allocation) == pytest.approx(levels[-1][0], rel=1e-4), seed
        assert allocation.objective == pytest.approx((levels[0][0] / case.weights).min(), rel=1e-6)


def test_hierarchical_is_the_plain_procedure() -> None:
    entities = {"a": Entity(3.0, "fifo"), "b": Entity(1.0, "fairness"), "c": Entity(2.0, "fifo")}
    for seed in SEEDS:
        case = random_case(3000 + seed)
        names = [str(name) for name in np.random.default_rng(seed).choice([*"abc"], len(case.rates))]

        def weights_of(is_open: Array, case: Case = case, names: list[str] = names) -> Array:
            weights = np.zeros(len(names))
            for job, name in enumerate(names):
                same = [other for other in np.flatnonzero(is_open) if names[other] == name]
                if entities[name].inside == "fairness" and job in same:
                    weights[job] = entities[name].weight * case.weights[job] / case.weights[same].sum()
                elif same and job == same[0]:
                    weights[job] = entities[name].weight
            return weights

        levels = plainly_filled(case, weights_of)
        allocation = Hierarchical(entities, shares_space=True).allocate(with_entities(case.demand(), names))
        check_allocation(allocation)
        assert normalized(case, allocation) == pytest.approx(levels[-1][0], rel=1e-4, abs=1e-6), seed


def test_entities_of_like_jobs_have_throughput_by_their_weights() -> None:
    """Also with jobs of two GPUs, which take as many GPUs for as much of the time as their weight says."""
    case = replace(case_of([3, 3], [[4.0, 1.0]] * 12), gpus=np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]))
    names = [*"aaaabbbbcccc"]
    policy = policy_of("hierarchical", entities={name: Entity(n + 1) for n, name in enumerate("abc")})
    allocation = policy.allocate(with_entities(case.demand(), names))
    sums = [normalized(case, allocation)[4 * n : 4 * n + 4].sum() for n in range(3)]
    assert np.array(sums) / sums[0] == pytest.approx(np.array([1, 2, 3]), rel=1e-6)


def test_wrong_entities_get_one_line() -> None:
    demand = with_entities(case_of([1], [[1.0]]).demand(), ["a"])
    with raises_line(ClusterError, "job job 0: entity 'a' is not in policy.entities; it has b"):
        policy_of("hierarchical", entities={"b": Entity()}).allocate(demand)
    with raises_line(ClusterError, "entity weight: -1 is not above 0"):
        Entity(-1)
    with raises_line(ClusterError, "entity inside: 'las' is not known"):
        Entity(1, "las")  # type: ignore[arg-type]
