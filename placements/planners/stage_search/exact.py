"""The cheapest choice of options for a stage's layers that fits its memory, and the least memory of any.

The module knows how to prove a choice best. It does not know pipelines.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from placements.planners.stage_search.deadline import Check, no_limit
from placements.planners.stage_search.labels import StageChoice, bounds, search
from placements.planners.stage_search.stage_problem import ROUNDING, StageProblem, StageSolution, weigh
from placements.planners.stage_search.tables import (
    Floats,
    StageOptions,
    best_price,
    first_prices,
    min_transients,
    plain_transients,
    prepare,
    with_transients_up_to,
)

_WIDTHS = 48, 400, 3_000
"""Labels of a layer that passes of the search keep, one after the other, until none is dropped; at last
as many as are allowed."""

_MAX_LABELS = 5_000

_ALIKE = 3e-4
"""Share of the cost that transient memory may be worth which a search does not tell apart."""

_AROUND = np.geomspace(1 / 8, 8, 13)
"""Multiples of a price at which to look for the price of fewer choices."""


class _Part(NamedTuple):
    """The choices whose most transient memory above all kept memory is from one of its values to another.

    Attributes:
        min_cost: No choice costs less.
        first: Of the ascending values.
        last: Likewise.
        stage: Only with options up to that.
        prices: See `placements.planners.stage_search.tables.best_price`.
    """

    min_cost: float
    first: int
    last: int
    stage: StageOptions
    prices: Floats


def solve(
    problem: StageProblem, check: Check = no_limit, max_labels: int = _MAX_LABELS
) -> StageSolution | None:
    """Return the cheapest choice that fits; None where nothing does.

    Transient memory is above what all layers keep, whichever layer needs it, so that a bound by prices of
    memory is far off until its greatest value is known. So the values are cut in parts, and the part with
    the least bound is searched or cut again, until no part can have a cheaper choice.

    Args:
        problem: The stage.
        check: Called again and again; ends the search by what it raises.
        max_labels: Partial choices kept of each layer. Where more would be needed, which takes equal layers
            at their least memory or many different ones, the choice may not be the best, and the solution's
            `min_cost` says by how much at most. Fewer bound the time.
    """
    whole = prepare(problem)
    values = plain_transients(whole)
    parts = _bounded(whole, values, 0, len(values) - 1, first_prices(whole))
    best: StageChoice | None = None
    left = math.inf
    while parts:
        check()
        part = heapq.heappop(parts)
        if best is not None and part.min_cost >= _cutoff(best):
            break
        worth = part.prices[1] * (values[part.last] - values[part.first])
        if part.first == part.last or worth <= _ALIKE * part.min_cost:
            best, dropped = _searched(part, values[part.first], best, max_labels, check)
            left = min(left, dropped)
            continue
        middle = (part.first + part.last) // 2
        prices = part.prices[1] * _AROUND if part.prices[1] else first_prices(whole)
        for first, last in ((part.first, middle), (middle + 1, part.last)):
            for each in _bounded(whole, values, first, last, prices):
                heapq.heappush(parts, each)
    if best is not None:
        return weigh(problem, best.choice, min(best.cost, left))
    if math.isinf(left):
        return None
    lightest = weigh(problem, _lightest(problem), left)
    return lightest if problem.fits(lightest.peak_mib) else None


def _bounded(
    whole: StageOptions, values: Sequence[float], first: int, last: int, prices: Floats
) -> list[_Part]:
    """Return the part with its bound; nothing where none of its choices fits."""
    stage = with_transients_up_to(whole, values[last])
    if stage is None:
        return []
    room_mib = whole.problem.capacity_mib - max(values[first], min_transients(stage)[-1])
    lightest = sum(float(table.weight_mib.min()) for table in stage.layers)
    if not whole.problem.fits(whole.problem.capacity_mib - room_mib + lightest):
        return []
    around, min_cost = best_price(stage, prices, room_mib)
    return [_Part(min_cost, first, last, stage, around)]


def _searched(
    part: _Part, floor_mib: float, best: StageChoice | None, max_labels: int, check: Check
) -> tuple[StageChoice | None, float]:
    """Return the best choice known after a part was searched, and the least bound of what was dropped."""
    limits = bounds(
        part.stage,
        np.unique([0.0, *part.prices, *(part.prices[1] * np.array([0.2, 0.5, 2.0, 5.0]))]),
        floor_mib,
    )
    dropped = math.inf
    for width in (*(each for each in _WIDTHS if each < max_labels), max_labels):
        cutoff = math.inf if best is None else _cutoff(best)
        found, dropped = search(
            part.stage, part.stage.problem.capacity_mib, limits, cutoff, width, check=check
        )
        best = found or best
        if best is not None and dropped >= _cutoff(best):
            break
    return best, dropped


def _cutoff(best: StageChoice) -> float:
    return best.cost * (1 - 1e-2 * ROUNDING)


def min_memory(problem: StageProblem) -> float:
    """Return the least capacity in which the layers fit, whatever they cost, in MiB."""
    return weigh(problem, _lightest(problem)).peak_mib


def _lightest(problem: StageProblem) -> tuple[int, ...]:
    """Return the choice of the least peak."""
    stage = prepare(replace(problem, weights=(0.0, 0.0)))
    lightest = [int(table.index[table.weight_mib.argmin()]) for table in stage.layers]
    enough_mib = weigh(problem, lightest).peak_mib
    limits = bounds(stage, np.zeros(1))
    found, _ = search(stage, enough_mib, limits, math.inf, _MAX_LABELS, free=True)
    assert found is not None, "the lightest options fit"
    return found.choice
