"""Layers divided into stages, against all divisions there are."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from stages_at_random import every_division

from placements.planners.partition import min_largest
from placements.planners.stage_search.division import (
    StageCost,
    StageCosts,
    iteration_ms,
    memory_balanced,
    spans,
    windows,
)
from placements.planners.stage_search.exact_division import Bounds, exact_partition
from placements.planners.stage_search.paper_division import bi_objective_partition
from placements.planners.stage_search.stage_problem import Ints, StageError


class Chain:
    """Unequal layers on stages of unequal speed, with what depends on the whole stage besides."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.num_layers = rng.randint(1, 9)
        self.num_stages = rng.randint(1, min(self.num_layers, 5))
        self.num_micro_batches = rng.choice([1, 2, 8])
        self.times = [rng.randint(1, 9) for _ in range(self.num_layers)]
        self.memory = [rng.randint(1, 9) for _ in range(self.num_layers)]
        self.slowness = [rng.choice([1, 1, 2]) for _ in range(self.num_stages)]
        self.in_flight = [self.num_stages - stage for stage in range(self.num_stages)]
        self.capacity = rng.randint(5, 60)
        self.asked: list[tuple[int, int, int]] = []

    def costs(self, stage: int, first: int, end: int) -> StageCost | None:
        self.asked.append((stage, first, end))
        rng = random.Random(f"{self.seed} {stage} {first} {end}")
        held = self.held((stage, first, end))
        time_ms = sum(self.times[first:end]) * self.slowness[stage] + rng.randint(0, 3)
        return StageCost(time_ms, rng.randint(0, 6), held) if held <= self.capacity else None

    def held(self, span: tuple[int, int, int]) -> int:
        stage, first, end = span
        return sum(self.memory[first:end]) * self.in_flight[stage]

    def bounds_ms(self) -> Bounds:
        size = self.num_stages, self.num_layers + 1, self.num_layers + 1
        times_ms = windows(np.cumsum([0.0, *self.times]), self.num_layers)
        return np.broadcast_to(times_ms, size), np.zeros(size)


def all_different(num_layers: int) -> Ints:
    """The contents of stages whose layers all differ."""
    return np.arange((num_layers + 1) ** 2).reshape(num_layers + 1, num_layers + 1)


def time_of(costs: StageCosts, division: tuple[int, ...], num_micro_batches: int) -> float:
    stages = [each for each in (costs(*span) for span in spans(division)) if each is not None]
    if len(stages) < len(division):
        return math.inf
    times_ms, syncs_ms, _ = zip(*stages, strict=True)
    return iteration_ms(times_ms, syncs_ms, num_micro_batches)


@pytest.mark.parametrize("seed", range(50))
def test_no_division_is_shorter(seed: int) -> None:
    chain = Chain(seed)
    sizes = chain.num_layers, chain.num_stages
    shortest = min(time_of(chain.costs, each, chain.num_micro_batches) for each in every_division(*sizes))
    chain.asked.clear()
    found = exact_partition(
        chain.costs, chain.num_micro_batches, chain.bounds_ms(), all_different(chain.num_layers)
    )
    assert (math.inf if found is None else found.time_ms) == pytest.approx(shortest)
    assert len(chain.asked) == len(set(chain.asked))
    if found is not None:
        assert found.time_ms == time_of(chain.costs, found.stage_layers, chain.num_micro_batches)
    even = memory_balanced([0.0] * sizes[0], chain.memory, chain.in_flight)
    paper = bi_objective_partition(
        chain.costs, even, min_largest(chain.times, sizes[1]), chain.num_micro_batches
    )
    assert paper is None or paper.time_ms >= shortest - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_balanced_memory(seed: int) -> None:
    chain = Chain(seed)
    found = memory_balanced([0.0] * chain.num_layers, chain.memory, chain.in_flight)

    def most(division: tuple[int, ...]) -> tuple[int, int]:
        held = [chain.held(span) for span in spans(division)]
        return max(held), sum(each**2 for each in held)

    assert most(found) == min(most(each) for each in every_division(chain.num_layers, chain.num_stages))


def test_few_stages_are_solved_with_bounds() -> None:
    """96 equal layers on 16 stages: all bounds are met, so only the best division's stages are solved."""
    asked: list[tuple[int, int, int]] = []

    def costs(stage: int, first: int, end: int) -> StageCost:
        asked.append((stage, first, end))
        return StageCost(2.0 * (end - first), 1.0, 0.0)

    min_ms = np.broadcast_to(windows(2.0 * np.arange(97), 96), (16, 97, 97))
    found = exact_partition(costs, 64, (min_ms, np.ones(min_ms.shape)), all_different(96))
    assert found is not None
    assert found.stage_layers == (6,) * 16
    assert found.time_ms == 63 * 12 + 16 * 13
    assert len(asked) <= 3 * 16


def test_equal_layers_are_solved_once_in_a_stage() -> None:
    """Where every stage of as many layers costs the same, none is asked for at a second place."""
    asked: list[tuple[int, int]] = []
    rng = random.Random(1)
    times = {(stage, number): number + rng.random() for stage in range(4) for number in range(1, 14)}

    def costs(stage: int, first: int, end: int) -> StageCost:
        asked.append((stage, end - first))
        return StageCost(times[stage, end - first], 0.0, 0.0)

    min_ms = np.broadcast_to(windows(np.arange(14.0), 13), (4, 14, 14))
    contents = np.broadcast_to(np.arange(14), (14, 14))
    found = exact_partition(costs, 3, (min_ms, np.zeros(min_ms.shape)), contents)
    assert found is not None
    assert len(asked) == len(set(asked))
    assert found.time_ms == min(time_of(costs, each, 3) for each in every_division(13, 4))


def test_a_search_that_is_stopped_has_told_its_best() -> None:
    chain, told = Chain(11), []

    def stopped(stage: int, first: int, end: int) -> StageCost | None:
        if told:
            raise KeyboardInterrupt
        return chain.costs(stage, first, end)

    given = chain.num_micro_batches, chain.bounds_ms(), all_different(chain.num_layers)
    with pytest.raises(KeyboardInterrupt):
        exact_partition(stopped, *given, on_better=told.append)
    assert sum(told[0]) == chain.num_layers
    told_all: list[tuple[int, ...]] = []
    best = exact_partition(chain.costs, *given, on_better=told_all.append)
    assert best is not None
    assert told_all[0] == told[0]
    assert told_all[-1] == best.stage_layers
    times = [time_of(chain.costs, each, chain.num_micro_batches) for each in told_all]
    assert times == sorted(times, reverse=True)


def test_the_paper_moves_layers_to_faster_divisions() -> None:
    """Two stages, 1F1B: from (2, 4), balanced in memory, one layer is moved, and then none helps."""
    costs = [2.0, 1.0]

    def stage_cost(stage: int, first: int, end: int) -> StageCost:
        return StageCost(end - first, 0.0, costs[stage] * (end - first))

    start = memory_balanced([0.0] * 6, [1.0] * 6, [2, 1])
    found = bi_objective_partition(stage_cost, start, (3, 3), 4)
    assert start == (2, 4)
    assert found is not None
    assert (found.stage_layers, found.time_ms) == ((3, 3), 3 * 3 + 6)


def test_nothing_fits() -> None:
    min_ms = np.broadcast_to(windows(np.arange(5.0), 4), (2, 5, 5))
    assert exact_partition(lambda *_: None, 2, (min_ms, min_ms), all_different(4)) is None
    assert bi_objective_partition(lambda *_: None, (2, 2), (2, 2), 2) is None


def test_wrong_numbers() -> None:
    with pytest.raises(StageError, match="num_stages: 3 is not from 1 to the 2 layers"):
        exact_partition(lambda *_: None, 1, (np.ones((3, 3, 3)), np.ones((3, 3, 3))), all_different(2))
