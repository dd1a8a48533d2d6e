"""Several schedules of one period to choose among: samples of the repetend, hand-made ones, and the search's.

A search ends with one schedule where many are as good: repetends of the least period differ in span and in
the order of their blocks, and each may be begun and ended otherwise. What else is to be least, such as the
energy at some deadline, is for `schedsearch.energy.orders.ordering` to judge; this module does not know it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placements import Placement
from schedsearch.baselines import HAND_MADE, applicable
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.core.answer import SearchProgress, SearchResult
from schedsearch.core.budget import Account
from schedsearch.core.known import OfSize
from schedsearch.core.objective import VALUE, Objective
from schedsearch.core.problem import OBJECTIVES
from schedsearch.metrics import peak_memory
from schedsearch.procedures.neighbourhoods import neighbourhood
from schedsearch.procedures.neighbourhoods.improvement import improve
from schedsearch.procedures.queries import Bisection
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.portfolio import SOLVERS
from schedsearch.validate import InvalidScheduleError, validate

_SAMPLERS = ("z3", "cpsat")
"""Solvers that sample by turns: for one question each has answers of its own, and few."""

_PATIENCE = 30
"""Samples in a row that may bring nothing new before the search for more ends."""

_SHARE_TO_SHORTEN = 0.05
"""Share of the work left that is spent on shortening one sample that is longer than the search's schedule."""


@dataclass(frozen=True)
class ScheduleCandidate:
    """A schedule, and where it comes from.

    Attributes:
        schedule: Valid, under the memory that the search was held to.
        repetend: Its steady state, or that of the search where it repeats nothing or is made by hand.
        origin: ``search``, ``repetend`` (the search's, unrolled), ``sample``, ``shortened`` (a sample),
            ``gathered`` (the one before, with its shared blocks at the ends), or the name of a hand-made
            schedule.
    """

    schedule: Schedule
    repetend: Repetend | None
    origin: str


def orders_of(schedule: Schedule) -> tuple[tuple[object, ...], ...]:
    """Return the order of the blocks on every stream, and their modes: all that clocks do not change."""
    return (*schedule.lane_orders, schedule.chosen)


def schedules_of_equal_period(
    placement: Placement,
    num_micro_batches: int,
    result: SearchResult,
    *,
    limit: Mapping[Objective, int] | None = None,
    count: int = 16,
    work_limit: float = 2.0,
    seed: int = 0,
) -> Iterator[ScheduleCandidate]:
    """Yield different schedules of the period that a search found, its own first.

    Then come its repetend unrolled, the hand-made schedules that fit the placement and its memory, and
    samples of repetends of that period with spans from the least on (see `Bisection.sample`), unrolled;
    one that is longer than the search's schedule is also shortened. Each but the hand-made ones is there
    again with blocks of several devices, such as embeddings, at its ends (see `neighbourhood.gathered`). No
    two have the same orders and modes. Their makespans may differ; hand-made ones may have a period of their
    own. Of a placement with modes or streams there are the search's and those made by hand alone.

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Micro-batches of every schedule.
        result: Result of the search, with a schedule.
        limit: What every candidate must keep, see `reached`; by default what the search's default objectives
            reached.
        count: Most schedules.
        work_limit: Units of work, of about a second, after which no more are sought.
        seed: Seed of the samples; other seeds make others.
    """
    assert result.schedule is not None, "a search without a schedule has nothing to vary"
    effort = Effort(limit=work_limit)
    limit = reached(result, OBJECTIVES) if limit is None else limit
    known: set[tuple[tuple[object, ...], ...]] = set()
    candidates = _Candidates(placement, num_micro_batches, result, limit, effort, seed)
    for candidate in candidates.all():
        if candidate is not None:
            orders = orders_of(candidate.schedule)
            if orders not in known and keeps_memory(candidate.schedule, limit):
                known.add(orders)
                yield candidate
        if len(known) >= count or (known and effort.is_over):
            return


def reached(result: SearchResult, objectives: Sequence[str]) -> dict[Objective, int]:
    """Return what a search's repetend reaches of every objective but the makespan."""
    if result.repetend is None:
        return {}
    wanted = (Objective(name) for name in objectives)
    return {each: VALUE[each](result.repetend) for each in wanted if each is not Objective.MAKESPAN}


def keeps_memory(schedule: Schedule, limit: Mapping[Objective, int]) -> bool:
    """Return whether no device holds more than a search's repetend does, if that was an objective."""
    return Objective.MEMORY not in limit or int(peak_memory(schedule).max()) <= limit[Objective.MEMORY]


def may_reorder(limit: Mapping[Objective, int]) -> bool:
    """Return whether blocks may be ordered otherwise than in a repetend; a latency would not survive it."""
    return Objective.LATENCY not in limit


@dataclass(frozen=True)
class _Candidates:
    """Yields candidates, some of them equal; see `schedules_of_equal_period` for the attributes."""

    placement: Placement
    number: int
    result: SearchResult
    limit: Mapping[Objective, int]
    effort: Effort
    seed: int

    def all(self) -> Iterator[ScheduleCandidate | None]:
        """Yield candidates, and None for a sample that brought none."""
        schedule, repetend = self.result.schedule, self.result.repetend
        assert schedule is not None
        yield from self._with_gathered(ScheduleCandidate(validate(schedule), repetend, "search"))
        if repetend is not None:
            yield from self._with_gathered(ScheduleCandidate(self._unrolled(repetend), repetend, "repetend"))
        if may_reorder(self.limit):
            for name, hand_made in self._by_hand():
                yield ScheduleCandidate(hand_made, repetend, name)
        if repetend is not None and self.placement.is_plain:
            yield from self._samples(replace(repetend, placement=self.placement.per_micro_batch))

    def _by_hand(self) -> Iterator[tuple[str, Schedule]]:
        """Yield schedules made by hand, with the modes that people choose where there are some."""
        each = self.placement.per_micro_batch
        if self.placement.is_plain:
            yield from applicable(self.placement, self.number).items()
            return
        for name, made in with_chosen_modes(each, self.number, HAND_MADE):
            yield name, validate(with_optimizer(self.placement, made))

    def _samples(self, best: Repetend) -> Iterator[ScheduleCandidate | None]:
        """Yield samples of the repetend, unrolled and shortened, until nothing new comes."""
        known = OfSize.without_search(best.placement, best.micro_batches)
        known = replace(known, repetend=best, limit=self.limit)
        began = time.monotonic()
        samplers = [
            Bisection(Account(SOLVERS[name](), self.seed, began, self.effort, _quietly)) for name in _SAMPLERS
        ]
        period, span = best.period, self.result.span_bound
        spans = [span, None, span + period // 2, span + period, span + 2 * period]
        seen = {best.unroll(self.number).blocks}
        in_vain = 0
        for i in itertools.count():
            most = spans[i % len(spans)]
            try:
                with INTERRUPTS.watched():  # Ctrl-C is put off until the solver can be left
                    sampled = samplers[i % len(samplers)].sample(known, most, i, self.effort.limit)
            except OutOfTimeError:
                return
            if not sampled and most is not None and most < best.span:  # perhaps none has so short a span
                spans.remove(most)
            fresh = []
            for repetend in sampled:
                if repetend.period == period and repetend.unroll(self.number).blocks not in seen:
                    fresh.append(replace(repetend, placement=best.placement))
            seen |= {each.unroll(self.number).blocks for each in fresh}
            in_vain = 0 if fresh else in_vain + 1
            for repetend in fresh:
                yield from self._unrolled_and_shortened(repetend)
            if in_vain >= _PATIENCE or self.effort.is_over:
                return
            yield None

    def _unrolled_and_shortened(self, repetend: Repetend) -> Iterator[ScheduleCandidate]:
        """Yield a sample, and where it is longer than the search's schedule also made as short as that."""
        schedule = self._unrolled(repetend)
        yield from self._with_gathered(ScheduleCandidate(schedule, repetend, "sample"))
        assert self.result.schedule is not None
        if schedule.makespan > self.result.schedule.makespan and may_reorder(self.limit):
            part = Effort(limit=(self.effort.limit - self.effort.spent) * _SHARE_TO_SHORTEN)
            improved = improve(schedule, part, bound=self.result.schedule.makespan, seed=self.seed)
            self.effort.spend(part.spent)
            if improved.interrupted:
                raise KeyboardInterrupt
            yield from self._with_gathered(ScheduleCandidate(improved.schedule, repetend, "shortened"))

    def _with_gathered(self, candidate: ScheduleCandidate) -> Iterator[ScheduleCandidate]:
        """Yield a candidate, and the same with its shared blocks at the ends where that is valid."""
        yield candidate
        if may_reorder(self.limit) and self.placement.is_plain:
            with contextlib.suppress(InvalidScheduleError):
                schedule = validate(neighbourhood.gathered(candidate.schedule))
                yield replace(candidate, schedule=schedule, origin="gathered")

    def _unrolled(self, repetend: Repetend) -> Schedule:
        return validate(with_optimizer(self.placement, repetend.unroll(self.number)))


def _quietly(progress: SearchProgress) -> None:
    """Tell nobody."""
