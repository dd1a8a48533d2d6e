"""Questions about all blocks at once, bisected objective by objective, and states: repetends and proofs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from placements import Placement
from schedsearch.core.answer import Status
from schedsearch.core.budget import Budget
from schedsearch.core.known import Finding, Known, NoRepetend, OfSize, Start
from schedsearch.core.objective import Objective
from schedsearch.proof.load_and_path import min_period
from schedsearch.solver.effort import OutOfTimeError
from schedsearch.solver.query import Answer, Query
from schedsearch.starts.serial import serial_period, serial_repetend
from schedsearch.state_space import min_period as min_period_of_states
from schedsearch.state_space.min_cycle_ratio import MAX_STATES

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

_WORK_OF_REASON = 8.0
"""Work of each question on how much memory would do, in units of about a second."""

_WORK_OF_STATE = 4e-6
"""Units of work to look at a state."""

FIRST_REPETEND = "one block after another"
"""Name of what finds the first repetend, which no search is without."""


def first_repetend(known: Known, budget: Budget) -> Iterator[Finding]:
    """Find some repetend of one micro-batch: one block after another, or what the solver finds."""
    placement, answer = known.placement, Answer.YES
    if (repetend := serial_repetend(placement)) is None:
        answer, repetend = budget.ask(Query(placement, 1, serial_period(placement)), budget.left)
    if repetend is not None:
        yield Start(repetend.with_min_period(min_period(placement, 1)), FIRST_REPETEND)
    elif answer is Answer.NO:
        yield NoRepetend(Status.INFEASIBLE, "")  # should the reason not be found in time
        yield NoRepetend(Status.INFEASIBLE, _why_infeasible(placement, budget))


@dataclass
class Bisection:
    """Makes objectives of the repetends of one number of micro-batches less, question by question.

    It yields what is known after each answer, so that a limit or a Ctrl-C loses none.

    Attributes:
        given: Work that each question without an answer has had.
    """

    given: dict[tuple[Objective, int], float] = field(default_factory=dict)

    def minimise_in_turn(
        self, known: OfSize, objectives: Sequence[Objective], budget: Budget
    ) -> Iterator[OfSize]:
        """Make one objective after another least, each within what those before it reached.

        What an earlier call reached is kept where no more is found now.
        """
        for position, objective in enumerate(objectives):
            kept = known
            for each in self.minimise(kept.without_limits(objectives[position:]), objective, budget):
                is_kept = objective in kept.limit and kept.value(objective) <= each.value(objective)
                known = kept.with_proofs_of(each) if is_kept else each
                yield known

    def minimise(self, known: OfSize, objective: Objective, budget: Budget) -> Iterator[OfSize]:
        """Bisect an objective between its bound and the best value, and keep what it reaches as a limit.

        A query that gets no answer splits what is open: above it there may be repetends to find, below it
        refutations. What stays open is asked again with more work.
        """
        work = _first_slice(budget)
        while known.is_open(objective) and (left := budget.left) > 0:
            queries = budget.account.queries
            known, unknown = yield from self._descend(known, objective, work, budget)
            high = known.value(objective) if unknown is None else unknown
            known = yield from self._ascend(known, objective, high, work, budget)
            if budget.account.queries == queries and work >= left:
                break  # all that is open was asked for longer than there is work left now
            work *= 4
        if known.repetend is not None:
            yield known.with_limit(objective)

    def look_at_bound(self, known: OfSize, budget: Budget) -> Iterator[OfSize]:
        """Ask once, shortly, whether the period can meet its bound."""
        if known.is_open(Objective.PERIOD):
            bound = known.bound[Objective.PERIOD]
            yield self._try(known, Objective.PERIOD, bound, _first_slice(budget), budget)[1]

    def _descend(
        self, known: OfSize, objective: Objective, work: float, budget: Budget
    ) -> Generator[OfSize, None, tuple[OfSize, int | None]]:
        """Bisect for a lesser value as if what gets no answer were refuted; return the least such value."""
        low, unknown, in_a_row = known.bound[objective], None, 0
        instances = known.micro_batches * len(known.placement.blocks)
        is_easy = known.micro_batches == 1 or instances < _EASY_INSTANCES
        from_below = objective is Objective.LATENCY or (objective is Objective.PERIOD and is_easy)
        candidate = low if from_below else (low + known.value(objective)) // 2
        while low < known.value(objective) and budget.left > 0 and in_a_row < _UNKNOWN_IN_A_ROW:
            answer, known = self._try(known, objective, candidate, work, budget)
            yield known
            in_a_row = in_a_row + 1 if answer is Answer.UNKNOWN else 0
            if answer is Answer.UNKNOWN:
                unknown = candidate if unknown is None else min(unknown, candidate)
            if candidate < known.value(objective):
                low = candidate + 1
            candidate = (low + known.value(objective)) // 2
        return known, unknown

    def _ascend(
        self, known: OfSize, objective: Objective, high: int, work: float, budget: Budget
    ) -> Generator[OfSize, None, OfSize]:
        """Bisect for a greater bound below a value that got no answer."""
        while (bound := known.bound[objective]) < min(high, known.value(objective)):
            if budget.is_over or self.given.get((objective, bound), 0.0) >= work:
                break  # what is above the bound is harder to refute
            candidate = (bound + high) // 2 if known.is_monotone(objective) else bound
            answer, known = self._try(known, objective, candidate, work, budget)
            yield known
            if answer is not Answer.NO:
                high = candidate
        return known

    def _try(
        self, known: OfSize, objective: Objective, candidate: int, work: float, budget: Budget
    ) -> tuple[Answer, OfSize]:
        """Ask for a value; return the answer, and what is known with the repetend or the proof."""
        if objective is Objective.PERIOD and candidate in known.refuted:
            return Answer.NO, known
        given = min(work, budget.left)
        if self.given.get((objective, candidate), 0.0) >= given:
            return Answer.UNKNOWN, known
        began = time.monotonic()
        answer, repetend = budget.ask(known.query(objective, candidate), given)
        known = replace(known, seconds=known.seconds + time.monotonic() - began)
        if answer is Answer.UNKNOWN:
            self.given[objective, candidate] = given
        if repetend is not None:
            known = known.with_repetend(objective, candidate, repetend)
        elif answer is Answer.NO:
            known = known.with_refuted(objective, candidate)
        budget.account.report(known, objective, "query")
        return answer, known


def _first_slice(budget: Budget) -> float:
    return min(max(_FIRST_SLICE[0], budget.left * _FIRST_SHARE), _FIRST_SLICE[1])


@dataclass
class Queries:
    """Bisects the period by questions about all blocks at once, which find and refute periods.

    Attributes:
        share_of_one: Share of the work that one micro-batch per repetend gets where more may follow.
    """

    name: ClassVar[str] = "queries"
    share_of_one: float = 0.6
    _of_size: defaultdict[int, Bisection] = field(
        default_factory=lambda: defaultdict(Bisection), init=False, repr=False
    )

    def of_bound(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Ask shortly whether the period of one micro-batch can meet its bound."""
        return self._of_size[1].look_at_bound(known.known_of(1), self._for_one(known, budget))

    def of_one(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Make the period of one micro-batch less, after the objectives before it.

        These are of the number of micro-batches that is asked for, where that is one number alone.
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
        """Make the period of more micro-batches less, where that beats the best."""
        larger = [size for size in known.sizes if size > 1]
        for i, size in enumerate(larger):
            if known.best is None or known.is_proved or budget.is_over:
                return
            part = budget.share(1 / (len(larger) - i))
            for found in self._of_size[size].minimise(known.to_beat(size), Objective.PERIOD, part):
                known = known.taking(found)
                yield found

    def _for_one(self, known: Known, budget: Budget) -> Budget:
        return budget.share(1.0 if known.sizes == (1,) else self.share_of_one)


@dataclass
class States:
    """Raises the bound to what the state-space search proves, where there are few enough states.

    Attributes:
        share: Share of the work left that it gets.
    """

    name: ClassVar[str] = "states"
    share: float = 0.2
    _looked_at: int = field(default=0, init=False, repr=False)

    def run(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Yield a greater bound, if there is one."""
        assert known.best is not None
        placement, earlier = known.placement, known.min_period
        is_known = earlier is not None and len(earlier.devices) == placement.num_devices
        most = min(MAX_STATES, int(budget.left * self.share / _WORK_OF_STATE))
        if is_known or not placement.is_plain or most <= self._looked_at:
            return
        found = min_period_of_states(
            placement,
            known=known.best.period_per_micro_batch,
            time_limit_s=budget.effort.require_s(),
            max_states=most,
        )
        self._looked_at = most
        budget.effort.spend(most * _WORK_OF_STATE)
        if found is not None and (earlier is None or found.ticks >= earlier.ticks):
            yield found


def _why_infeasible(placement: Placement, budget: Budget) -> str:
    """Return in one line why a placement with capacities has no schedule."""
    try:
        needs = list(_needs(placement, budget))
    except OutOfTimeError:
        needs = ["raise search.memory"]
    return " ".join(["one micro-batch alone does not fit the memory in any order;", *needs])


def _needs(placement: Placement, budget: Budget) -> Iterator[str]:
    """Yield what would make it fit: on one device, where that is enough, or else on all."""
    memory = placement.memory
    assert memory is not None, "without capacities everything fits"
    needed = [
        sum(max(block.memory_on(device), 0) + block.transient for block in placement.on(device))
        for device in range(len(memory))
    ]

    def min_more(high: int, devices: Sequence[int]) -> int | None:
        """Return how much more memory, at most `high`, on devices marked 1 lets one micro-batch fit."""
        low = 0

        def fits(more: int) -> bool:
            capacity = [each + more * mark for each, mark in zip(memory, devices, strict=True)]
            query = Query(placement.with_memory(capacity), 1, serial_period(placement))
            return budget.ask(query, _WORK_OF_REASON)[0] is Answer.YES

        if not fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    for device, capacity in enumerate(memory):
        more = min_more(needed[device], [int(other == device) for other in range(len(memory))])
        if more is not None:
            instead = f"{capacity + more} instead of {capacity}"
            yield f"it would with {instead} on device {device}; raise search.memory"
            return
    more = min_more(max(needed), [1] * len(memory))
    yield (f"it would with {more} more on each device; " if more else "") + "raise search.memory"
