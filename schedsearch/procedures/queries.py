"""Questions about all blocks at once, bisected objective by objective, and states: repetends and proofs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from schedsearch.core.answer import Status
from schedsearch.core.budget import Budget
from schedsearch.core.known import Finding, Known, NoRepetend, OfSize, Start
from schedsearch.core.objective import Objective
from schedsearch.proof.load_and_path import min_period
from schedsearch.solver.query import Query, Verdict
from schedsearch.starts.serial import serial_period, serial_repetend
from schedsearch.state_space import min_period as min_period_of_states
from schedsearch.state_space.min_cycle_ratio import MAX_STATES

_FIRST_SLICE = (0.8, 2.0)
"""First work of a query, at least and at most; an open query gets four times as much in its next try."""

_FIRST_SHARE = 0.15
"""First work of a query as a share of the work left, within these limits."""

_EASY_INSTANCES = 48
"""Blocks times micro-batches up to which the period's bound is asked for before any longer period.

With several micro-batches and more blocks, it is rarely answered in the time of a first slice.
"""

_UNKNOWN_IN_A_ROW = 4
"""Queries without an answer after which a bisection ends, until there is more work for each."""

_WORK_OF_STATE = 4e-6
"""Units of work per state."""

FIRST_REPETEND = "one block after another"
"""Name of the maker of the first repetend, which every search has."""

DOES_NOT_FIT = "one micro-batch alone does not fit the memory in any order; raise search.memory"
"""Reason why a placement with capacities has no schedule."""


def first_repetend(known: Known, budget: Budget) -> Iterator[Finding]:
    """Yield a first repetend of one micro-batch: one block after another, or else by the solver."""
    placement, answer = known.placement, Verdict.YES
    if (repetend := serial_repetend(placement)) is None:
        answer, repetend = budget.ask(Query(placement, 1, serial_period(placement)), budget.left)
    if repetend is not None:
        yield Start(repetend.with_min_period(min_period(placement, 1)), FIRST_REPETEND)
    elif answer is Verdict.NO:
        yield NoRepetend(Status.INFEASIBLE, DOES_NOT_FIT)


@dataclass
class Bisection:
    """Makes objectives of repetends of one size less, query by query.

    It yields the record after each answer, so that a limit or a Ctrl-C loses no answer.

    Attributes:
        given: Work that each question without an answer has had.
    """

    given: dict[tuple[Objective, int], float] = field(default_factory=dict)

    def minimise_in_turn(
        self, known: OfSize, objectives: Sequence[Objective], budget: Budget
    ) -> Iterator[OfSize]:
        """Minimise one objective after another; each reached value is a limit for the later ones.

        The value of an earlier call is kept unless a better one is found now.
        """
        for position, objective in enumerate(objectives):
            kept = known
            for record in self.minimise(kept.without_limits(objectives[position:]), objective, budget):
                is_kept = objective in kept.limit and kept.value(objective) <= record.value(objective)
                known = kept.with_proofs_of(record) if is_kept else record
                yield known

    def minimise(self, known: OfSize, objective: Objective, budget: Budget) -> Iterator[OfSize]:
        """Bisect an objective between its bound and its best value; the value reached becomes a limit.

        First it looks for a smaller value, as if values without an answer were refuted; then for a greater
        bound below the least value without an answer. Open values are asked again with four times the work.
        """
        instances = known.micro_batches * len(known.placement.blocks)
        is_easy = known.micro_batches == 1 or instances < _EASY_INSTANCES
        from_below = objective is Objective.LATENCY or (objective is Objective.PERIOD and is_easy)
        work = first_slice(budget)
        while known.is_open(objective) and (left := budget.left) > 0:
            queries, low, in_a_row = budget.account.queries, known.bound[objective], 0
            unknown: int | None = None
            candidate = low if from_below else (low + known.value(objective)) // 2
            while low < known.value(objective) and budget.left > 0 and in_a_row < _UNKNOWN_IN_A_ROW:
                answer, known = self.ask(known, objective, candidate, work, budget)
                yield known
                in_a_row = in_a_row + 1 if answer is Verdict.UNKNOWN else 0
                if answer is Verdict.UNKNOWN:
                    unknown = candidate if unknown is None else min(unknown, candidate)
                if candidate < known.value(objective):
                    low = candidate + 1
                candidate = (low + known.value(objective)) // 2
            high = known.value(objective) if unknown is None else unknown
            while (bound := known.bound[objective]) < min(high, known.value(objective)):
                if budget.is_over or self.given.get((objective, bound), 0.0) >= work:
                    break  # what is above the bound is harder to refute
                candidate = (bound + high) // 2 if known.is_monotone(objective) else bound
                answer, known = self.ask(known, objective, candidate, work, budget)
                yield known
                if answer is not Verdict.NO:
                    high = candidate
            if budget.account.queries == queries and work >= left:
                break  # all that is open was asked for longer than there is work left now
            work *= 4
        if known.repetend is not None:
            yield known.with_limit(objective)

    def ask(
        self, known: OfSize, objective: Objective, candidate: int, work: float, budget: Budget
    ) -> tuple[Verdict, OfSize]:
        """Ask for an objective's value; return the answer, and the record with the repetend or proof."""
        if objective is Objective.PERIOD and candidate in known.refuted:
            return Verdict.NO, known
        given = min(work, budget.left)
        if self.given.get((objective, candidate), 0.0) >= given:
            return Verdict.UNKNOWN, known
        began = time.monotonic()
        answer, repetend = budget.ask(known.query(objective, candidate), given)
        known = replace(known, seconds=known.seconds + time.monotonic() - began)
        if answer is Verdict.UNKNOWN:
            self.given[objective, candidate] = given
        if repetend is not None:
            known = known.with_repetend(objective, candidate, repetend)
        elif answer is Verdict.NO:
            known = known.with_refuted(objective, candidate)
        budget.account.report(known, objective, "query")
        return answer, known


def first_slice(budget: Budget) -> float:
    """Return the work of the first query."""
    return min(max(_FIRST_SLICE[0], budget.left * _FIRST_SHARE), _FIRST_SLICE[1])


@dataclass
class Queries:
    """Bisects the period by queries about all blocks at once, which find and refute periods.

    Attributes:
        share_of_one: Share of the work that one micro-batch per repetend gets where more may follow.
    """

    name: ClassVar[str] = "queries"
    share_of_one: float = 0.6
    _of_size: defaultdict[int, Bisection] = field(
        default_factory=lambda: defaultdict(Bisection), init=False, repr=False
    )

    def of_bound(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Ask once, shortly, whether the period of one micro-batch can meet its bound."""
        of_one, part = known.known_of(1), self._for_one(known, budget)
        if of_one.is_open(Objective.PERIOD):
            bound = of_one.bound[Objective.PERIOD]
            yield self._of_size[1].ask(of_one, Objective.PERIOD, bound, first_slice(part), part)[1]

    def of_one(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Minimise the period of one-micro-batch repetends, after the objectives before the period.

        With such objectives, repetends have the number of micro-batches asked for instead.
        """
        size, begun = 1, known.to_beat(1)
        if known.before:
            size = known.sizes[0]
            begun = known.known_of(size)
            if begun.repetend is None and known.best is not None:
                begun = known.best
        objectives = *known.before, Objective.PERIOD
        return self._of_size[size].minimise_in_turn(begun, objectives, self._for_one(known, budget))

    def of_more(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Minimise the period of repetends with more micro-batches, as far as they beat the best."""
        larger = [size for size in known.sizes if size > 1]
        for i, size in enumerate(larger):
            if known.best is None or known.is_proved or budget.is_over:
                return
            part = budget.share(1 / (len(larger) - i))
            for record in self._of_size[size].minimise(known.to_beat(size), Objective.PERIOD, part):
                known = known.taking(record)
                yield record

    def _for_one(self, known: Known, budget: Budget) -> Budget:
        return budget.share(1.0 if known.sizes == (1,) else self.share_of_one)


@dataclass
class States:
    """Raises the bound on the period by the state-space search, if the states are few enough.

    Attributes:
        share: Share of the work left that it gets.
    """

    name: ClassVar[str] = "states"
    share: float = 0.2
    _looked_at: int = field(default=0, init=False, repr=False)

    def run(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Yield the bound of the state-space search, if it ends and is no less than before."""
        assert known.best is not None
        placement, earlier = known.placement, known.min_period
        is_known = earlier is not None and len(earlier.devices) == placement.num_devices
        most = min(MAX_STATES, int(budget.left * self.share / _WORK_OF_STATE))
        if is_known or not placement.is_plain or most <= self._looked_at:
            return
        bound = min_period_of_states(
            placement,
            known=known.best.period_per_micro_batch,
            time_limit_s=budget.effort.require_s(),
            max_states=most,
        )
        self._looked_at = most
        budget.effort.spend(most * _WORK_OF_STATE)
        if bound is not None and (earlier is None or bound.ticks >= earlier.ticks):
            yield bound
