"""The best layout for a schedule: local search among neighbours, in turn with a bound on all layouts.

A longest path of one layout is a path of every other one, so it bounds their times. Neighbours whose bound is
no less than the best time are not timed. The least bound over all layouts (by `min_bound`, or for 1F1B by a
table) says when a layout is proved the best, and which layout to try next. All work is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from placements.planners.division import divided, min_largest, windows
from schedsearch.layouts.layout_model import LayoutProblem, Sizes, min_bound
from schedsearch.layouts.order_graph import Ints
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import INTERRUPTS

_EVENTS_OF_WORK = 15_000_000
"""Events timed per unit of work, about a second."""

_MOST_LISTED = 20_000
"""Up to this number of layouts, all of them are timed."""

_BATCH = 64
"""Layouts timed at once."""

_SLOWER = 1.1
"""Slowdown of one stage or device that makes the longest path go through it."""

_MODEL_WORK = 2.0
"""Units of work for one question to CP-SAT."""


def best_layout(
    problem: LayoutProblem, starts: Sequence[Sizes] = (), work_limit: float = 20.0
) -> LayoutSearch:
    """Search the best layout from given starts; return it with a bound on all layouts.

    The limit of work is in units of about a second.
    """
    search = LayoutSearch(problem, work_limit)
    last, number = problem.pieces.shape[1], problem.graph.num_stages
    if math.comb(last - 1, number - 1) <= _MOST_LISTED:
        ends = np.array([(0, *cuts, last) for cuts in combinations(range(1, last), number - 1)])
        for first in range(0, len(ends), _BATCH):
            search.time(np.diff(ends[first : first + _BATCH], axis=1))
        search.bound = search.ticks
        return search
    search.paths += search.usual_paths()
    starts = [*starts, min_largest(problem.pieces[:2].sum(0).tolist(), number)]
    if number == problem.graph.num_devices:
        layout, search.bound = _table_of_stages(problem)
        starts = [layout, *starts] if layout else starts
    for sizes in dict.fromkeys(starts):
        if search.best is None or not search.is_over:
            search.descend(sizes)
    with INTERRUPTS.answered():
        search.bound_and_look()
    return search


@dataclass
class LayoutSearch:
    """A layout search in progress: the best layout so far, and the bound on all.

    Attributes:
        best: Pieces of each stage; None where no layout fits, or none was found.
        ticks: Ticks of an iteration with the best layout.
        bound: Lower bound on the ticks of every layout; at least `ticks` once proved, infinite if none fits.
        work: Units of work so far.
        paths: Longest paths of layouts, each a lower bound.
    """

    problem: LayoutProblem
    work_limit: float
    best: Sizes | None = None
    ticks: float = math.inf
    bound: float = 0.0
    work: float = 0.0
    paths: list[Ints] = field(default_factory=list)

    @property
    def is_proved(self) -> bool:
        """Whether the best layout is proved the best, or proved that no layout fits."""
        return self.bound >= self.ticks

    @property
    def is_over(self) -> bool:
        """Whether the layout is proved, the work is used up, or Ctrl-C came."""
        return self.work >= self.work_limit or self.is_proved or INTERRUPTS.seen

    def usual_paths(self) -> Iterator[Ints]:
        """Yield the longest paths of even layouts in which one stage or device is slower than the rest."""
        graph, number = self.problem.graph, self.problem.graph.num_stages
        even = np.maximum(self.problem.sums[:2, -1] // number, 1)
        stages = np.arange(number)
        slow = [stages % graph.num_devices == device for device in range(graph.num_devices)]
        slow += [stages == stage for stage in stages] if number > graph.num_devices else []
        for is_slow in slow:
            times = np.ceil(np.outer(even, np.where(is_slow, _SLOWER, 1))).ravel()
            self.work += len(graph.kinds) / _EVENTS_OF_WORK
            yield graph.longest_path(np.append(times, self.problem.transfer).astype(np.int64)[:, None])

    def bound_and_look(self) -> None:
        """Raise the bound and search around the layout that meets it, until bound and best time are equal."""
        while not self.is_over:
            most = None if self.best is None else int(self.ticks)
            budget = SolverBudget(min(_MODEL_WORK, self.work_limit - self.work), 600, 0, self._spend)
            bound, sizes = min_bound(self.problem, self.paths, most, self.best, budget)
            self.bound = max(self.bound, min(bound, self.ticks))  # infinite where nothing fits
            if sizes is None:
                return
            self.descend(sizes)

    def _spend(self, work: float) -> None:
        self.work += work

    def time(self, rows: Ints) -> tuple[Ints, Ints]:
        """Time the layouts that fit the memory, and keep the best; return these layouts with their ticks."""
        rows = rows[self.problem.excess(rows) == 0]
        if not len(rows):
            return rows, rows[:, 0]
        self.work += len(rows) * len(self.problem.graph.kinds) / _EVENTS_OF_WORK
        ticks = self.problem.graph.makespans(self.problem.times(rows))
        if ticks.min() < self.ticks:
            self.ticks, self.best = int(ticks.min()), tuple(rows[ticks.argmin()].tolist())
        return rows, ticks

    def descend(self, sizes: Sizes) -> None:
        """Go from neighbour to better neighbour: first to less missing memory, then to fewer ticks."""
        rows = np.array([sizes])
        while excess := self.problem.excess(rows)[0]:
            others = _neighbours(rows[0])
            excesses = self.problem.excess(others)
            if excesses.min() >= excess:
                return
            rows = others[[excesses.argmin()]]
        rows, ticks = self.time(rows)
        while len(rows):
            self.work += len(self.problem.graph.kinds) / _EVENTS_OF_WORK
            self.paths.append(self.problem.graph.longest_path(self.problem.times(rows)))
            if self.is_over:
                return
            rows, ticks = self._better(rows[0], ticks[0])

    def _better(self, sizes: Ints, ticks: int) -> tuple[Ints, Ints]:
        """Return the best neighbour of the first batch (by bound) with a better layout; empty if none has."""
        rows = _neighbours(sizes)
        rows = rows[self.problem.excess(rows) == 0]
        bounds = (np.array(self.paths) @ self.problem.times(rows)).max(0)
        order = np.argsort(bounds, kind="stable")
        order = order[bounds[order] < ticks]
        step = max(1, min(_BATCH, _EVENTS_OF_WORK // (5 * len(self.problem.graph.kinds))))
        for first in range(0, len(order), step):
            if self.is_over:
                break
            some, times = self.time(rows[order[first : first + step]])
            if times.min() < ticks:
                return some[[times.argmin()]], times[[times.argmin()]]
        return rows[:0], bounds[:0]


def _table_of_stages(problem: LayoutProblem) -> tuple[Sizes | None, float]:
    """Return the least bound on 1F1B over all layouts, by its stages one by one, and the layout that has it.

    Stage i of p begins after the forwards of those before it, and ends before their backwards. It runs
    ``p - i`` forwards, waits for its first backward, runs the others in turn, and after its last forward as
    many backwards. Each wait is as long as the stages behind it take once. The sums before and behind a stage
    of the pieces from a to b depend on a and b alone, so that a table over stages and pieces has the least
    bound of all layouts.
    """
    p, late = problem.graph.num_devices, 2 * problem.transfer
    m = len(problem.graph.kinds) // (2 * p)
    f, b, activation, weight = problem.sums[:, None, :] - problem.sums[:, :, None]  # (from, to)
    passes = problem.sums[:2].sum(0)
    ahead, behind = passes[:, None], passes[-1] - passes[None]
    stages = []
    for i in range(p):
        w = min(p - i, m)
        rest = behind + (p - 1 - i) * late
        waits = np.maximum(w * f, f + rest) + (m - w) * (f + b) + np.maximum(w * b, b + rest)
        fits = True if problem.capacity is None else weight + w * activation <= problem.capacity
        stages.append(windows(np.where(fits, ahead + i * late + waits, math.inf)))
    sizes, bound = divided(stages, np.maximum, longest_last=True)
    return sizes or None, bound


def _neighbours(sizes: Ints) -> Ints:
    """Return the layouts in which one piece has moved to another stage."""
    number = len(sizes)
    moves = np.eye(number, dtype=np.int64)[None] - np.eye(number, dtype=np.int64)[:, None]
    rows = sizes + moves.reshape(-1, number)
    return np.asarray(rows[(rows >= 1).all(1)])
