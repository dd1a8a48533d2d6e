"""Random problems of stages, and all their choices."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from placements.planners.stage_solver import StageProblem, StageSolution, StrategyCosts, peak_mib, weigh


def made_costs(*columns: Sequence[float], num_micro_batches: int = 1) -> StrategyCosts:
    """Columns of `StrategyCosts` from the time to transient memory, recomputation, and the layout."""
    *numbers, recomputed, layout = map(np.array, columns)
    time_ms, sync_ms, *memory = (column.astype(float) for column in numbers)
    cost_ms = time_ms + sync_ms / num_micro_batches
    return StrategyCosts(*[cost_ms, time_ms, sync_ms, *memory, 2 * layout + recomputed])


def some_options(rng: random.Random, count: int, num_layouts: int, most: int = 12) -> StrategyCosts:
    """Whole numbers, so that sums in any order are equal."""
    transient = 2 * rng.choice([0, 3, most])
    ranges = (1, most), (0, 4), (0, most), (0, most), (0, transient), (0, 1), (0, num_layouts - 1)
    columns = ([rng.randint(*limits) for _ in range(count)] for limits in ranges)
    return made_costs(*columns, num_micro_batches=rng.choice([1, 2, 4]))


def some_stage(rng: random.Random, sizes: tuple[int, ...], count: int, num_layouts: int) -> StageProblem:
    """Memory is anywhere from too little to more than enough."""
    costly = rng.choice([0, 2, 10])
    transitions = np.array([[rng.randint(0, costly) for _ in range(num_layouts)] for _ in range(num_layouts)])
    np.fill_diagonal(transitions, 0)
    runs = [(some_options(rng, rng.randint(1, count), num_layouts),) * size for size in sizes]
    layers = tuple(itertools.chain(*runs))
    stage = StageProblem(layers, 1.0 * transitions, rng.randint(1, 4), 0.0)
    peaks = [peak_mib(stage, [rng.randrange(len(layer.piece)) for layer in layers]) for _ in range(20)]
    return replace(stage, capacity_mib=rng.choice(peaks) - rng.choice([0, 0, 5]))


def every_choice(stage: StageProblem) -> Iterator[StageSolution]:
    for choice in itertools.product(*(range(len(layer.piece)) for layer in stage.layers)):
        yield weigh(stage, choice)


def every_division(num_layers: int, num_stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the layers of each stage in every division."""
    for cuts in itertools.combinations(range(1, num_layers), num_stages - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *cuts, num_layers)))
