"""Galvatron-BMW's own algorithms, to compare with: strategies of a stage, and layers divided into stages.

Inside a stage a table over layers, memory on a grid, and options (Alg. 3); between stages from balanced
memory toward balanced times (Alg. 2). The exact searches find results at least as good.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from placements.planners.division import Floats, divided, iteration_ms, spans, windows
from placements.planners.stage_search.stage_problem import (
    Ints,
    StageProblem,
    StageSolution,
    StrategyCosts,
    weigh,
)

StageFigures = tuple[float, float, float]
"""Of a stage: time of a micro-batch, what comes once an iteration, both in ms, and the most MiB."""


def memory_balanced(
    static_mib: Sequence[float], kept_mib: Sequence[float], in_flight: Sequence[int]
) -> tuple[int, ...]:
    """Return the division whose stage with the most memory has the least (Galvatron-BMW, Sec. IV-B).

    Where several divisions are equally good, it is one with the least sum of squares, so that the other
    stages are even too.

    Args:
        static_mib: Static memory of each layer, in order; no fewer layers than stages.
        kept_mib: Memory that one micro-batch keeps of each layer.
        in_flight: Micro-batches whose kept memory each stage holds.
    """
    static = np.append(0.0, np.cumsum(static_mib))
    kept = np.append(0.0, np.cumsum(kept_mib))
    stages = [windows(static + count * kept) for count in in_flight]
    _, max_mib = divided(stages, np.maximum)
    return divided([np.where(stage <= max_mib, stage**2, math.inf) for stage in stages], np.add)[0]


def bi_objective_partition(
    costs: Callable[[int, int, int], StageFigures | None],
    memory_start: Sequence[int],
    time_start: Sequence[int],
    num_micro_batches: int,
) -> tuple[int, ...] | None:
    """Return the best division on the way from balanced memory to balanced times (Galvatron-BMW, Alg. 2).

    The slowest stage gives a layer to one of its neighbors as long as no stage then takes longer than the
    slowest did (1), all fit (2), and none holds more than a stage of the division of balanced times (3). That
    last limit is left out where that division does not fit.

    Args:
        costs: What a stage costs, by its index, its first layer and the one after its last; None where it
            does not fit.
        memory_start: Layers of each stage with balanced memory; see `memory_balanced`.
        time_start: With balanced times, of as many layers and stages.
        num_micro_batches: Micro-batches of an iteration.

    Returns:
        The division of the shortest iteration among those tried; None where the first does not fit.
    """

    def fitting(division: Sequence[int]) -> list[StageFigures] | None:
        stages = [costs(*stage) for stage in spans(division)]
        found = [stage for stage in stages if stage is not None]
        return found if len(found) == len(stages) else None

    max_mib = max((mib for *_, mib in fitting(time_start) or ()), default=math.inf)
    best, best_ms = None, math.inf
    queue, seen = deque([tuple(memory_start)]), {tuple(memory_start)}
    while queue:
        division = queue.popleft()
        if (stages := fitting(division)) is None:
            continue
        times_ms, once_ms, _ = zip(*stages, strict=True)
        if (time_ms := iteration_ms(times_ms, once_ms, num_micro_batches)) < best_ms:
            best, best_ms = division, time_ms
        slowest_ms, slowest = max((stage[0] + stage[1], -i) for i, stage in enumerate(stages))
        for moved in _moves(division, -slowest):
            after = fitting(moved) if moved not in seen else None
            seen.add(moved)
            if after and all(time + once <= slowest_ms and mib <= max_mib for time, once, mib in after):
                queue.append(moved)
    return best


def _moves(division: tuple[int, ...], stage: int) -> Iterator[tuple[int, ...]]:
    """Yield the divisions in which a stage gives a layer to one of its neighbors."""
    for neighbor in (stage - 1, stage + 1):
        if 0 <= neighbor < len(division) and division[stage] > 1:
            moved = list(division)
            moved[stage] -= 1
            moved[neighbor] += 1
            yield tuple(moved)


def solve_as_paper(problem: StageProblem, check: Callable[[], None] = lambda: None) -> StageSolution | None:
    """Return the choice of Galvatron-BMW's dynamic programme (Eq. 4, App. A3, Alg. 3); None for none.

    The table knows the memory of the forwards alone: static memory and what all micro-batches keep, rounded
    up to MiB for each layer. Alg. 3 then gives the forwards ever more of it, from what leaves room for the
    greatest transient of any option, until a choice's peak no longer fits. Where not even the least fits by
    the table, the paper's loop still tries each greater one, and so does this.

    Args:
        problem: The stage.
        check: Called at each layer; ends the search by what it raises.
    """
    most = math.floor(problem.capacity_mib)
    transient = max(float(each.transient_mib.max()) for each in problem.layer_options)
    least = max(math.floor(problem.capacity_mib - transient), 0)
    if most < 0:
        return None
    costs, steps = _table(problem, most, check)
    best: StageSolution | None = None
    for room in range(least, most + 1):
        if math.isinf(costs[room].min()):
            continue
        found = weigh(problem, _traced(problem, steps, room, int(costs[room].argmin())))
        if not problem.fits(found.peak_mib):
            break
        best = found
    return best


def _units(problem: StageProblem, options: StrategyCosts) -> Ints:
    weight = options.static_mib + problem.in_flight * options.kept_mib
    return np.ceil(np.round(weight, 9)).astype(np.int64)


def _table(problem: StageProblem, most: int, check: Callable[[], None]) -> tuple[Floats, list[Ints]]:
    """Return the least costs of all layers by memory and last option, and each layer's best option before."""
    costs = np.zeros((most + 1, 1))
    steps: list[Ints] = []
    before: StrategyCosts | None = None
    for options in problem.layer_options:
        check()
        through, came_from = _changed(problem, costs, before, options)
        own = problem.time_weight * options.time_ms + problem.sync_weight * options.sync_ms
        costs = np.full((most + 1, len(options)), np.inf)
        for option, units in enumerate(_units(problem, options).tolist()):
            if units <= most:
                costs[units:, option] = through[: most + 1 - units, option] + own[option]
        steps.append(came_from)
        before = options
    return costs, steps


def _changed(
    problem: StageProblem, costs: Floats, before: StrategyCosts | None, options: StrategyCosts
) -> tuple[Floats, Ints]:
    """Return the least cost until a layer, by memory and its option, with the transition, and from where."""
    if before is None:
        return np.repeat(costs, len(options), axis=1), np.zeros((len(costs), len(options)), dtype=np.int64)
    through, came_from = np.empty((len(costs), len(options))), np.empty((len(costs), len(options)), np.int64)
    for layout in np.unique(options.layout).tolist():
        paid = [problem.time_weight * problem.transition(each, layout) for each in before.layout.tolist()]
        whole = costs + np.array(paid)
        same = options.layout == layout
        came_from[:, same] = whole.argmin(axis=1)[:, None]
        through[:, same] = whole.min(axis=1)[:, None]
    return through, came_from


def _traced(problem: StageProblem, steps: list[Ints], room: int, option: int) -> tuple[int, ...]:
    choice = [option]
    layers = list(zip(problem.layer_options, steps, strict=True))
    for (options, came_from), _ in itertools.pairwise(reversed(layers)):
        room -= int(_units(problem, options)[option])
        option = int(came_from[room, option])
        choice.append(option)
    return tuple(reversed(choice))
