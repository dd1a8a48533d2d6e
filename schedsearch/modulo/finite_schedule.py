"""The objectives after the period, and the schedule of the asked number of micro-batches."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from placements import Placement
from schedsearch.improve.improve import improve
from schedsearch.improve.objective import FiniteObjective
from schedsearch.metrics import total_slack
from schedsearch.modulo.bisection import ModuloSearch
from schedsearch.modulo.known import Known
from schedsearch.modulo.result import FINITE, Objective
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.starts.first_repetends import hand_made, simulated
from schedsearch.starts.turns import in_turns
from schedsearch.validate import InvalidScheduleError, validate

_PATIENCE = 12
"""Repetends in a row that may bring no shorter makespan before the search for one ends."""


_MOST_INSTANCES = 600
"""Blocks times micro-batches of the largest repetend that is sampled; with more, a question takes long."""

_ANSWER = 3
"""How many times as long as unrolling the repetend is kept for choosing, checking and bounding the answer."""

_SHARE_OF_RULES = 0.25
"""Share of the time for a schedule that simulating rules gets."""


class FiniteSchedule:
    """The schedule of a number of micro-batches: the repetend unrolled, or a shorter one.

    Attributes:
        objective: What is made less.
        given: A schedule that the caller begins with, without optimizer blocks; None for none.
        bound: Ticks that no schedule of as many micro-batches beats in it.
    """

    def __init__(
        self,
        placement: Placement,
        num_micro_batches: int,
        objective: Objective,
        given: Schedule | None = None,
    ) -> None:
        self.placement = placement
        self.num_micro_batches = num_micro_batches
        self.objective = objective
        self.given = given
        self.bound = self._goal.bound(placement, num_micro_batches)
        self._shortened: Schedule | None = None
        self._unrolled_last: tuple[Repetend, Schedule] | None = None
        self._unroll_s = 0.0  # seconds that it took

    @property
    def _goal(self) -> FiniteObjective:
        return FINITE[self.objective]

    def polish(self, search: ModuloSearch, objectives: Sequence[Objective]) -> None:
        """Make the objectives after the period least, one after another, among repetends of that period."""
        for objective in objectives:
            if objective in FINITE:
                self._sample(search)
            else:
                search.minimise(objective)

    def _sample(self, search: ModuloSearch) -> None:
        """Sample repetends of the best period; keep the one that unrolls to the shortest schedule.

        Of equally short ones the one with more slack is better, since lower clocks can use it.
        """
        instances = len(search.known.placement.blocks) * search.known.micro_batches
        if instances > _MOST_INSTANCES or search.time_left_s <= 0:
            return
        if Objective.SPAN not in search.known.limit:
            search.minimise(Objective.SPAN)
            search.known = search.known.without_limit(Objective.SPAN)
        repetend = search.known.repetend
        assert repetend is not None
        if self._goal.value(self._unrolled(repetend)) <= self.bound or search.time_left_s <= 0:
            return
        period, span = repetend.period, repetend.span
        limits = itertools.cycle([None, span, span + period // 2, span + period, span + 2 * period])
        best, improved = self._quality(repetend), 0
        for i, limit in enumerate(limits):
            if best[1] <= self.bound or i - improved >= _PATIENCE or search.time_left_s <= 0:
                break
            for candidate in search.sample(limit, i):
                quality = self._quality(candidate)
                if quality < best:
                    improved = i if quality[:2] < best[:2] else improved
                    known = replace(search.known, repetend=candidate)
                    search.known, best = known.with_tightened_limits(), quality
            self._report(search, best[1], self.bound, "sample of the repetend")

    def shorten(self, search: ModuloSearch, time_limit_s: float) -> None:
        """Shorten the whole schedule.

        It begins with the shortest of the unrolled repetend, what the caller gave, the hand-made schedules
        that fit, and those that rules make (`schedsearch.starts.turns` and
        `schedsearch.starts.event_simulation`). Where the latency is limited nothing is done, since another
        order of the blocks would not keep it.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C; the shortest schedule until then is kept.
        """
        known = search.known
        if Objective.LATENCY in known.limit:
            return
        assert known.repetend is not None
        began = time.monotonic()
        placement = known.limited_placement()
        best = self._goal.settled(self._unroll(known.repetend).under(placement))
        deadline = began + time_limit_s - _ANSWER * max(self._unroll_s, time.monotonic() - began)
        starts = itertools.chain(
            self._given_within(known), self._starts(placement, deadline, time_limit_s * _SHARE_OF_RULES)
        )
        self._report(search, self._goal.value(best), self.bound, "the repetend unrolled")
        while self._goal.value(best) > self.bound and (start := next(starts, None)) is not None:
            name, other = start
            if self._goal.value(other) < self._goal.value(best):
                self._shortened = best = other
                self._report(search, self._goal.value(best), self.bound, name)
        if time.monotonic() >= deadline:
            return
        improved = improve(
            best,
            time_limit_s=deadline - time.monotonic(),
            objective=self._goal,
            seed=search.asking.seed,
            on_progress=lambda value, bound, move: self._report(search, value, bound, move),
        )
        if placement == self.placement.per_micro_batch:
            self.bound = max(self.bound, improved.bound)
        self._shortened = improved.schedule
        if improved.interrupted:
            raise KeyboardInterrupt

    def _report(self, search: ModuloSearch, best: int, bound: int, move: str) -> None:
        search.asking.report(self.objective, best, bound, search.known.micro_batches, move)

    def _starts(
        self, placement: Placement, deadline: float, seconds_for_rules: float
    ) -> Iterator[tuple[str, Schedule]]:
        """Yield schedules made by hand and by rules, with names, each as short as its order lets it be."""
        for name, schedule in hand_made(self.placement.per_micro_batch, self.num_micro_batches):
            with contextlib.suppress(InvalidScheduleError):  # it needs more memory
                yield name, self._goal.settled(validate(schedule.under(placement)))
            if time.monotonic() >= deadline:
                return
        for schedule in in_turns(placement, self.num_micro_batches):
            INTERRUPTS.raise_if_seen()
            yield "micro-batches in turns", self._goal.settled(schedule)
            if time.monotonic() >= deadline:
                return
        last_begun = min(deadline, time.monotonic() + seconds_for_rules)
        for name, schedule in simulated(placement, self.num_micro_batches, deadline):
            yield name, self._goal.settled(schedule)
            if time.monotonic() >= last_begun:
                return

    def _given_within(self, known: Known) -> Iterator[tuple[str, Schedule]]:
        """Yield what the caller gave, with its name, if it keeps what earlier objectives reached."""
        if self.given is not None and Objective.LATENCY not in known.limit:
            with contextlib.suppress(InvalidScheduleError):  # it needs more memory
                schedule = validate(self.given.under(known.limited_placement()))
                yield "what the search began with", self._goal.settled(schedule)

    def best(self, known: Known) -> Schedule:
        """Return the shortest valid schedule found: unrolled, shortened, or what the caller gave.

        Args:
            known: Of the best repetend.
        """
        assert known.repetend is not None
        found = [self._unroll(known.repetend)]
        found += [] if self._shortened is None else [self._shortened]
        found += [schedule for _, schedule in self._given_within(known)]
        settled = [self._goal.settled(with_optimizer(self.placement, schedule)) for schedule in found]
        return validate(min(settled, key=self._goal.value))

    def _quality(self, repetend: Repetend) -> tuple[int, int, int, int]:
        """Return what makes one repetend better than another: less, from the first figure on."""
        schedule = self._unrolled(repetend)
        return repetend.period, self._goal.value(schedule), -total_slack(schedule), repetend.span

    def _unrolled(self, repetend: Repetend) -> Schedule:
        return self._goal.settled(with_optimizer(self.placement, self._unroll(repetend)))

    def _unroll(self, repetend: Repetend) -> Schedule:
        """Unroll a repetend, once where it comes several times in a row: it takes long on many devices."""
        if self._unrolled_last is None or self._unrolled_last[0] is not repetend:
            began = time.monotonic()
            self._unrolled_last = repetend, repetend.unroll(self.num_micro_batches)
            self._unroll_s = time.monotonic() - began
        return self._unrolled_last[1]
