"""The best layout for a schedule: neighbours of layouts, and bounds that hold for all of them, in turn.

A longest path of each layout that is looked at bounds all others (`LongestPath`). Neighbours that no path
leaves room for are not timed. The least bound over all layouts, by `min_bound` or for 1F1B by a table, says
when a layout is proved to be the best, and which layout to look at next. All work is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np

from placements.planners.partition import least_largest, min_largest
from schedsearch.layouts.layout_model import LayoutProblem, Sizes, min_bound
from schedsearch.layouts.order_graph import Ints, LongestPath
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import INTERRUPTS

_EVENTS_OF_WORK = 15_000_000
"""Events that are timed for a unit of work, about a second."""

_MOST_LISTED = 20_000
"""Layouts that are all timed where there are no more."""

_BATCH = 64
"""Neighbours that are timed at once."""

_SLOWER = 1.1
"""A stage, or a device, that takes so many times as long as others: the longest path goes through it."""

_MODEL_WORK = 2.0
"""Units of work for one question to CP-SAT."""


@dataclass(frozen=True)
class BestLayout:
    """The answer of a search.

    Attributes:
        sizes: Pieces of each stage; None where no layout fits, or none was found.
        ticks: Ticks of its iteration.
        bound: No layout is faster; infinite where none fits.
        work: Units of work that it took.
    """

    sizes: Sizes | None
    ticks: float
    bound: float
    work: float

    @property
    def is_proved(self) -> bool:
        """Whether it is the best there is, or there is none."""
        return self.bound >= self.ticks


def best_layout(
    problem: LayoutProblem, starts: tuple[Sizes, ...] = (), work_limit: float = 20.0
) -> BestLayout:
    """Return the best layout that is found, and what bounds all.

    Args:
        problem: The model and its schedule.
        starts: Layouts to begin with, such as the even one.
        work_limit: Units of work, of about a second each.
    """
    search = _Search(problem, work_limit)
    if problem.fits_nowhere:
        search.bound = math.inf
    elif search.num_layouts <= _MOST_LISTED:
        search.list_all()
    else:
        search.look_from(starts)
        with INTERRUPTS.answered():
            search.bound_and_look()
    return BestLayout(search.best, search.ticks, min(search.bound, search.ticks), search.work)


def min_capacity(problem: LayoutProblem) -> float:
    """Return with how many units of memory a layout for 1F1B fits at the least."""
    cum_a, cum_w = (np.cumsum([0, *row]) for row in (problem.activation, problem.weight))
    sums = (cum_w + row.max() * cum_a for row in problem.graph.held)
    return least_largest(each[None] - each[:, None] for each in sums)[1]


@dataclass
class _Search:
    """A search as it goes on: the best layout so far, paths, bound and work."""

    problem: LayoutProblem
    work_limit: float
    best: Sizes | None = None
    ticks: float = math.inf
    bound: float = 0.0
    work: float = 0.0
    paths: list[LongestPath] = field(default_factory=list)

    @property
    def num_layouts(self) -> int:
        """Ways to divide the pieces."""
        return math.comb(self.problem.num_pieces - 1, self.problem.graph.num_stages - 1)

    @property
    def is_over(self) -> bool:
        return self.work >= self.work_limit or self.bound >= self.ticks or INTERRUPTS.seen

    def list_all(self) -> None:
        """Time every layout."""
        last, number = self.problem.num_pieces, self.problem.graph.num_stages
        rows = [
            [end - first for first, end in pairwise((0, *ends, last))]
            for ends in combinations(range(1, last), number - 1)
        ]
        for first in range(0, len(rows), _BATCH):
            self._time(np.array(rows[first : first + _BATCH]))
        self.bound = self.ticks

    def look_from(self, starts: tuple[Sizes, ...]) -> None:
        """Go from each layout to better neighbours."""
        self.paths += self._usual_paths()
        first = (
            self._table_of_stages()
            if self.problem.graph.num_stages == self.problem.graph.num_devices
            else None
        )
        times = [f + b for f, b in zip(self.problem.forward, self.problem.backward, strict=True)]
        balanced = min_largest(times, self.problem.graph.num_stages)
        for sizes in dict.fromkeys((*([first] if first else []), *starts, balanced)):
            if self.best is None or not self.is_over:
                self._descend(sizes)

    def bound_and_look(self) -> None:
        """Ask for the least bound and look at the layout that keeps to it, until they meet."""
        seen: set[Sizes] = set()
        rng = np.random.default_rng(0)
        while not self.is_over:
            most = None if self.best is None else int(self.ticks)
            left = min(_MODEL_WORK, self.work_limit - self.work)
            found = min_bound(
                self.problem, self.paths, most, self.best, SolverBudget(left, 600, 0, self._spend)
            )
            self.bound = max(self.bound, min(found.ticks, self.ticks))
            if found.sizes is None and found.ticks == math.inf:
                self.bound = self.ticks  # infinite where nothing fits
                return
            sizes = found.sizes if found.sizes is not None else self.best
            if sizes is None:
                continue
            if sizes in seen:
                sizes = self._shaken(sizes, rng)
            seen.add(sizes)
            self._descend(sizes)

    def _spend(self, work: float) -> None:
        self.work += work

    def _shaken(self, sizes: Sizes, rng: np.random.Generator) -> Sizes:
        """Return a layout some moves away."""
        found = list(sizes)
        for _ in range(3):
            source, target = rng.integers(len(found), size=2)
            if found[source] > 1:
                found[source] -= 1
                found[target] += 1
        return tuple(found)

    def _time(self, rows: Ints) -> tuple[Ints, Ints]:
        """Time layouts that are allowed, and keep the best; return them, with their ticks."""
        rows = rows[self.problem.is_allowed(rows)]
        if not len(rows):
            return rows, np.zeros(0, np.int64)
        self.work += len(rows) * self.problem.graph.num_events / _EVENTS_OF_WORK
        ticks = self.problem.makespans(rows)
        if ticks.min() < self.ticks:
            self.ticks, self.best = int(ticks.min()), tuple(map(int, rows[ticks.argmin()]))
        return rows, ticks

    def _descend(self, sizes: Sizes) -> None:
        """Go to better neighbours as long as there are some; first to some that fit."""
        at = self._fitting(sizes)
        if at is None:
            return
        _, ticks = self._time(np.array([at]))
        if not len(ticks):
            return
        now = int(ticks[0])
        self._add_path(at)
        while not self.is_over:
            found = self._better(at, now)
            if found is None:
                return
            at, now = found
            self._add_path(at)

    def _better(self, sizes: Sizes, ticks: int) -> tuple[Sizes, int] | None:
        """Return a better neighbour of a layout; the first batch of the most promising that has one."""
        rows = _neighbours(sizes)
        rows = rows[self.problem.is_allowed(rows)]
        bounds = self._bounds_of(rows)
        order = np.argsort(bounds, kind="stable")
        order = order[bounds[order] < ticks]
        step = max(1, min(_BATCH, 2 * _EVENTS_OF_WORK // (10 * self.problem.graph.num_events)))
        for first in range(0, len(order), step):
            some, times = self._time(rows[order[first : first + step]])
            if len(times) and times.min() < ticks:
                return tuple(map(int, some[times.argmin()])), int(times.min())
            if self.is_over:
                return None
        return None

    def _fitting(self, sizes: Sizes) -> Sizes | None:
        """Return a layout that fits, from one that may not by moves that need less memory; None for none."""
        rows = np.array([sizes])
        if self.problem.capacity is None or self.problem.is_allowed(rows)[0]:
            return sizes
        excess = self._excess(rows)[0]
        while excess:
            rows = _neighbours(tuple(map(int, rows[0])))
            excesses = self._excess(rows)
            if excesses.min() >= excess:
                return None
            excess, rows = excesses.min(), rows[[excesses.argmin()]]
        return tuple(map(int, rows[0]))

    def _excess(self, rows: Ints) -> Ints:
        over = np.maximum(self.problem.peaks(rows) - (self.problem.capacity or 0), 0)
        return np.asarray(over.sum(1))

    def _add_path(self, sizes: Sizes) -> None:
        self.work += self.problem.graph.num_events / _EVENTS_OF_WORK
        self.paths.append(self.problem.path_of(sizes))

    def _bounds_of(self, rows: Ints) -> Ints:
        """Return what paths say of layouts."""
        if not len(rows):
            return np.zeros(0, np.int64)
        counts = np.array([path.counts for path in self.paths])
        late = np.array([path.num_transfers for path in self.paths]) * self.problem.transfer
        return np.asarray((counts @ self.problem.of_stages(rows)[0] + late[:, None]).max(0))

    def _usual_paths(self) -> Iterator[LongestPath]:
        """Yield longest paths where all stages are alike but one, or those of one device."""
        graph, p = self.problem.graph, self.problem.graph.num_devices
        total = sum(self.problem.forward), sum(self.problem.backward)
        even = np.repeat([max(each // graph.num_stages, 1) for each in total], graph.num_stages)
        stages = np.arange(2 * graph.num_stages) % graph.num_stages
        slow = [stages % p == device for device in range(p)]
        slow += [stages == stage for stage in range(graph.num_stages)] if graph.num_stages > p else []
        for each in slow:
            times = np.where(each, np.ceil(even * _SLOWER), even).astype(np.int64)
            self.work += graph.num_events / _EVENTS_OF_WORK
            yield graph.longest_path(times, self.problem.transfer)

    def _table_of_stages(self) -> Sizes | None:
        """Bound 1F1B by the stages one by one, and return the layout with the least bound.

        Stage i of p begins after the forwards of those before it, and ends before their backwards. It runs
        ``p - i`` forwards, waits for its first backward, runs the others in turn, and after its last forward
        as many backwards. Each wait is as long as the stages behind it take once. The sums before and behind
        a stage of the pieces from a to b depend on a and b alone, so that a table over stages and pieces has
        the least bound of all layouts.
        """
        problem, p = self.problem, self.problem.graph.num_devices
        m = problem.graph.num_events // (2 * p)
        cum_f, cum_b = (np.cumsum([0, *row]) for row in (problem.forward, problem.backward))
        cum_a, cum_w = (np.cumsum([0, *row]) for row in (problem.activation, problem.weight))
        f, b = cum_f[None] - cum_f[:, None], cum_b[None] - cum_b[:, None]  # (from, to)
        ahead, behind = (cum_f + cum_b)[:, None], (cum_f + cum_b)[-1] - (cum_f + cum_b)[None]
        stages = []
        for i in range(p):
            w = min(p - i, m)
            late = 2 * problem.transfer
            rest = behind + (p - 1 - i) * late
            bound = (
                ahead
                + i * late
                + np.maximum(w * f, f + rest)
                + (m - w) * (f + b)
                + np.maximum(w * b, b + rest)
            )
            if problem.capacity is not None:
                held = (cum_w[None] - cum_w[:, None]) + w * (cum_a[None] - cum_a[:, None])
                bound = np.where(held > problem.capacity, math.inf, bound)
            stages.append(bound)
        found, least = least_largest(stages)
        self.bound = max(self.bound, least)
        return found


def _neighbours(sizes: Sizes) -> Ints:
    """Return the layouts in which a piece of one stage is another's."""
    number = len(sizes)
    moves = np.eye(number, dtype=np.int64)[None] - np.eye(number, dtype=np.int64)[:, None]
    rows = np.array(sizes) + moves.reshape(-1, number)
    return np.asarray(rows[(rows >= 1).all(1)])
