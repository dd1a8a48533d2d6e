"""One objective after another made least by bisection, for one number of micro-batches per repetend."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from schedsearch.bounds.load_and_path import least_period
from schedsearch.modulo.known import Known
from schedsearch.modulo.result import Objective, Progress
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort
from schedsearch.solver.query import Answer, Query, Solver
from schedsearch.starts.serial import serial_period, serial_repetend

_LEAST_WORK = 0.01
"""Work of a query, in units of about a second."""

_FIRST_SLICE = (0.8, 2.0)
"""Work that a query gets at first, at least and at most; what stays open gets four times as much then."""

_FIRST_SHARE = 0.15
"""Share of what is left that it gets, within these."""

_EASY_INSTANCES = 48
"""Blocks times micro-batches up to which the bound of the period is asked for before anything longer.

Of several micro-batches and more blocks, it is rarely answered in the time of a first slice.
"""

_UNKNOWN_IN_A_ROW = 4
"""Queries without an answer after which a bisection ends, until there is more work for each."""


@dataclass
class Asking:
    """Puts questions to a solver, counts them, and tells how far it is.

    Attributes:
        solver: What decides.
        seed: Of the solver's random choices.
        began: When the search did, in seconds of `time.monotonic`.
        effort: What was done, and when to stop.
        on_progress: Told after each query.
        queries: How many so far.
        found_by: Of each objective the least value reported, per micro-batch, and what found it.
    """

    solver: Solver
    seed: int
    began: float
    effort: Effort
    on_progress: Callable[[Progress], None]
    queries: int = 0
    found_by: dict[Objective, tuple[Fraction, str]] = field(default_factory=dict)

    def __call__(self, query: Query, work: float, seed: int = 0) -> tuple[Answer, Repetend | None]:
        """Ask once.

        Raises:
            OutOfTimeError: There is no time for it.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        left_s = self.effort.require_s()
        self.queries += 1
        return self.solver(
            query,
            timeout_s=left_s,
            seed=self.seed + seed,
            work=self.effort.at_most(max(work, _LEAST_WORK)),
            spend=self.effort.spend,
        )

    def report(self, phase: Objective, best: int, bound: int, micro_batches: int, move: str) -> None:
        """Tell the caller how far the search is, after a move that may have found something better."""
        elapsed_s = time.monotonic() - self.began
        value = Fraction(best, micro_batches if phase is Objective.PERIOD else 1)
        if phase not in self.found_by or value < self.found_by[phase][0]:
            self.found_by[phase] = value, move
        found_by = self.found_by[phase][1]
        self.on_progress(Progress(phase.value, best, bound, self.queries, elapsed_s, micro_batches, found_by))


@dataclass
class ModuloSearch:
    """The search for one number of micro-batches per repetend; Ctrl-C leaves what is known by then.

    Attributes:
        known: What is known so far.
        asking: Solvers to call, in order.
        until: Work after which to stop, as `Effort.spent` counts it.
        seconds: Time spent on the period.
        given: Work that each question without an answer has had.
    """

    known: Known
    asking: Asking
    until: float
    seconds: float = 0.0
    given: dict[tuple[Objective, int], float] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Work that is left."""
        return self.until - self.asking.effort.spent

    @property
    def _first_slice(self) -> float:
        return min(max(_FIRST_SLICE[0], self.left * _FIRST_SHARE), _FIRST_SLICE[1])

    def begin(self, start: Repetend | None = None) -> Answer:
        """Find a first repetend: one that is given, one block after another, or what the solver finds."""
        placement, micro_batches = self.known.placement, self.known.micro_batches
        repetend = serial_repetend(placement) if start is None else start
        answer = Answer.YES
        if repetend is None:
            answer, repetend = self.asking(Query(placement, 1, serial_period(placement)), self.left)
        if repetend is not None:
            repetend = repetend.with_least_period(least_period(placement, 1)).repeated(micro_batches)
        self.known = replace(self.known, repetend=repetend)
        return answer

    def minimise_in_turn(self, objectives: Sequence[Objective]) -> None:
        """Make one objective after another least, each within what those before it reached.

        What an earlier call reached is kept where no more is found now.
        """
        for position, objective in enumerate(objectives):
            kept = self.known
            self.known = kept.without_limits(objectives[position:])
            try:
                self.minimise(objective)
            finally:
                if objective in kept.limit and kept.value(objective) <= self.known.value(objective):
                    self.known = kept.with_proofs_of(self.known)

    def minimise(self, objective: Objective) -> None:
        """Bisect an objective between its bound and the best value, and keep what it reaches as a limit.

        A query that gets no answer splits what is open: above it there may be repetends to find, below it
        refutations. What stays open is asked again with more work.
        """
        work = self._first_slice
        while self.known.is_open(objective) and self.left > 0:
            queries, can_be_longer = self.asking.queries, work < self.left
            unknown = self._descend(objective, work)
            self._ascend(objective, self.known.value(objective) if unknown is None else unknown, work)
            if self.asking.queries == queries and not can_be_longer:
                break  # all that is open was asked for longer than there is work left now
            work *= 4
        if self.known.repetend is not None:
            self.known = self.known.with_limit(objective)

    def look_at_bound(self) -> bool:
        """Ask once, shortly, whether the period can meet its bound; return whether it does."""
        if self.known.is_open(Objective.PERIOD):
            self._try(Objective.PERIOD, self.known.bound[Objective.PERIOD], self._first_slice)
        return not self.known.is_open(Objective.PERIOD)

    def _descend(self, objective: Objective, work: float) -> int | None:
        """Bisect for a lesser value as if what gets no answer were refuted; return the least such value."""
        low, unknown, in_a_row = self.known.bound[objective], None, 0
        instances = self.known.micro_batches * len(self.known.placement.blocks)
        is_easy = self.known.micro_batches == 1 or instances < _EASY_INSTANCES
        from_below = objective is Objective.LATENCY or (objective is Objective.PERIOD and is_easy)
        candidate = low if from_below else (low + self.known.value(objective)) // 2
        while low < self.known.value(objective) and self.left > 0 and in_a_row < _UNKNOWN_IN_A_ROW:
            in_a_row += 1
            if self._try(objective, candidate, work) is Answer.UNKNOWN:
                unknown = candidate if unknown is None else min(unknown, candidate)
            else:
                in_a_row = 0
            if candidate < self.known.value(objective):
                low = candidate + 1
            candidate = (low + self.known.value(objective)) // 2
        return unknown

    def _ascend(self, objective: Objective, unknown: int, work: float) -> None:
        """Bisect for a greater bound below a value that got no answer."""
        high = unknown
        while (bound := self.known.bound[objective]) < min(high, self.known.value(objective)):
            if self.left <= 0 or self.given.get((objective, bound), 0.0) >= work:
                return  # what is above the bound is harder to refute
            candidate = (bound + high) // 2 if self.known.is_monotone(objective) else bound
            if self._try(objective, candidate, work) is not Answer.NO:
                high = candidate

    def _try(self, objective: Objective, candidate: int, work: float) -> Answer:
        """Ask for a value, and keep the repetend or the proof."""
        if objective is Objective.PERIOD and candidate in self.known.refuted:
            return Answer.NO
        given = min(work, self.left)
        if self.given.get((objective, candidate), 0.0) >= given:
            return Answer.UNKNOWN
        answer, repetend = self.asking(self.known.query(objective, candidate), given)
        if answer is Answer.UNKNOWN:
            self.given[objective, candidate] = given
        if repetend is not None:
            self.known = self.known.with_repetend(objective, candidate, repetend)
        elif answer is Answer.NO:
            self.known = self.known.with_refuted(objective, candidate)
        self.report(objective, "query")
        return answer

    def report(self, objective: Objective, move: str) -> None:
        """Tell the caller how far an objective is after a move."""
        known = self.known
        best, bound = known.value(objective), known.bound[objective]
        self.asking.report(objective, best, bound, known.micro_batches, move)

    def sample(self, span: int | None, seed: int) -> list[Repetend]:
        """Return some repetend that keeps the limits reached, and the one of its order's least period.

        Args:
            span: Its longest span in ticks; None for any that the limits allow.
            seed: Other seeds make other samples.
        """
        query = self.known.query(Objective.PERIOD, self.known.value(Objective.PERIOD))
        if span is not None:
            query = replace(query, span=span if query.span is None else min(span, query.span))
        _, repetend = self.asking(query, self.left / 4, seed)
        found = [] if repetend is None else [repetend, repetend.with_least_period(query.period)]
        return [each for each in found if self.known.keeps_limits(each)]
