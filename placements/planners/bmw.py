"""Galvatron-BMW's own algorithms, to compare with: strategies of a stage, and layers divided into stages.

Inside a stage a table over layers, memory on a grid, and options (Alg. 3); between stages from balanced
memory toward balanced times (Alg. 2). The exact searches find results at least as good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from placements.planners.division import StageCost, StageCosts, divided, iteration_ms, spans, windows
from placements.planners.stage_solver import Check, Ints, StageProblem, StageSolution, weigh


def memory_balanced(
    static_mib: Sequence[float], kept_mib: Sequence[float], in_flight: Sequence[int]
) -> tuple[int, ...]:
    """Return the division whose stage with the most memory has the least (Galvatron-BMW, Sec. IV-B).

    Layers hold memory all the time, and more for each micro-batch that a stage has in flight. Where several
    divisions are equally good, it is one of the least sum of squares, so that all other stages are even too.
    """
    static = np.append(0.0, np.cumsum(static_mib))
    kept = np.append(0.0, np.cumsum(kept_mib))
    stages = [windows(static + count * kept) for count in in_flight]
    _, max_mib = divided(stages, np.maximum)
    return divided([np.where(stage <= max_mib, stage**2, math.inf) for stage in stages], np.add)[0]


def bi_objective_partition(
    costs: StageCosts, memory_start: Sequence[int], time_start: Sequence[int], num_micro_batches: int
) -> tuple[int, ...] | None:
    """Return the best division on the way from balanced memory to balanced times (Galvatron-BMW, Alg. 2).

    The slowest stage gives a layer to one of its neighbors as long as no stage then takes longer than the
    slowest did (1), all fit (2), and none holds more than a stage of the division of balanced times (3). That
    last limit is left out where that division does not fit. There is none where the first does not fit.
    """

    def fitting(division: Sequence[int]) -> list[StageCost]:
        """Return the costs of all stages; [] if a stage does not fit."""
        stage_costs = [cost for stage in spans(division) if (cost := costs(*stage)) is not None]
        return stage_costs if len(stage_costs) == len(division) else []

    max_mib = max((mib for *_, mib in fitting(time_start)), default=math.inf)
    best, best_ms, queue = None, math.inf, [tuple(memory_start)]
    for division in queue:
        if not (stages := fitting(division)):
            continue
        times_ms, once_ms, _ = zip(*stages, strict=True)
        if (time_ms := iteration_ms(times_ms, once_ms, num_micro_batches)) < best_ms:
            best, best_ms = division, time_ms
        whole_ms = [time + once for time, once, _ in stages]
        slowest = whole_ms.index(max(whole_ms))
        for neighbor in (slowest - 1, slowest + 1):
            if 0 <= neighbor < len(division) and division[slowest] > 1:
                changed = {slowest: -1, neighbor: 1}
                moved = tuple(number + changed.get(i, 0) for i, number in enumerate(division))
                after = fitting(moved) if moved not in queue else []
                limits = (time + once <= max(whole_ms) and mib <= max_mib for time, once, mib in after)
                queue += [moved] if after and all(limits) else []
    return best


def solve_as_paper(problem: StageProblem, check: Check = lambda: None) -> StageSolution | None:
    """Return the choice of Galvatron-BMW's dynamic programme (Eq. 4, App. A3, Alg. 3); None for none.

    The table knows the memory of the forwards alone: static memory and memory kept by all micro-batches,
    rounded up to MiB for each layer. Alg. 3 then gives the forwards ever more of it, from what leaves room
    for the greatest transient of any option, until a choice's peak no longer fits. Where not even the least
    fits by the table, the paper's loop still tries each greater one, and so do we.
    """
    most = math.floor(problem.capacity_mib)
    if most < 0:
        return None
    weights = [options.weight_mib(problem.in_flight) for options in problem.layers]
    units = [np.ceil(np.round(weight, 9)).astype(np.int64) for weight in weights]
    # Least costs by memory and option of the layer, at first of no layer; and the option of the layer before.
    transition, layouts_before = np.pad(problem.transition_ms, (0, 1)), np.full(1, -1)
    costs, steps = np.zeros((most + 1, 1)), list[Ints]()
    for options, layer_units in zip(problem.layers, units, strict=True):
        check()
        layouts = options.piece // 2
        through = np.empty((most + 1, len(layouts)))
        steps.append(np.empty(through.shape, np.int64))
        for layout in np.unique(layouts).tolist():
            whole = costs + transition[layouts_before, layout]
            steps[-1][:, layouts == layout] = whole.argmin(axis=1)[:, None]
            through[:, layouts == layout] = whole.min(axis=1)[:, None]
        costs, layouts_before = np.full(through.shape, np.inf), layouts
        for option, (number, cost_ms) in enumerate(zip(layer_units, options.cost_ms, strict=True)):
            costs[number:, option] = through[: max(most + 1 - number, 0), option] + cost_ms
    transient = max(float(options.transient_mib.max()) for options in problem.layers)
    best: StageSolution | None = None
    for room in range(max(math.floor(problem.capacity_mib - transient), 0), most + 1):
        if math.isinf(costs[room].min()):
            continue
        choice, left = [int(costs[room].argmin())], room
        for layer_units, came_from in zip(reversed(units), reversed(steps), strict=True):
            left -= int(layer_units[choice[-1]])
            choice.append(int(came_from[left, choice[-1]]))
        solution = weigh(problem, choice[-2::-1])
        if solution.peak_mib > problem.room_mib:
            break
        best = solution
    return best
