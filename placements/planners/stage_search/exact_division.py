"""The division of layers into stages with the shortest iteration, with few stages solved.

The slowest stage counts once for every micro-batch, so divisions are compared among those whose stages all
take at most a limit, for ever lower limits. A stage that was not solved yet stands in with a bound; only the
stages of the best division at a time are solved. The module does not know where costs come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placements.planners.stage_search.division import (
    Division,
    StageCost,
    StageCosts,
    StageSolutions,
    check_counts,
    iteration_ms,
    min_divided,
    spans,
)
from placements.planners.stage_search.stage_problem import ROUNDING
from placements.planners.stage_search.tables import Floats, Ints

Bounds = tuple[Floats, Floats]
"""Least times of stages: their time and their exchange in ms, by stage, the layer after its last and its
number of layers; shape ``(num_stages, num_layers + 1, max_layers + 1)`` each. No stage has more layers."""


def exact_partition(
    costs: StageCosts,
    num_layers: int,
    num_stages: int,
    num_micro_batches: int,
    sync_at_once: bool = False,
    bounds_ms: Bounds | None = None,
    cutoff_ms: float = math.inf,
    contents: Ints | None = None,
    on_better: Callable[[tuple[int, ...]], None] = lambda _: None,
) -> Division | None:
    """Return the division of the shortest iteration; None where no division fits.

    Args:
        costs: Costs of a stage, by its first layer and the layer after its last; asked once each at most.
        num_layers: In order, to be divided.
        num_stages: Number of stages, of at least one layer each; they may differ.
        num_micro_batches: Micro-batches of an iteration.
        sync_at_once: See `iteration_ms`.
        bounds_ms: See `Bounds`. Without them every stage there can be is solved.
        cutoff_ms: Only what is shorter is looked for; None is returned where nothing is.
        contents: Equal numbers for layers that cost the same wherever a stage has them; of the shape of a
            stage's bounds. Without them no layers do.
        on_better: Called with each division that is shorter than all before, so that the best is known when
            costs raise something.

    Raises:
        StageError: There are fewer layers than stages.
    """
    check_counts(num_layers, num_stages)
    search = _Search(costs, num_layers, num_stages, bounds_ms, contents)

    told_ms = cutoff_ms

    def tell(division: tuple[int, ...]) -> None:
        nonlocal told_ms
        whole_ms = iteration_ms(search.stages(division), num_micro_batches, sync_at_once)
        if whole_ms < told_ms:
            told_ms = whole_ms
            on_better(division)

    best: tuple[int, ...] | None = None
    best_ms, sync_limit = cutoff_ms, math.inf
    while True:
        left_ms = best_ms - (search.min_sync_ms() if sync_at_once else 0.0)
        found = _least(search, num_micro_batches - 1, sync_limit, left_ms, not sync_at_once, tell)
        if found is None:
            break
        whole_ms = iteration_ms(search.stages(found), num_micro_batches, sync_at_once)
        if whole_ms < best_ms:
            best, best_ms = found, whole_ms
        if not sync_at_once:
            break
        sync_limit = math.nextafter(max(stage.sync_ms for stage in search.stages(found)), -math.inf)
    if best is None:
        return None
    return Division(best, tuple(search.stages(best)), best_ms, len(search.solved))


def _least(
    search: _Search,
    num_others: int,
    sync_limit: float,
    cutoff_ms: float,
    with_sync: bool,
    tell: Callable[[tuple[int, ...]], None],
) -> tuple[int, ...] | None:
    """Return the division of the least sum of all stages and, for all other micro-batches, the slowest one.

    Args:
        search: What is known of the stages.
        num_others: Micro-batches but one.
        sync_limit: What an exchange may take.
        cutoff_ms: Only what is less is looked for.
        with_sync: Exchanges are in the sum.
        tell: Called with divisions that may be shorter than all before.
    """
    min_sum_ms = search.min_sum_ms(sync_limit, with_sync)
    best = search.evenest(sync_limit, _limit(cutoff_ms - min_sum_ms, num_others))
    if best is None:
        return None
    tell(best)
    slowest_ms = search.slowest_ms(best)
    min_ms = num_others * slowest_ms
    best_ms = min_ms + search.sum_ms(best, with_sync)
    enough_ms = min(best_ms, cutoff_ms)
    limit = _limit(enough_ms - search.min_sum_ms(sync_limit, with_sync), num_others)
    while limit >= slowest_ms:
        found = search.shortest(limit, sync_limit, with_sync, enough_ms - min_ms)
        if found is None:
            break
        whole_ms = num_others * search.slowest_ms(found) + search.sum_ms(found, with_sync)
        if whole_ms < best_ms:
            best, best_ms = found, whole_ms
            tell(best)
            enough_ms = min(best_ms, cutoff_ms)
        limit = math.nextafter(search.slowest_ms(found), -math.inf)
    return best if best_ms < cutoff_ms else None


def _limit(left_ms: float, num_others: int) -> float:
    """Return how long the slowest stage may take where all other micro-batches may take so long."""
    return left_ms / num_others * (1 + ROUNDING) if num_others else math.inf


class _Search:
    """Knowledge of the stages: costs where they were solved, bounds where not; shaped as `Bounds`.

    Infinite where a stage cannot be.
    """

    def __init__(
        self,
        costs: StageCosts,
        num_layers: int,
        num_stages: int,
        bounds_ms: Bounds | None,
        contents: Ints | None,
    ) -> None:
        """Begin with the bounds."""
        self.solved = StageSolutions(costs)
        self._contents = contents
        max_layers = num_layers if bounds_ms is None else bounds_ms[0].shape[2] - 1
        can_be = _can_be(num_layers, num_stages, max_layers)
        self._is_known = np.zeros(can_be.shape, dtype=np.bool_)
        self._solved_as: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        if bounds_ms is None:
            self._time, self._sync = (np.where(can_be, 0.0, math.inf) for _ in range(2))
            for stage, end, number in np.argwhere(can_be).tolist():
                self._solve((stage, end - number, end))
        else:
            self._time, self._sync = (np.where(can_be, least, math.inf) for least in bounds_ms)

    def stages(self, division: tuple[int, ...]) -> list[StageCost]:
        """Return what the stages of a division cost, which were all solved."""
        found = (self.solved.cost(self._solved_as[self._content(*each)]) for each in spans(division))
        return [each for each in found if each is not None]

    def _content(self, stage: int, first: int, end: int) -> tuple[int, int, int]:
        """Return what stages that cost the same have in common."""
        if self._contents is None:
            return stage, first, end
        return stage, end - first, int(self._contents[end, end - first])

    def slowest_ms(self, division: tuple[int, ...]) -> float:
        """Return the time of its slowest stage."""
        return max(stage.time_ms for stage in self.stages(division))

    def sum_ms(self, division: tuple[int, ...], with_sync: bool) -> float:
        """Return the time of one micro-batch."""
        return math.fsum(stage.time_ms + with_sync * stage.sync_ms for stage in self.stages(division))

    def min_sum_ms(self, sync_limit: float, with_sync: bool) -> float:
        """Return a bound on the sum of any division, with nothing more solved."""
        return min_divided(self._allowed(math.inf, sync_limit, with_sync), np.add)[1]

    def min_sync_ms(self) -> float:
        """Return a bound on the longest exchange of any division, with nothing more solved."""
        return min_divided(list(self._sync), np.maximum)[1]

    def evenest(self, sync_limit: float, limit_ms: float) -> tuple[int, ...] | None:
        """Return the division whose slowest stage is the fastest; None where none fits, or takes no more."""
        while True:
            allowed = self._allowed(limit_ms, sync_limit, with_sync=False)
            found, min_ms = min_divided(allowed, np.maximum)
            if math.isinf(min_ms):
                return None
            if not self._solve_all(found):
                return found

    def shortest(
        self, limit_ms: float, sync_limit: float, with_sync: bool, cutoff_ms: float
    ) -> tuple[int, ...] | None:
        """Return the division of the least sum, below a cutoff, whose stages take at most a limit each."""
        while True:
            found, sum_ms = min_divided(self._allowed(limit_ms, sync_limit, with_sync), np.add)
            if not sum_ms < cutoff_ms:
                return None
            if not self._solve_all(found):
                return found

    def _allowed(self, limit_ms: float, sync_limit: float, with_sync: bool) -> list[Floats]:
        whole = self._time + self._sync if with_sync else self._time
        return list(np.where((self._time <= limit_ms) & (self._sync <= sync_limit), whole, math.inf))

    def _solve_all(self, division: tuple[int, ...]) -> bool:
        """Solve the stages of a division; return whether one was not known before."""
        new = [
            (stage, first, end)
            for stage, first, end in spans(division)
            if not self._is_known[stage, end, end - first]
        ]
        for each in new:
            self._solve(each)
        return bool(new)

    def _solve(self, which: tuple[int, int, int]) -> None:
        """Solve a stage; what it costs, so do equal layers elsewhere."""
        cost = self.solved.cost(which)
        self._solved_as[self._content(*which)] = which
        stage, first, end = which
        number = end - first
        alike = np.array([end])
        if self._contents is not None:
            alike = np.flatnonzero(self._contents[:, number] == self._contents[end, number])
        for known, value in (
            (self._time, math.inf if cost is None else cost.time_ms),
            (self._sync, math.inf if cost is None else cost.sync_ms),
        ):
            column = known[stage, :, number]
            column[alike] = np.where(np.isinf(column[alike]), math.inf, value)
        self._is_known[stage, alike, number] = True


def _can_be(num_layers: int, num_stages: int, max_layers: int) -> NDArray[np.bool_]:
    """Return whether layers can be a stage, with a layer left for each other one; as `Bounds`."""
    stage, end, number = np.ogrid[:num_stages, : num_layers + 1, : max_layers + 1]
    first, after = end - number, num_stages - 1 - stage
    begins = (first >= stage) & ((first == 0) == (stage == 0))
    ends = (end <= num_layers - after) & ((end == num_layers) == (after == 0))
    found: NDArray[np.bool_] = begins & ends & (number > 0)
    return found
