"""The rounds of a search: the period, then what follows it, each with its share of counted work.

What comes next, and for how long, is counted in work, not in seconds, and no limit is known here. So a search
with more time or work goes the same course, and further.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace

from schedsearch.core.answer import EndedBy, SearchReport, SearchResult, Status
from schedsearch.core.budget import Account, Budget
from schedsearch.core.known import Known, Start
from schedsearch.core.objective import FINITE, VALUE, Objective
from schedsearch.core.problem import GIVEN, LONGEST_S, Problem
from schedsearch.passes.begin_with import StartingPoint, starting_point_on
from schedsearch.procedures.modes import Modes
from schedsearch.procedures.period import PeriodSearch
from schedsearch.procedures.registry import chosen
from schedsearch.procedures.whole import WholeSearch
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import Ending
from schedsearch.solver.portfolio import SOLVERS

_FIRST_ROUND = 2.5
"""Work of the first round, in units of about a second; half of each is for the period until it is proved."""

_SHARE_OF_REPETENDS = 0.3
"""Share of the work after the period that goes to repetends; the rest goes to the whole schedule."""

_FIRST_REPETENDS = 1.5
"""Work until which they come first in any case: where questions are easy, that is enough for all of them."""

_SHARE_OF_MADE = 0.1
"""Share of a time limit, at least a second, that may pass beyond it, for schedules by hand that a search has
not come to."""


class Orchestrator:
    """Runs all procedures on a problem that is behind the passes; what they found is kept at any end."""

    def __init__(self, problem: Problem, on_progress: SearchReport) -> None:
        """Prepare to search.

        Raises:
            SearchError: What to begin with is not for this placement, or a procedure is unknown.
        """
        self.problem = problem
        placement, wanted = problem.placement, problem.wanted
        self.with_period = Objective.PERIOD in wanted
        position = wanted.index(Objective.PERIOD) if self.with_period else -1
        before, self.after = wanted[: max(position, 0)], wanted[position + 1 :]
        given = StartingPoint()
        if problem.begin_with is not None:
            given = starting_point_on(placement, problem.num_micro_batches, problem.begin_with)
        procedures, self.uses = chosen(problem.strategies, problem.without)
        for each in procedures:
            if isinstance(each, Modes):
                each.search_orders = self._search_orders
        began = time.monotonic()
        work_limit = min(problem.work_limit or math.inf, LONGEST_S)
        self.effort = Effort(began + problem.seconds, limit=work_limit)
        self.account = Account(SOLVERS[problem.solver](), problem.seed, began, self.effort, on_progress)
        known = Known(
            placement.per_micro_batch, problem.sizes, period_bound(placement), before, seed=problem.seed
        )
        self.period = PeriodSearch(known, self.account, procedures, self.uses)
        self.last = wanted[-1] if wanted[-1] in FINITE else Objective.MAKESPAN
        self.whole = WholeSearch(
            placement,
            problem.num_micro_batches,
            self.last,
            given.schedule if self.last in wanted else None,
            self.account,
            self.uses,
        )
        self.given = given.repetend

    def run(self) -> SearchResult:
        """Search until all is proved, nothing is left, or a limit or a Ctrl-C ends it; return the answer."""
        period = self.period
        with self.effort.answered() as ending:
            if self.given is not None:
                period.take(GIVEN, [Start(self.given, GIVEN)])
            self._rounds()
        with contextlib.suppress(OutOfTimeError, KeyboardInterrupt):
            if period.known.best is None and period.known.failure.status is Status.UNKNOWN:
                period.begin()
        is_cut, best = ending.interrupted or ending.out_of_work or ending.out_of_time, period.known.best
        if is_cut and best is not None and self.last in self.problem.wanted and best.placement.is_plain:
            beyond_s = max(1.0, _SHARE_OF_MADE * self.problem.seconds) if ending.out_of_time else 0.0
            with contextlib.suppress(KeyboardInterrupt):  # a second one, which ends this too
                self.whole.take_hand_made(best, beyond_s)
        return self._answer(ending)

    def _rounds(self) -> None:
        """Search the period and what follows it in rounds.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        period, whole, after = self.period, self.whole, self.after
        if not self.with_period:
            period.begin()
        for end in self.effort.rounds(_FIRST_ROUND):
            if period.known.failure.status is Status.INFEASIBLE:
                return
            if self.with_period and not period.known.is_done:
                period.run(end if whole.is_done(after) else self.effort.share(end, 0.5))
            known = period.known
            if (best := known.best) is not None:
                if known.is_done and known.placement.is_plain:
                    for each in set(VALUE) - {
                        Objective.PERIOD
                    }:  # what is proved of them now is of that period
                        self.account.proved.pop(each, None)
                source = whole.source
                if source is None or known.quality(best) < known.quality(source):
                    whole.begin_with(best, self.with_period and best.micro_batches in known.sizes)
                self._after_period(end)
            if (not self.with_period or known.is_done) and whole.is_done(after):
                return

    def _after_period(self, end: float) -> None:
        """Make the objectives after the period less, until so much work is done."""
        whole, after = self.whole, self.after
        if after and not whole.polished:
            until = end
            if self.last in after:
                until = max(self.effort.share(end, _SHARE_OF_REPETENDS), min(end, _FIRST_REPETENDS))
            whole.polish(after, until)
        if self.last in after:
            whole.shorten(end)

    def _search_orders(self, known: Known, budget: Budget) -> Iterator[Start]:
        """Yield the best repetends of a plain placement that all procedures but modes find in a round."""
        procedures, uses = chosen(None, (*self.problem.without, Modes.name))
        silent = replace(self.account, on_progress=lambda _: None, work={}, found_by={}, proved={})
        inner = PeriodSearch(known, silent, procedures, uses)
        try:
            inner.run(budget.until)
        finally:
            self.account.queries = silent.queries
        yield from (Start(repetend, Modes.name) for repetend in inner.known.repetends.values())

    def _answer(self, ending: Ending) -> SearchResult:
        known, whole, problem = self.period.known, self.whole, self.problem
        placement, number = problem.placement, problem.num_micro_batches
        found = known.best
        if found is not None and whole.source is not None:
            found = min(whole.source, found, key=known.quality)
        repetend, schedule, span_bound = None, None, critical_path(known.placement)
        status, reason = known.failure
        if found is not None and found.repetend is not None:
            reason = ""
            repetend = replace(found.repetend, placement=known.placement)  # a query may have had less memory
            schedule, span_bound = whole.best(found), found.bound[Objective.SPAN]
            is_least = known.rate <= known.bound
            if not self.with_period:
                is_least = FINITE[self.last].value(schedule) <= whole.bound
            status = Status.OPTIMAL if is_least and not ending.interrupted else Status.FEASIBLE
        bounds = {Objective.MAKESPAN: makespan_bound, Objective.DEVICE_SPAN: device_span_bound}
        least = {
            each: whole.bound if each is self.last else bound(placement, number)
            for each, bound in bounds.items()
        }
        proved = status is Status.INFEASIBLE
        if schedule is not None:
            others = set(problem.wanted) - {Objective.PERIOD, *bounds}  # more may tell of these
            proved = (
                status is Status.OPTIMAL
                and not ((ending.out_of_time or ending.out_of_work) and others)
                and all(
                    FINITE[each].value(schedule) <= least[each] for each in bounds if each in problem.wanted
                )
            )
        return SearchResult(
            status=status,
            repetend=repetend if self.with_period else None,
            schedule=schedule,
            period_bound=float(known.bound),
            span_bound=span_bound,
            makespan_bound=least[Objective.MAKESPAN],
            device_span_bound=least[Objective.DEVICE_SPAN],
            queries=self.account.queries,
            seconds=time.monotonic() - self.account.began,
            tried=known.tried if self.with_period else (),
            ended_by=EndedBy.of(ending, proved=proved),
            reason=reason,
            sizes=known.counted_sizes,
            limits=known.limits,
            solver=problem.solver,
            min_period=known.min_period if self.with_period else None,
            universal_bound=float(known.period_bound),
            strategies=tuple(each for each in self.account.work.values() if each.name in self.uses),
            work=self.effort.spent,
        )
