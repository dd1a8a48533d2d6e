"""Repetend search: the least period, swept over micro-batches per repetend, then other objectives in turn."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from placements import Placement
from schedsearch import bounds
from schedsearch.baselines import applicable
from schedsearch.bounds.makespan import makespan_bound
from schedsearch.improve.improve import improve
from schedsearch.metrics import total_slack
from schedsearch.modulo.bisection import Asking, ModuloSearch, Objective, Progress
from schedsearch.modulo.infeasible import why_infeasible
from schedsearch.modulo.result import SearchError, SearchResult, Status, Tried
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.solver import smt
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.portfolio import portfolio
from schedsearch.solver.query import Answer, Query, Solver
from schedsearch.state_space import LeastPeriod, least_period
from schedsearch.validate import validate


def _cpsat() -> Solver:
    from schedsearch.solver import cpsat

    return cpsat.decide


def _cpsat_when_asked(query: Query, timeout_s: float = 60.0, seed: int = 0) -> tuple[Answer, Repetend | None]:
    return _cpsat()(query, timeout_s=timeout_s, seed=seed)


def _portfolio() -> Solver:
    """Return Z3 and CP-SAT in turn; CP-SAT first where several micro-batches make a question hard."""
    one, several = portfolio(smt.decide, _cpsat_when_asked), portfolio(_cpsat_when_asked, smt.decide)

    def decide(query: Query, timeout_s: float = 60.0, seed: int = 0) -> tuple[Answer, Repetend | None]:
        return (one if query.micro_batches == 1 else several)(query, timeout_s=timeout_s, seed=seed)

    return decide


SOLVERS: dict[str, Callable[[], Solver]] = {
    "portfolio": _portfolio,
    "z3": lambda: smt.decide,
    "cpsat": _cpsat,
}
"""What loads each solver, by the name that the command line uses."""

OBJECTIVES = (Objective.PERIOD, Objective.MAKESPAN)
"""What is made least by default, in this order."""

_SHARE_OF_ONE = 0.5
"""Share of the time that one micro-batch per repetend gets where more may follow."""

_SHARE_OF_STATES = 0.2
"""Share of the time left for periods that goes through the cycles of states."""

_SHARE_OF_REPETENDS = 0.3
"""Share of the time after the period that goes to repetends; the rest goes to the whole schedule."""

_LONGEST_S = 4e6
"""Longest time limit, some forty days: solvers count milliseconds in 32 bits."""

_PATIENCE = 12
"""Repetends in a row that may bring no shorter makespan before the search for one ends."""


def search(
    placement: Placement,
    num_micro_batches: int,
    *,
    micro_batches_per_repetend: int | None = None,
    most_micro_batches_per_repetend: int = 3,
    objectives: Sequence[str] = OBJECTIVES,
    solver: str = "portfolio",
    time_limit_s: float = 60.0,
    polish_time_limit_s: float = 10.0,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """Search the repetend of least period under each device's memory, and unroll it.

    The period is searched from its bound up, by bisection over decision queries; every answer is
    compacted, so that the upper end is always a period that some order of blocks really has. One micro-batch
    per repetend comes first, all that Tessel searches; where that does not meet the bound, two and more are
    tried, and kept where they are better per micro-batch. What follows the period among the objectives is
    made least among repetends of that period, and so on. For the makespan, repetends of various spans are
    sampled: how well warmup and cooldown pack depends on more than the span. Then the whole schedule is
    shortened, in any of its parts, see `schedsearch.improve.improve`; a hand-made schedule that fits the
    placement and its memory may be what that begins with, so that none is ever better.

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: To unroll to; at least 1.
        micro_batches_per_repetend: Exactly so many; None to try 1, 2, ... (Tessel: 1).
        most_micro_batches_per_repetend: Where to stop trying.
        objectives: What to make least, in this order; see `schedsearch.modulo.bisection.Objective`. The
            period is one of them, and the makespan can only be the last.
        solver: A key of `SOLVERS`.
        time_limit_s: Seconds for the whole search; the best schedule found until then is returned.
        polish_time_limit_s: Seconds of it for the objectives after the period.
        seed: Of the solver's random choices.
        on_progress: Called with the first schedule found, and after each query.

    Raises:
        SearchError: An argument is out of its range.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    wanted = read_objectives(objectives)
    if solver not in SOLVERS:
        raise SearchError(f"search.solver: {solver!r} is not a solver; use {' or '.join(SOLVERS)}")
    for name, number in (
        ("num_micro_batches", num_micro_batches),
        (
            "micro_batches_per_repetend",
            1 if micro_batches_per_repetend is None else micro_batches_per_repetend,
        ),
        ("most_micro_batches_per_repetend", most_micro_batches_per_repetend),
    ):
        if number < 1:
            raise SearchError(f"search.{name}: {number} is not at least 1")
    if not polish_time_limit_s >= 0:
        raise SearchError(f"search.polish_time_limit_s: {polish_time_limit_s} is not 0 or more seconds")
    if not time_limit_s > 0:
        raise SearchError(f"search.time_limit_s: {time_limit_s} is not a positive number of seconds")
    bounds.require_capacity(placement)
    began = time.monotonic()
    time_limit_s = min(time_limit_s, _LONGEST_S)
    asking = Asking(SOLVERS[solver](), seed, began, on_progress or (lambda _: None))
    running = _Search(placement, num_micro_batches, wanted, asking, began + time_limit_s)
    only = micro_batches_per_repetend
    interrupted = False
    INTERRUPTS.watch()
    try:
        end = began + time_limit_s - min(polish_time_limit_s, time_limit_s / 2)
        if only is None:
            running.sweep(most_micro_batches_per_repetend, end)
        else:
            running.search_size(only, end)
        running.polish(time.monotonic() + polish_time_limit_s * _SHARE_OF_REPETENDS)
        interrupted = running.complete(time.monotonic() + polish_time_limit_s)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        interrupted = interrupted or INTERRUPTS.seen
        INTERRUPTS.unwatch()
    return replace(running.result(interrupted), solver=solver)


def read_objectives(names: Sequence[str]) -> tuple[Objective, ...]:
    """Return the objectives by their names.

    Raises:
        SearchError: One is unknown or there twice, the period is missing, or the makespan is not the last.
    """
    known = [objective.value for objective in Objective]
    for name in names:
        if name not in known:
            raise SearchError(f"search.objectives: {name!r} is not an objective; use {', '.join(known)}")
    wanted = tuple(Objective(name) for name in names)
    if len(set(wanted)) < len(wanted):
        raise SearchError("search.objectives: one is there twice; name each once")
    if Objective.PERIOD not in wanted:
        raise SearchError("search.objectives: the period is missing; add period")
    if Objective.MAKESPAN in wanted[:-1]:
        raise SearchError(
            "search.objectives: the makespan is not the last; nothing can be made less after it"
        )
    return wanted


class _Search:
    """One search's state: the best repetend, the best schedule, and what is proved so far."""

    def __init__(
        self,
        placement: Placement,
        num_micro_batches: int,
        objectives: tuple[Objective, ...],
        asking: Asking,
        deadline: float,
    ) -> None:
        self.whole = placement
        self.placement = placement.per_micro_batch
        self.num_micro_batches = num_micro_batches
        position = objectives.index(Objective.PERIOD)
        self.before, self.after = objectives[:position], objectives[position + 1 :]
        self.asking = asking
        self.deadline = deadline
        self.period_bound = bounds.period_bound(placement)
        self.least_period: LeastPeriod | None = None
        self.makespan_bound = makespan_bound(placement, num_micro_batches)
        self.searches: list[ModuloSearch] = []
        self.seconds: list[float] = []
        self.best: ModuloSearch | None = None
        self.schedule: Schedule | None = None
        self.span_bound = bounds.critical_path(placement)
        self.reason = ""
        self.sizes = range(1, 2)

    def sweep(self, most: int, deadline: float) -> None:
        """Search the least period for 1, 2, ... micro-batches per repetend, until the bound is met."""
        self.sizes = range(1, most + 1)
        one = self._of(1, deadline, 1.0 if most == 1 else _SHARE_OF_ONE)
        self._run(one)
        self._raise_bound(deadline)
        for micro_batches in self.sizes[1:]:
            if (
                self.best is None
                or self.best.best is None
                or self._is_proved()
                or time.monotonic() >= deadline
            ):
                break
            search = self._of(micro_batches, deadline, 1 / (most - micro_batches + 1))
            search.limit = _without_period(one.limit)
            search.beat = math.ceil(_per_micro_batch(self.best.best) * micro_batches)
            self._run(search)

    def search_size(self, micro_batches: int, deadline: float) -> None:
        """Search the least period for a number of micro-batches per repetend; begin with the best of one."""
        if micro_batches == 1:
            self.sweep(1, deadline)
            return
        self.sizes = range(micro_batches, micro_batches + 1)
        one = self._of(1, deadline, _SHARE_OF_ONE)
        try:
            self._run(one)
            self._raise_bound(deadline)
        finally:
            search = self._of(micro_batches, deadline, 1.0)
            self.searches.clear()
            self.seconds.clear()
            if one.best is not None:
                search.limit, search.best = _without_period(one.limit), one.best.repeated(micro_batches)
                self.best = search
        if search.best is not None:
            self._run(search)

    def _of(self, micro_batches: int, deadline: float, share: float) -> ModuloSearch:
        """Return a search that may take a share of the time left."""
        now = time.monotonic()
        search = ModuloSearch(self.placement, micro_batches, self.asking, now + (deadline - now) * share)
        search.raise_bound(self.period_bound)
        return search

    def _raise_bound(self, deadline: float) -> None:
        """Raise the bound to what the cycles of states prove, if there are few enough of them."""
        if self.best is None or self.best.best is None or self._is_proved():
            return
        self.least_period = least_period(
            self.placement,
            known=_per_micro_batch(self.best.best),
            time_limit_s=(deadline - time.monotonic()) * _SHARE_OF_STATES,
        )
        if self.least_period is not None and self.least_period.ticks > self.period_bound:
            self.period_bound = self.least_period.ticks
            for search in self.searches:
                search.raise_bound(self.period_bound)

    def _run(self, search: ModuloSearch) -> None:
        began = time.monotonic()
        self.searches.append(search)
        self.seconds.append(0.0)
        try:
            if search.best is None and search.beat is None:
                search.begin()
                self.best = search
                self._explain(search)
                if search.best is None:
                    return
                search.asking.report(
                    Objective.PERIOD, search.best.period, search.bound[Objective.PERIOD], search.micro_batches
                )
                for objective in self.before:
                    search.minimise(objective)
            search.minimise(Objective.PERIOD)
        finally:
            if search.best is not None:
                self._keep(search)
            self.seconds[-1] = time.monotonic() - began

    def _keep(self, search: ModuloSearch) -> None:
        assert self.best is not None and search.best is not None
        if self.best.best is None or _per_micro_batch(search.best) <= _per_micro_batch(self.best.best):
            self.best = search

    def _is_proved(self) -> bool:
        assert self.best is not None
        return self.best.best is not None and _per_micro_batch(self.best.best) <= self.period_bound

    def polish(self, deadline: float) -> None:
        """Make the objectives after the period least, one after another."""
        if self.best is None or self.best.best is None:
            return
        self.best.deadline = min(self.deadline, deadline)
        for objective in self.after:
            if objective is not Objective.MAKESPAN:
                self.best.minimise(objective)
            else:
                self._minimise_makespan(self.best)

    def _minimise_makespan(self, search: ModuloSearch) -> None:
        """Sample repetends of the best period; keep the one that unrolls to the least makespan.

        Of equal makespans the one with more slack is better, since lower clocks can use it.
        """
        assert search.best is not None
        if Objective.SPAN not in search.limit:
            search.minimise(Objective.SPAN)
            del search.limit[Objective.SPAN]
        period, span = search.best.period, search.best.span
        limits = itertools.cycle([None, span, span + period // 2, span + period, span + 2 * period])
        best, improved = self._quality(search.best), 0
        for i, limit in enumerate(limits):
            if best[0] <= self.makespan_bound or i - improved >= _PATIENCE or search.time_left_s <= 0:
                break
            for candidate in search.sample(limit, i):
                quality = self._quality(candidate)
                if quality < best:
                    improved = i if quality[0] < best[0] else improved
                    search.best, best = candidate, quality
            self.asking.report(Objective.MAKESPAN, best[0], self.makespan_bound, search.micro_batches)

    def complete(self, deadline: float) -> bool:
        """Shorten the whole schedule, if the makespan matters; return whether that was interrupted.

        It begins with the unrolled repetend, or a hand-made schedule that fits and is shorter.
        """
        if self.best is None or self.best.best is None or Objective.MAKESPAN not in self.after:
            return False
        if Objective.LATENCY in self.best.limit:  # which another order of the blocks would not keep
            return False
        report, micro_batches = self.asking.report, self.best.micro_batches
        placement = self.best.limited_placement()
        unrolled = replace(self.best.best.unroll(self.num_micro_batches), placement=placement)
        others = applicable(placement, self.num_micro_batches).values()
        improved = improve(
            min([unrolled, *others], key=lambda schedule: schedule.makespan),
            time_limit_s=min(self.deadline, deadline) - time.monotonic(),
            seed=self.asking.seed,
            on_progress=lambda best, bound: report(Objective.MAKESPAN, best, bound, micro_batches),
        )
        if placement == self.placement:
            self.makespan_bound = max(self.makespan_bound, improved.bound)
        self.schedule = with_optimizer(self.whole, improved.schedule)
        return improved.interrupted

    def _quality(self, repetend: Repetend) -> tuple[int, int, int]:
        """Return what makes one repetend of a period better than another: less, from the first figure on."""
        schedule = self._unrolled(repetend)
        return schedule.makespan, -total_slack(schedule), repetend.span

    def _schedule_of(self, repetend: Repetend) -> Schedule:
        """Return the shortest valid schedule found."""
        unrolled = validate(self._unrolled(repetend))
        if self.schedule is not None and self.schedule.makespan < unrolled.makespan:
            return validate(self.schedule)
        return unrolled

    def _unrolled(self, repetend: Repetend) -> Schedule:
        return with_optimizer(self.whole, repetend.unroll(self.num_micro_batches))

    def _explain(self, search: ModuloSearch) -> None:
        """Say why there is no schedule, if there is none."""
        if search.infeasible:
            self.reason = why_infeasible(self.placement, self.asking, self.deadline)
        elif search.best is None:
            self.reason = "no schedule was found in the time given; raise search.time_limit_s"

    def result(self, interrupted: bool) -> SearchResult:
        """Return the answer as it stands."""
        best = self.best.best if self.best is not None else None
        if best is not None:
            best = replace(best, placement=self.placement)  # a query may have had less memory
        tried = tuple(
            Tried(
                search.micro_batches,
                search.best.period if search.best is not None else None,
                search.bound[Objective.PERIOD],
                max(search.refuted, default=None),
                seconds,
            )
            for search, seconds in zip(self.searches, self.seconds, strict=True)
        )
        proofs = [Fraction(each.bound, each.micro_batches) for each in tried]
        bound = max(self.period_bound, min(proofs)) if len(tried) == len(self.sizes) else self.period_bound
        if best is None:
            status = Status.INFEASIBLE if self.best is not None and self.best.infeasible else Status.UNKNOWN
        else:
            proved = _per_micro_batch(best) <= bound and not interrupted
            status = Status.OPTIMAL if proved else Status.FEASIBLE
        return SearchResult(
            status,
            best,
            self._schedule_of(best) if best is not None else None,
            float(bound),
            self.best.bound[Objective.SPAN] if self.best is not None else self.span_bound,
            self.makespan_bound,
            self.asking.queries,
            time.monotonic() - self.asking.began,
            tried,
            interrupted,
            "" if best is not None else self.reason,
            tuple(self.sizes),
            {
                key: value
                for each in self.searches[:1]
                for key, value in each.limit.items()
                if key in self.before
            },
            least_period=self.least_period,
            universal_bound=float(self.period_bound),
        )


def _per_micro_batch(repetend: Repetend) -> Fraction:
    return Fraction(repetend.period, repetend.micro_batches)


def _without_period(limit: dict[Objective, int]) -> dict[Objective, int]:
    return {objective: value for objective, value in limit.items() if objective is not Objective.PERIOD}
