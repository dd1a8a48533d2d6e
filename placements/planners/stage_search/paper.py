"""Galvatron-BMW's own search inside a stage: a table over layers, memory on a grid, and options.

It is here to be compared with: `exact` finds choices at least as good. The module knows no bounds.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from placements.planners.stage_search.deadline import Check, no_limit
from placements.planners.stage_search.stage_problem import (
    Floats,
    Ints,
    StageProblem,
    StageSolution,
    StrategyCosts,
    weigh,
)


def solve_as_paper(problem: StageProblem, check: Check = no_limit) -> StageSolution | None:
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


def _table(problem: StageProblem, most: int, check: Check) -> tuple[Floats, list[Ints]]:
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
