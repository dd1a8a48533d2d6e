"""Repetend search: the least period, then the least span, then the least makespan; with status and bounds.

Knows no solver's language: a solver is a function like `schedsearch.smt.decide`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from placements import Placement
from schedsearch import bounds, smt
from schedsearch.metrics import total_slack
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule
from schedsearch.solver import INTERRUPTS, Answer, Solver, portfolio
from schedsearch.validate import validate


class SearchError(ValueError):
    """The search was asked for something it cannot do."""


class Status(StrEnum):
    """What is known of a search's answer.

    OPTIMAL: the period meets its bound. FEASIBLE: a valid schedule, and a bound that it does not meet, or
    a search that was interrupted. INFEASIBLE: proved that there is none. UNKNOWN: gave up without one.
    """

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


def _cpsat() -> Solver:
    try:
        from schedsearch import cpsat  # takes a second to load, and not everyone needs it
    except ImportError:
        raise SearchError(
            "search.solver: OR-tools is not installed; pip install 'schedsearch[cpsat]' or use z3"
        ) from None
    return cpsat.decide


SOLVERS: dict[str, Callable[[], Solver]] = {
    "z3": lambda: smt.decide,
    "cpsat": _cpsat,
    "portfolio": lambda: portfolio(smt.decide, _cpsat()),
}
"""What loads each solver, by the name that the command line uses."""

_SHARE_OF_ONE = 0.75
"""Share of the time that several micro-batches per repetend have after one micro-batch."""

_LONGEST_S = 4e6
"""Longest time limit, some forty days: solvers count milliseconds in 32 bits."""

_PATIENCE = 24
"""Repetends in a row that may bring no shorter makespan before the search for one ends."""


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        phase: ``period``, ``span`` or ``makespan``: what is being made smaller.
        best: Least value found, in ticks.
        bound: Greatest lower bound proved, in ticks.
        queries: Questions put to the solver so far.
        elapsed_s: Seconds since the search began.
    """

    phase: str
    best: int
    bound: int
    queries: int
    elapsed_s: float


@dataclass(frozen=True)
class SearchResult:
    """A schedule and what is proved of it.

    Attributes:
        status: Of the period: OPTIMAL when it meets `period_bound`.
        repetend: The steady state; None when there is no schedule.
        schedule: The repetend unrolled to the asked number of micro-batches, validated; None when none.
        period_bound: Ticks per micro-batch that no repetend of as many micro-batches beats.
        span_bound: Ticks that the span of no repetend of this period beats.
        makespan_bound: Ticks that no schedule of as many micro-batches beats, periodic or not.
        queries: Questions put to the solver.
        seconds: Wall-clock time of the search.
        interrupted: Whether it was interrupted from the keyboard.
        reason: Why there is no schedule; empty when there is one.
    """

    status: Status
    repetend: Repetend | None
    schedule: Schedule | None
    period_bound: float
    span_bound: int
    makespan_bound: int
    queries: int
    seconds: float
    interrupted: bool = False
    reason: str = ""


def search(
    placement: Placement,
    num_micro_batches: int,
    *,
    micro_batches_per_repetend: int = 1,
    solver: str = "z3",
    time_limit_s: float = 60.0,
    polish_time_limit_s: float = 10.0,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """Search the repetend of least period under each device's memory, and unroll it.

    The period is searched from its bound up, by bisection over decision queries; every answer is
    compacted, so that the upper end is always a period that some order of blocks really has. At the least
    period the span is made least in the same way. Then repetends of the same period and of various
    spans are sampled, and the one with the least makespan for the asked number of micro-batches is kept: how
    well warmup and cooldown pack depends on more than the span. (Tessel, Sec. IV-C, solves warmup and
    cooldown on their own, after the repetend.)

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: To unroll to; at least 1.
        micro_batches_per_repetend: At least 1 (Tessel: 1).
        solver: A key of `SOLVERS`.
        time_limit_s: Seconds for the whole search; the best schedule found until then is returned.
        polish_time_limit_s: Seconds of it for the span and the makespan, once the period is settled.
        seed: Of the solver's random choices.
        on_progress: Called with the first schedule found, and after each query.

    Raises:
        SearchError: An argument is out of its range.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    if solver not in SOLVERS:
        raise SearchError(f"search.solver: {solver!r} is not a solver; use {' or '.join(SOLVERS)}")
    if num_micro_batches < 1:
        raise SearchError(f"search.num_micro_batches: {num_micro_batches} is not at least 1")
    if micro_batches_per_repetend < 1:
        raise SearchError(
            f"search.micro_batches_per_repetend: {micro_batches_per_repetend} is not at least 1"
        )
    if not polish_time_limit_s >= 0:
        raise SearchError(f"search.polish_time_limit_s: {polish_time_limit_s} is not 0 or more seconds")
    if not time_limit_s > 0:
        raise SearchError(f"search.time_limit_s: {time_limit_s} is not a positive number of seconds")
    bounds.require_capacity(placement)
    began = time.monotonic()
    deadline = began + min(time_limit_s, _LONGEST_S)
    asked = _Question(
        placement, num_micro_batches, SOLVERS[solver](), seed, began, on_progress or (lambda _: None)
    )
    running = _Search(asked, micro_batches_per_repetend, deadline)
    interrupted = False
    INTERRUPTS.watch()
    try:
        if micro_batches_per_repetend > 1:
            running.begin_with_one(deadline - (deadline - began) * _SHARE_OF_ONE)
        else:
            running.begin()
        if running.best is not None:
            running.report("period", running.best.period, running.period_bound)
            running.minimise_period()
            running.deadline = min(running.deadline, time.monotonic() + polish_time_limit_s)
            running.minimise_span()
            running.minimise_makespan()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        INTERRUPTS.unwatch()
    return running.result(interrupted)


@dataclass(frozen=True)
class _Question:
    """What does not change while a search goes on, whatever the micro-batches per repetend."""

    placement: Placement
    num_micro_batches: int
    solver: Solver
    seed: int
    began: float
    on_progress: Callable[[Progress], None]


class _Search:
    """One search's state: the best repetend and what is proved so far."""

    def __init__(self, asked: _Question, micro_batches: int, deadline: float) -> None:
        self.asked = asked
        self.placement = asked.placement
        self.num_micro_batches = asked.num_micro_batches
        self.micro_batches = micro_batches
        self.deadline = deadline
        self.best: Repetend | None = None
        self.infeasible = False
        self.queries = 0
        self.period_bound = bounds.least_period(asked.placement, micro_batches)
        self.span_bound = bounds.critical_path(asked.placement)
        self.makespan_bound = bounds.makespan_bound(asked.placement, asked.num_micro_batches)

    def begin(self) -> None:
        """Find a first repetend of one micro-batch: one block after another, or what the solver finds."""
        order = _one_after_another(self.placement)
        times = [block.time for block in self.placement.blocks]
        ample = sum(times) + sum(ticks for _, _, ticks in self.placement.transfer)
        if order is not None:
            starts = self._one_by_one(order)
            self.best = Repetend.from_first_starts(self.placement, 1, ample, starts)
        else:
            answer, self.best = self._ask(ample, None, self._time_left())
            self.infeasible = answer is Answer.NO
        if self.best is not None:
            self.best = self.best.compacted(self.period_bound)

    def begin_with_one(self, deadline: float) -> None:
        """Begin with the best repetend of one micro-batch found by a deadline, several times in a row."""
        one = _Search(self.asked, 1, min(deadline, self.deadline))
        try:
            one.begin()
            if one.best is not None:
                one.minimise_period()
        finally:
            self.queries, self.infeasible = one.queries, one.infeasible
            self.best = one.best.repeated(self.micro_batches) if one.best is not None else None

    def _one_by_one(self, order: list[str]) -> dict[Instance, int]:
        """Return the starts of one micro-batch's blocks when no two run at once."""
        starts: dict[Instance, int] = {}
        end: dict[str, int] = {}
        now = 0
        for name in order:
            block = self.placement.by_name[name]
            now = max([now, *(end[a] + self.placement.transfer_time(a, name) for a in block.after)])
            starts[name, 0] = now
            end[name] = now = now + block.time
        return starts

    def minimise_period(self) -> None:
        """Bisect the period between its bound and the best repetend's, the bound itself first."""
        assert self.best is not None
        low, candidate = self.period_bound, self.period_bound
        while low < self.best.period and self._time_left() > 0:
            answer, repetend = self._ask(candidate, None, self._time_left() / 2)
            if repetend is not None:
                self.best = repetend.compacted(self.period_bound)
            else:
                low = candidate + 1
                if answer is Answer.NO:
                    self.period_bound = max(self.period_bound, low)
            self.report("period", self.best.period, self.period_bound)
            candidate = (low + self.best.period) // 2

    def minimise_span(self) -> None:
        """Bisect the span at the best period."""
        assert self.best is not None
        period, low = self.best.period, self.span_bound
        while low < self.best.span and self._time_left() > 0:
            candidate = (low + self.best.span) // 2
            answer, repetend = self._ask(period, candidate, self._time_left() / 2)
            if repetend is not None:
                self.best = repetend.compacted(period)
            else:
                low = candidate + 1
                if answer is Answer.NO:
                    self.span_bound = max(self.span_bound, low)
            self.report("span", self.best.span, self.span_bound)

    def minimise_makespan(self) -> None:
        """Sample repetends of the best period; keep the one that unrolls to the least makespan.

        Of equal makespans the one with more slack is better, since lower clocks can use it.
        """
        assert self.best is not None
        period, span = self.best.period, self.best.span
        limits = itertools.cycle([None, span, span + period // 2, span + period, span + 2 * period])
        best, improved = self._quality(self.best), 0
        for i, limit in enumerate(limits):
            if best[0] <= self.makespan_bound or i - improved >= _PATIENCE or self._time_left() <= 0:
                break
            _, repetend = self._ask(period, limit, self._time_left() / 4, self.asked.seed + i)
            if repetend is None:
                continue
            for candidate in (repetend, repetend.compacted(period)):
                quality = self._quality(candidate)
                if quality < best:
                    improved = i if quality[0] < best[0] else improved
                    self.best, best = candidate, quality
            self.report("makespan", best[0], self.makespan_bound)

    def _quality(self, repetend: Repetend) -> tuple[int, int, int]:
        """Return what makes one repetend of a period better than another: less, from the first figure on."""
        schedule = repetend.unroll(self.num_micro_batches)
        return schedule.makespan, -total_slack(schedule), repetend.span

    def result(self, interrupted: bool) -> SearchResult:
        """Return the answer as it stands."""
        status, reason = Status.UNKNOWN, "no schedule was found in the time given; raise search.time_limit_s"
        schedule = None
        if self.best is not None:
            schedule, reason = validate(self.best.unroll(self.num_micro_batches)), ""
            proved = self.best.period <= self.period_bound and not interrupted
            status = Status.OPTIMAL if proved else Status.FEASIBLE
        elif self.infeasible:
            status = Status.INFEASIBLE
            reason = (
                "one micro-batch alone does not fit the devices' memory in any order; raise search.memory"
            )
        return SearchResult(
            status,
            self.best,
            schedule,
            self.period_bound / self.micro_batches,
            self.span_bound,
            self.makespan_bound,
            self.queries,
            time.monotonic() - self.asked.began,
            interrupted,
            reason,
        )

    def _ask(
        self, period: int, span: int | None, timeout_s: float, seed: int | None = None
    ) -> tuple[Answer, Repetend | None]:
        INTERRUPTS.raise_if_seen()
        self.queries += 1
        seed = self.asked.seed if seed is None else seed
        return self.asked.solver(
            self.placement, self.micro_batches, period, span, timeout_s=max(timeout_s, 0.01), seed=seed
        )

    def _time_left(self) -> float:
        return self.deadline - time.monotonic()

    def report(self, phase: str, best: int, bound: int) -> None:
        """Tell the caller how far the search is."""
        elapsed_s = time.monotonic() - self.asked.began
        self.asked.on_progress(Progress(phase, best, bound, self.queries, elapsed_s))


def _one_after_another(placement: Placement) -> list[str] | None:
    """Return an order of one micro-batch's blocks that respects memory, or None where being greedy fails.

    Of the blocks whose inputs are there and that fit, the one that takes least comes first, the latest of
    equals: depth first, so that what is held is given back soon.
    """
    free = list(placement.memory) if placement.memory is not None else None
    position = {block.name: i for i, block in enumerate(placement.topological_order)}
    missing = {block.name: len(block.after) for block in placement.blocks}
    ready = [name for name, count in missing.items() if count == 0]
    order: list[str] = []
    while ready:
        fitting = [
            name
            for name in ready
            if free is None
            or all(
                placement.by_name[name].memory <= free[device] for device in placement.by_name[name].devices
            )
        ]
        if not fitting:
            return None
        name = min(fitting, key=lambda name: (placement.by_name[name].memory > 0, -position[name]))
        ready.remove(name)
        order.append(name)
        if free is not None:
            for device in placement.by_name[name].devices:
                free[device] -= placement.by_name[name].memory
        for follower in placement.successors[name]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    return order
