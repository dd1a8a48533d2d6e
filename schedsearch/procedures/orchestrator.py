"""The rounds of a search: the period, then the later objectives, each with its share of counted work.

The order and length of steps depend on counted work, not on seconds, and no limit is known here. So a search
with more time or work takes the same steps, and then further ones.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace

from schedsearch.core.answer import Answer, EndedBy, SearchReport, Status
from schedsearch.core.budget import Account, Budget
from schedsearch.core.known import Known, Start
from schedsearch.core.objective import FINITE, VALUE, Objective
from schedsearch.core.problem import GIVEN, LONGEST_S, Problem
from schedsearch.core.team import Leader, Member
from schedsearch.passes import border
from schedsearch.passes.begin_with import starting_point_on
from schedsearch.procedures.modes import Modes
from schedsearch.procedures.period import PeriodSearch
from schedsearch.procedures.registry import chosen
from schedsearch.procedures.team_search import TeamProgress, best_of
from schedsearch.procedures.whole import WholeSearch
from schedsearch.proof.load_and_path import critical_path, period_bound
from schedsearch.proof.memory_need import require_capacity
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import Ending
from schedsearch.solver.portfolio import SOLVERS

_FIRST_ROUND = 2.5
"""Work of the first round, in units of about a second; half of each is for the period until it is proved."""

_SHARE_OF_REPETENDS = 0.3
"""Share of the work after the period that goes to repetends; the rest goes to the whole schedule."""

_FIRST_REPETENDS = 1.5
"""Work up to which repetends come first in any case: enough for all of them if queries are easy."""

_SHARE_BEYOND = 0.1
"""Share of a time limit, at least a second, that may pass beyond it: for hand-made schedules that the search
has not tried yet, and for the last findings of other workers."""


def solve(problem: Problem, on_progress: SearchReport) -> Answer:
    """Answer a problem that is checked, through the passes and back.

    Raises:
        RayAddressError: There is no cluster at ``RAY_ADDRESS``, and there are to be other workers.
    """
    require_capacity(problem.placement)
    passed = border.lower(problem, on_progress)
    return passed.lift(Orchestrator(passed.problem, passed.on_progress).run())


def _help(problem: Problem, member: Member) -> Answer:
    """Search as a helper of a team."""
    return Orchestrator(problem, lambda _: None, member).run()


class Orchestrator:
    """Runs all procedures on a problem made plain by the passes; its findings are kept at any end."""

    def __init__(self, problem: Problem, on_progress: SearchReport, member: Member | None = None) -> None:
        """Prepare to search; as a helper, which is a `member` of a team, or alone or as the leader of others.

        Raises:
            SearchError: What to begin with is not for this placement, or a procedure is unknown.
        """
        self.problem = problem
        placement, wanted, number = problem.placement, problem.wanted, problem.num_micro_batches
        self.with_period = Objective.PERIOD in wanted
        position = wanted.index(Objective.PERIOD) if self.with_period else -1
        before, self.after = wanted[: max(position, 0)], wanted[position + 1 :]
        self.last = wanted[-1] if wanted[-1] in FINITE else Objective.MAKESPAN
        self.given, given = None, None
        if problem.begin_with is not None:
            self.given, given = starting_point_on(placement, number, problem.begin_with)
        procedures, self.uses = chosen(problem.strategies, problem.without)
        for procedure in procedures:
            if isinstance(procedure, Modes):
                procedure.search_orders = self._search_orders
        began, seconds = time.monotonic(), problem.seconds if member is None else member.left_s
        self.effort = Effort(began + seconds, limit=min(problem.work_limit or math.inf, LONGEST_S))
        self.member, self.progress = member, TeamProgress(on_progress)
        self.account = Account(SOLVERS[problem.solver](), problem.seed, began, self.effort, self.progress)
        known = Known(
            placement.per_micro_batch, problem.sizes, period_bound(placement), before, seed=problem.seed
        )
        self.period = PeriodSearch(known, self.account, procedures, self.uses)
        schedule = given if self.last in wanted else None
        self.whole = WholeSearch(placement, number, self.last, schedule, self.account, self.uses)

    def run(self) -> Answer:
        """Search until all is proved, no step is left, or a limit or Ctrl-C comes; return the answer."""
        if self.problem.workers == 1:
            return self._answer(self._run())
        with Leader(_help, self.problem.of_helpers, self.effort) as self.member:
            answer = self._answer(ending := self._run())
            if answer.ended_by is EndedBy.PROOF:
                return answer
            others = self.member.finish(ending, self._beyond_s)
            return best_of(self._answer(ending), others, self.problem.wanted)

    @property
    def _beyond_s(self) -> float:
        """Seconds beyond the time limit for searches that are nearly done."""
        return max(1.0, _SHARE_BEYOND * self.problem.seconds)

    def _run(self) -> Ending:
        period = self.period
        with self.effort.answered() as ending:
            if self.given is not None:
                period.take(GIVEN, [Start(self.given, GIVEN)])
            self._rounds()
        with contextlib.suppress(OutOfTimeError, KeyboardInterrupt):
            if period.known.best is None and period.known.failure.status is Status.UNKNOWN:
                period.begin()
        is_cut, best = ending.interrupted or ending.out_of_work or ending.out_of_time, period.known.best
        if is_cut and best is not None and self.last in self.problem.wanted:
            beyond_s = self._beyond_s if ending.out_of_time else 0.0
            with contextlib.suppress(OutOfTimeError, KeyboardInterrupt):  # a second one, which ends this too
                self.whole.take_hand_made(best, beyond_s)
        return ending

    def _rounds(self) -> None:
        """Search the period and the later objectives in rounds.

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
                if known.is_done and known.placement.is_plain:  # what is proved now is of that period
                    for objective in set(VALUE) - {Objective.PERIOD}:
                        self.account.proved.pop(objective, None)
                if whole.source is None or known.quality(best) < known.quality(whole.source):
                    whole.begin_with(best, self.with_period and best.micro_batches in known.sizes)
                if after and not whole.polished:
                    first = max(self.effort.share(end, _SHARE_OF_REPETENDS), min(end, _FIRST_REPETENDS))
                    whole.polish(after, first if self.last in after else end)
                if self.last in after:
                    whole.shorten(end)
            if (not self.with_period or known.is_done) and whole.is_done(after):
                return
            if self.member is not None and self._swap(self.member):
                return

    def _swap(self, member: Member) -> bool:
        """Exchange the answers of a round with the other workers; return whether one of them proved its own.

        Only helpers take over what others found.
        """
        spent = self.effort.spent
        others: list[Answer] = member.swap(self._answer(Ending()))
        self.effort.spent = spent  # or the leader's next round would end otherwise than alone
        if member.leads:
            self.progress.of_helpers(others, self.problem.wanted, self.account.began)
        else:
            for answer in others:
                self._take(answer)
        return any(answer.ended_by is EndedBy.PROOF for answer in others)

    def _take(self, answer: Answer) -> None:
        """Take over the repetend and the schedule of another worker, and its bound on all periods."""
        if answer.min_period is not None:
            self.period.take(GIVEN, [answer.min_period])
        if answer.schedule is None:
            return
        repetend, schedule = starting_point_on(self.problem.placement, self.problem.num_micro_batches, answer)
        if repetend is not None:
            self.period.take(GIVEN, [Start(repetend, GIVEN)])
        if schedule is not None and self.last in self.problem.wanted:
            self.whole.take(schedule)

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

    def _answer(self, ending: Ending) -> Answer:
        known, whole, problem = self.period.known, self.whole, self.problem
        best = known.best
        if best is not None and whole.source is not None:
            best = min(whole.source, best, key=known.quality)
        least = {
            objective: whole.bound
            if objective is self.last
            else goal.bound(problem.placement, problem.num_micro_batches)
            for objective, goal in FINITE.items()
        }
        repetend, schedule, span_bound = None, None, critical_path(known.placement)
        status, reason = known.failure
        proved = status is Status.INFEASIBLE
        if best is not None and best.repetend is not None:
            repetend = replace(best.repetend, placement=known.placement)  # a query may have had less memory
            schedule, span_bound, reason = whole.best(best), best.bound[Objective.SPAN], ""
            meets = {name for name, goal in FINITE.items() if goal.value(schedule) <= least[name]}
            is_least = known.rate <= known.bound if self.with_period else self.last in meets
            status = Status.OPTIMAL if is_least and not ending.interrupted else Status.FEASIBLE
            others = set(problem.wanted) - {Objective.PERIOD, *FINITE}  # more may tell of these
            is_open = (ending.out_of_time or ending.out_of_work) and others
            proved = status is Status.OPTIMAL and not is_open and set(problem.wanted) & {*FINITE} <= meets
        return Answer(
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
            strategies=tuple(work for work in self.account.work.values() if work.name in self.uses),
            work=self.effort.spent,
        )
