"""One objective after another made least by bisection, for one number of micro-batches per repetend."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from schedsearch.core.budget import Account
from schedsearch.core.known import OfSize
from schedsearch.core.objective import Objective
from schedsearch.repetend import Repetend
from schedsearch.solver.query import Answer

_FIRST_SLICE = (0.8, 2.0)
"""Work that a query gets at first, at least and at most; what stays open gets four times as much then."""

_FIRST_SHARE = 0.15
"""Share of what is left that it gets, within these."""

_EASY_INSTANCES = 48
"""Blocks times micro-batches up to which the bound of the period is asked for before anything longer.

With several micro-batches and more blocks, it is rarely answered in the time of a first slice.
"""

_UNKNOWN_IN_A_ROW = 4
"""Queries without an answer after which a bisection ends, until there is more work for each."""


@dataclass
class Bisection:
    """Makes objectives of the repetends of one number of micro-batches less, question by question.

    It yields what is known after each answer, so that a Ctrl-C loses none.

    Attributes:
        oracle: Solver to ask.
        given: Work that each question without an answer has had.
    """

    oracle: Account
    given: dict[tuple[Objective, int], float] = field(default_factory=dict)

    def minimise_in_turn(
        self, known: OfSize, objectives: Sequence[Objective], until: float
    ) -> Iterator[OfSize]:
        """Make one objective after another least, each within what those before it reached.

        What an earlier call reached is kept where no more is found now.

        Args:
            known: What is known before.
            objectives: These.
            until: Work after which to stop, as `Effort.spent` counts it.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        for position, objective in enumerate(objectives):
            kept = known
            for each in self.minimise(kept.without_limits(objectives[position:]), objective, until):
                is_kept = objective in kept.limit and kept.value(objective) <= each.value(objective)
                known = kept.with_proofs_of(each) if is_kept else each
                yield known

    def minimise(self, known: OfSize, objective: Objective, until: float) -> Iterator[OfSize]:
        """Bisect an objective between its bound and the best value, and keep what it reaches as a limit.

        A query that gets no answer splits what is open: above it there may be repetends to find, below it
        refutations. What stays open is asked again with more work.

        Args:
            known: What is known before.
            objective: What to make less.
            until: Work after which to stop, as `Effort.spent` counts it.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        work = self._first_slice(until)
        while known.is_open(objective) and (left := self._left(until)) > 0:
            queries = self.oracle.queries
            known, unknown = yield from self._descend(known, objective, work, until)
            high = known.value(objective) if unknown is None else unknown
            known = yield from self._ascend(known, objective, high, work, until)
            if self.oracle.queries == queries and work >= left:
                break  # all that is open was asked for longer than there is work left now
            work *= 4
        if known.repetend is not None:
            yield known.with_limit(objective)

    def look_at_bound(self, known: OfSize, until: float) -> Iterator[OfSize]:
        """Ask once, shortly, whether the period can meet its bound."""
        if known.is_open(Objective.PERIOD):
            bound, work = known.bound[Objective.PERIOD], self._first_slice(until)
            yield self._try(known, Objective.PERIOD, bound, work, until)[1]

    def sample(self, known: OfSize, span: int | None, seed: int, until: float) -> list[Repetend]:
        """Return some repetend that keeps the limits reached, and the one of its order's least period.

        Args:
            known: What is known of such repetends.
            span: Its longest span in ticks; None for any that the limits allow.
            seed: Other seeds make other samples.
            until: Work of which a quarter of what is left may be done.
        """
        query = known.query(Objective.PERIOD, known.value(Objective.PERIOD))
        if span is not None:
            query = replace(query, span=span if query.span is None else min(span, query.span))
        _, repetend = self.oracle(query, self._left(until) / 4, seed)
        found = [] if repetend is None else [repetend, repetend.with_min_period(query.period)]
        return [each for each in found if known.keeps_limits(each)]

    def _left(self, until: float) -> float:
        return until - self.oracle.effort.spent

    def _first_slice(self, until: float) -> float:
        return min(max(_FIRST_SLICE[0], self._left(until) * _FIRST_SHARE), _FIRST_SLICE[1])

    def _descend(
        self, known: OfSize, objective: Objective, work: float, until: float
    ) -> Generator[OfSize, None, tuple[OfSize, int | None]]:
        """Bisect for a lesser value as if what gets no answer were refuted; return the least such value."""
        low, unknown, in_a_row = known.bound[objective], None, 0
        instances = known.micro_batches * len(known.placement.blocks)
        is_easy = known.micro_batches == 1 or instances < _EASY_INSTANCES
        from_below = objective is Objective.LATENCY or (objective is Objective.PERIOD and is_easy)
        candidate = low if from_below else (low + known.value(objective)) // 2
        while low < known.value(objective) and self._left(until) > 0 and in_a_row < _UNKNOWN_IN_A_ROW:
            answer, known = self._try(known, objective, candidate, work, until)
            yield known
            in_a_row = in_a_row + 1 if answer is Answer.UNKNOWN else 0
            if answer is Answer.UNKNOWN:
                unknown = candidate if unknown is None else min(unknown, candidate)
            if candidate < known.value(objective):
                low = candidate + 1
            candidate = (low + known.value(objective)) // 2
        return known, unknown

    def _ascend(
        self, known: OfSize, objective: Objective, high: int, work: float, until: float
    ) -> Generator[OfSize, None, OfSize]:
        """Bisect for a greater bound below a value that got no answer."""
        while (bound := known.bound[objective]) < min(high, known.value(objective)):
            if self._left(until) <= 0 or self.given.get((objective, bound), 0.0) >= work:
                break  # what is above the bound is harder to refute
            candidate = (bound + high) // 2 if known.is_monotone(objective) else bound
            answer, known = self._try(known, objective, candidate, work, until)
            yield known
            if answer is not Answer.NO:
                high = candidate
        return known

    def _try(
        self, known: OfSize, objective: Objective, candidate: int, work: float, until: float
    ) -> tuple[Answer, OfSize]:
        """Ask for a value; return the answer, and what is known with the repetend or the proof."""
        if objective is Objective.PERIOD and candidate in known.refuted:
            return Answer.NO, known
        given = min(work, self._left(until))
        if self.given.get((objective, candidate), 0.0) >= given:
            return Answer.UNKNOWN, known
        began = time.monotonic()
        answer, repetend = self.oracle(known.query(objective, candidate), given)
        known = replace(known, seconds=known.seconds + time.monotonic() - began)
        if answer is Answer.UNKNOWN:
            self.given[objective, candidate] = given
        if repetend is not None:
            known = known.with_repetend(objective, candidate, repetend)
        elif answer is Answer.NO:
            known = known.with_refuted(objective, candidate)
        self.oracle.report(known, objective, "query")
        return answer, known
