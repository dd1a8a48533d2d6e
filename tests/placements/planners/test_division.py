"""Divisions of layers into stages, against all there are."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stages_at_random import every_division

from placements.planners.bmw import bi_objective_partition, memory_balanced
from placements.planners.division import (
    Floats,
    StageCost,
    StageCosts,
    in_proportion,
    iteration_ms,
    min_imbalance,
    min_largest,
    shortest_iteration,
    spans,
    stage_times,
    windows,
)
from placements.planners.hybrid.plan import PlanError

TIMES = st.lists(st.integers(1, 20) | st.floats(0.5, 20), min_size=1, max_size=9)


def ratio(times: Sequence[float]) -> float:
    return max(times) / min(times)


@given(TIMES, st.data())
def test_no_division_is_better(times: list[float], data: st.DataObject) -> None:
    num_stages = data.draw(st.integers(1, len(times)))
    every = [stage_times(times, division) for division in every_division(len(times), num_stages)]
    largest, alike = min_largest(times, num_stages), min_imbalance(times, num_stages)
    for division in (largest, alike):
        assert (len(division), sum(division), min(division) >= 1) == (num_stages, len(times), True)
    sums = stage_times(times, largest)
    assert (max(sums), -min(sums)) == min((max(stages), -min(stages)) for stages in every)
    assert ratio(stage_times(times, alike)) == min(ratio(stages) for stages in every)


@pytest.mark.parametrize("num_stages", [0, 4])
def test_stages_without_layers(num_stages: int) -> None:
    with pytest.raises(PlanError, match=f"num_stages: {num_stages} is not from 1 to the 3 layers"):
        min_largest([1, 1, 1], num_stages)
    with pytest.raises(PlanError, match="num_stages"):
        min_imbalance([1, 1, 1], num_stages)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=7), st.data())
def test_proportions_are_kept_to_a_layer(division: list[int], data: st.DataObject) -> None:
    """The division itself gives itself, and its multiples theirs; a layer is off only where each has one."""
    assert in_proportion(division, sum(division)) == tuple(division)
    assert in_proportion(division, 3 * sum(division)) == tuple(3 * layers for layers in division)
    num_layers = data.draw(st.integers(len(division), 2 * sum(division)))
    scaled = in_proportion(division, num_layers)
    assert (len(scaled), sum(scaled), min(scaled) >= 1) == (len(division), num_layers, True)
    exact = [layers * num_layers / sum(division) for layers in division]
    assert all(ours < share + 1 or ours == 1 for ours, share in zip(scaled, exact, strict=True))
    if min(exact) >= 1:
        assert all(abs(ours - share) < 1 for ours, share in zip(scaled, exact, strict=True))


def test_fewer_layers_than_parts_are_refused() -> None:
    with pytest.raises(PlanError, match=r"^num_layers: 2 is fewer than the 3 parts that share them; give at"):
        in_proportion([4, 4, 1], 2)


class Chain:
    """Unequal layers on stages of unequal speed, with costs that depend on the whole stage."""

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
        time_ms = sum(self.times[first:end]) * self.slowness[stage] + rng.randint(0, 3)
        held = self.held((stage, first, end))
        return (time_ms, rng.randint(0, 6), held) if held <= self.capacity else None

    def held(self, span: tuple[int, ...]) -> int:
        stage, first, end = span
        return sum(self.memory[first:end]) * self.in_flight[stage]

    def bounds_ms(self) -> tuple[Floats, Floats]:
        times_ms = windows(np.cumsum([0.0, *self.times]))
        size = self.num_stages, *times_ms.shape
        return np.broadcast_to(times_ms, size), np.zeros(size)

    def time_of(self, division: tuple[int, ...]) -> float:
        return time_of(self.costs, division, self.num_micro_batches)


def all_different(num_layers: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The contents of stages whose layers all differ."""
    return np.arange((num_layers + 1) ** 2).reshape(num_layers + 1, num_layers + 1)


def time_of(costs: StageCosts, division: tuple[int, ...], num_micro_batches: int) -> float:
    stages = [stage for stage in (costs(*span) for span in spans(division)) if stage is not None]
    if len(stages) < len(division):
        return math.inf
    times_ms, once_ms, _ = zip(*stages, strict=True)
    return iteration_ms(times_ms, once_ms, num_micro_batches)


@pytest.mark.parametrize("seed", range(50))
def test_no_iteration_is_shorter(seed: int) -> None:
    chain = Chain(seed)
    shortest = min(chain.time_of(division) for division in every_division(chain.num_layers, chain.num_stages))
    chain.asked.clear()
    given = chain.num_micro_batches, chain.bounds_ms(), all_different(chain.num_layers)
    divisions = list(shortest_iteration(chain.costs, *given))
    assert len(chain.asked) == len(set(chain.asked))
    times = [chain.time_of(division) for division in divisions]
    assert times == sorted(times, reverse=True)
    assert min(times, default=math.inf) == pytest.approx(shortest)
    even = memory_balanced([0.0] * chain.num_layers, chain.memory, chain.in_flight)
    balanced = min_largest(chain.times, chain.num_stages)
    paper = bi_objective_partition(chain.costs, even, balanced, chain.num_micro_batches)
    assert paper is None or chain.time_of(paper) >= shortest - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_balanced_memory(seed: int) -> None:
    chain = Chain(seed)
    even = memory_balanced([0.0] * chain.num_layers, chain.memory, chain.in_flight)

    def most(division: tuple[int, ...]) -> tuple[int, int]:
        held = [chain.held(span) for span in spans(division)]
        return max(held), sum(mib**2 for mib in held)

    assert most(even) == min(most(other) for other in every_division(chain.num_layers, chain.num_stages))


def test_few_stages_are_asked_for_with_bounds() -> None:
    """96 equal layers on 16 stages: all bounds are met, so only the best division's stages are."""
    asked: list[tuple[int, int, int]] = []

    def costs(stage: int, first: int, end: int) -> StageCost:
        asked.append((stage, first, end))
        return 2.0 * (end - first), 1.0, 0.0

    min_ms = np.broadcast_to(windows(2.0 * np.arange(97)), (16, 97, 97))
    assert list(shortest_iteration(costs, 64, (min_ms, np.ones(min_ms.shape)), all_different(96))) == [
        (6,) * 16
    ]
    assert len(asked) <= 3 * 16


def test_equal_layers_are_asked_for_once_in_a_stage() -> None:
    asked: list[tuple[int, int]] = []
    rng = random.Random(1)
    times = {(stage, number): number + rng.random() for stage in range(4) for number in range(1, 14)}

    def costs(stage: int, first: int, end: int) -> StageCost:
        asked.append((stage, end - first))
        return times[stage, end - first], 0.0, 0.0

    min_ms = np.broadcast_to(windows(np.arange(14.0)), (4, 14, 14))
    contents = np.broadcast_to(np.arange(14), (14, 14))
    *_, division = shortest_iteration(costs, 3, (min_ms, np.zeros(min_ms.shape)), contents)
    assert len(asked) == len(set(asked))
    assert time_of(costs, division, 3) == min(time_of(costs, other, 3) for other in every_division(13, 4))


def test_the_paper_moves_layers_to_faster_divisions() -> None:
    """Two stages, 1F1B: from (2, 4), balanced in memory, one layer is moved, and then none helps."""
    start = memory_balanced([0.0] * 6, [1.0] * 6, [2, 1])
    division = bi_objective_partition(lambda i, a, b: (b - a, 0.0, (2.0, 1.0)[i] * (b - a)), start, (3, 3), 4)
    assert (start, division) == ((2, 4), (3, 3))


def test_nothing_fits() -> None:
    min_ms = np.broadcast_to(windows(np.arange(5.0)), (2, 5, 5))
    assert list(shortest_iteration(lambda *_: None, 2, (min_ms, min_ms), all_different(4))) == []
    assert bi_objective_partition(lambda *_: None, (2, 2), (2, 2), 2) is None
