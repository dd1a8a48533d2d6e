"""Random problems of stages, and all their choices."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import fields, replace

from placements.planners.stage_search.stage_problem import (
    LayerRun,
    StageProblem,
    StageSolution,
    StrategyCosts,
    peak_mib,
    weigh,
)


def some_options(rng: random.Random, count: int, num_layouts: int, most: int = 12) -> StrategyCosts:
    """Whole numbers, so that sums in any order are equal."""
    transient = rng.choice([0, 3, most])
    return StrategyCosts(
        time_ms=[rng.randint(1, most) for _ in range(count)],
        sync_ms=[rng.randint(0, 4) for _ in range(count)],
        static_mib=[rng.randint(0, most) for _ in range(count)],
        kept_mib=[rng.randint(0, most) for _ in range(count)],
        forward_mib=[rng.randint(0, transient) for _ in range(count)],
        backward_mib=[rng.randint(0, 2 * transient) for _ in range(count)],
        recomputed=[rng.random() < 0.5 for _ in range(count)],
        layout=[rng.randrange(num_layouts) for _ in range(count)],
    )


def some_stage(rng: random.Random, sizes: tuple[int, ...], count: int, num_layouts: int) -> StageProblem:
    """Memory is anywhere from too little to more than enough."""
    costly = rng.choice([0, 2, 10])
    transitions = {
        pair: rng.randint(0, costly) if pair[0] != pair[1] or rng.random() < 0.1 else 0
        for pair in itertools.product(range(num_layouts), repeat=2)
    }
    runs = tuple(LayerRun(size, some_options(rng, rng.randint(1, count), num_layouts)) for size in sizes)
    stage = StageProblem(runs, transitions, rng.randint(1, 4), 0.0, rng.choice([1, 2, 4]))
    peaks = [peak_mib(stage, [rng.randrange(len(each)) for each in stage.layer_options]) for _ in range(20)]
    return replace(stage, capacity_mib=rng.choice(peaks) - rng.choice([0, 0, 5]))


def every_choice(stage: StageProblem) -> Iterator[StageSolution]:
    for choice in itertools.product(*(range(len(each)) for each in stage.layer_options)):
        yield weigh(stage, choice)


def only_options(options: StrategyCosts, which: list[int]) -> StrategyCosts:
    return StrategyCosts(**{each.name: getattr(options, each.name)[which] for each in fields(options)})


def every_division(num_layers: int, num_stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the layers of each stage in every division."""
    for cuts in itertools.combinations(range(1, num_layers), num_stages - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *cuts, num_layers)))
