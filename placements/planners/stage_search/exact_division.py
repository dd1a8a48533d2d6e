"""The division of layers into stages with the shortest iteration, with few stages solved.

The slowest stage counts once for every micro-batch, so divisions are compared among those whose stages all
take at most a limit, for ever lower limits. A stage that was not solved yet stands in with a bound; only the
stages of the best division at a time are solved. The module does not know where costs come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from placements.planners.stage_search.division import (
    Division,
    StageCosts,
    check_counts,
    iteration_ms,
    min_divided,
    spans,
)
from placements.planners.stage_search.stage_problem import ROUNDING, Floats, Ints

Bounds = tuple[Floats, Floats]
"""Least times of stages: their time and their exchange in ms, by stage, the layer after its last and its
number of layers; shape ``(num_stages, num_layers + 1, max_layers + 1)`` each. No stage has more layers.
Infinite where a stage cannot be."""


def exact_partition(
    costs: StageCosts,
    num_micro_batches: int,
    bounds_ms: Bounds,
    contents: Ints,
    cutoff_ms: float = math.inf,
    on_better: Callable[[tuple[int, ...]], None] = lambda _: None,
) -> Division | None:
    """Return the division of the shortest iteration; None where no division fits.

    Args:
        costs: Costs of a stage, by its first layer and the layer after its last; asked once each at most.
        num_micro_batches: Micro-batches of an iteration.
        bounds_ms: See `Bounds`.
        contents: Equal numbers for layers that cost the same wherever a stage has them; of the shape of a
            stage's bounds.
        cutoff_ms: Only what is shorter is looked for; None is returned where nothing is.
        on_better: Called with each division that is shorter than all before, so that the best is known when
            costs raise something.

    Raises:
        StageError: There are fewer layers than stages.
    """
    search = _Search(costs, bounds_ms, contents)
    others = num_micro_batches - 1

    def limit(time_ms: float) -> float:
        """Return how long the stages of a shorter iteration may take."""
        return (time_ms - search.min_sum_ms()) / others * (1 + ROUNDING) if others else math.inf

    best: Division | None = None
    limit_ms = limit(cutoff_ms)
    found = search.best(np.maximum, limit_ms)
    min_others_ms = math.inf if found is None else others * search.slowest_ms(found)
    while found is not None:
        time_ms = iteration_ms(*search.costs_ms(found), num_micro_batches)
        if time_ms < cutoff_ms:
            best, cutoff_ms = Division(found, time_ms), time_ms
            on_better(found)
        limit_ms = min(limit_ms, limit(cutoff_ms))
        found = search.best(np.add, limit_ms, cutoff_ms - min_others_ms)
        if found is not None:
            limit_ms = math.nextafter(search.slowest_ms(found), -math.inf)
    return best


class _Search:
    """Knowledge of the stages: costs where they were solved, bounds where not; shaped as `Bounds`."""

    def __init__(self, costs: StageCosts, bounds_ms: Bounds, contents: Ints) -> None:
        """Begin with the bounds."""
        num_stages, num_ends, _ = bounds_ms[0].shape
        check_counts(num_ends - 1, num_stages)
        self._costs, self._contents = costs, contents
        self._time_ms, self._sync_ms = (np.array(each) for each in bounds_ms)
        self._is_known = np.zeros(self._time_ms.shape, dtype=np.bool_)

    def costs_ms(self, division: tuple[int, ...]) -> tuple[list[float], list[float]]:
        """Return the time of each stage of a division, and its exchange."""
        cells = tuple(zip(*((stage, end, end - first) for stage, first, end in spans(division)), strict=True))
        return self._time_ms[cells].tolist(), self._sync_ms[cells].tolist()

    def slowest_ms(self, division: tuple[int, ...]) -> float:
        """Return the time of its slowest stage."""
        return max(self.costs_ms(division)[0])

    def min_sum_ms(self) -> float:
        """Return a bound on the sum of any division, with nothing more solved."""
        return min_divided(list(self._time_ms + self._sync_ms), np.add)[1]

    def best(self, joined: np.ufunc, limit_ms: float, cutoff_ms: float = math.inf) -> tuple[int, ...] | None:
        """Return the best division whose stages take at most a limit each; None where none is below a cutoff.

        Args:
            joined: `np.maximum` for the division whose slowest stage is the fastest, `np.add` for the least
                sum of times and exchanges.
            limit_ms: What a stage may take.
            cutoff_ms: What the slowest stage or the sum must be below.
        """
        while True:
            whole_ms = self._time_ms + self._sync_ms if joined is np.add else self._time_ms
            allowed = np.where(self._time_ms <= limit_ms, whole_ms, math.inf)
            found, found_ms = min_divided(list(allowed), joined)
            if not found_ms < cutoff_ms:
                return None
            if not self._solve_all(found):
                return found

    def _solve_all(self, division: tuple[int, ...]) -> bool:
        """Solve the stages of a division, and with them equal ones; return whether one was not known."""
        is_new = False
        for stage, first, end in spans(division):
            number = end - first
            if self._is_known[stage, end, number]:
                continue
            is_new = True
            cost = self._costs(stage, first, end)
            alike = self._contents[:, number] == self._contents[end, number]
            alike &= np.isfinite(self._time_ms[stage, :, number])
            self._time_ms[stage, alike, number] = math.inf if cost is None else cost.time_ms
            self._sync_ms[stage, alike, number] = math.inf if cost is None else cost.sync_ms
            self._is_known[stage, alike, number] = True
        return is_new
