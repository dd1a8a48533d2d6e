"""The objectives after the period, and the schedule of the asked number of micro-batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from placements import Placement
from schedsearch.baselines import applicable
from schedsearch.bounds.makespan import makespan_bound
from schedsearch.improve.improve import improve
from schedsearch.metrics import total_slack
from schedsearch.modulo.bisection import ModuloSearch
from schedsearch.modulo.result import Objective
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.validate import validate

_PATIENCE = 12
"""Repetends in a row that may bring no shorter makespan before the search for one ends."""


class FiniteSchedule:
    """The schedule of a number of micro-batches: the repetend unrolled, or a shorter one.

    Attributes:
        makespan_bound: Ticks that no schedule of as many micro-batches beats.
    """

    def __init__(self, placement: Placement, num_micro_batches: int) -> None:
        self.placement = placement
        self.num_micro_batches = num_micro_batches
        self.makespan_bound = makespan_bound(placement, num_micro_batches)
        self._shortened: Schedule | None = None

    def polish(self, search: ModuloSearch, objectives: Sequence[Objective]) -> None:
        """Make the objectives after the period least, one after another, among repetends of that period."""
        for objective in objectives:
            if objective is Objective.MAKESPAN:
                self._sample_for_makespan(search)
            else:
                search.minimise(objective)

    def _sample_for_makespan(self, search: ModuloSearch) -> None:
        """Sample repetends of the best period; keep the one that unrolls to the least makespan.

        Of equal makespans the one with more slack is better, since lower clocks can use it.
        """
        if Objective.SPAN not in search.known.limit:
            search.minimise(Objective.SPAN)
            search.known = search.known.without_limit(Objective.SPAN)
        repetend = search.known.repetend
        assert repetend is not None
        period, span = repetend.period, repetend.span
        limits = itertools.cycle([None, span, span + period // 2, span + period, span + 2 * period])
        best, improved = self._quality(repetend), 0
        for i, limit in enumerate(limits):
            if best[0] <= self.makespan_bound or i - improved >= _PATIENCE or search.time_left_s <= 0:
                break
            for candidate in search.sample(limit, i):
                quality = self._quality(candidate)
                if quality < best:
                    improved = i if quality[0] < best[0] else improved
                    search.known, best = replace(search.known, repetend=candidate), quality
            search.asking.report(Objective.MAKESPAN, best[0], self.makespan_bound, search.known.micro_batches)

    def shorten(self, search: ModuloSearch, time_limit_s: float) -> None:
        """Shorten the whole schedule.

        It begins with the unrolled repetend, or a hand-made schedule that fits and is shorter. Where the
        latency is limited nothing is done, since another order of the blocks would not keep it.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C; the shortest schedule until then is kept.
        """
        known = search.known
        if Objective.LATENCY in known.limit:
            return
        assert known.repetend is not None
        placement = known.limited_placement()
        unrolled = replace(known.repetend.unroll(self.num_micro_batches), placement=placement)
        others = applicable(placement, self.num_micro_batches).values()
        improved = improve(
            min([unrolled, *others], key=lambda schedule: schedule.makespan),
            time_limit_s=time_limit_s,
            seed=search.asking.seed,
            on_progress=lambda best, bound: search.asking.report(
                Objective.MAKESPAN, best, bound, known.micro_batches
            ),
        )
        if placement == self.placement.per_micro_batch:
            self.makespan_bound = max(self.makespan_bound, improved.bound)
        self._shortened = with_optimizer(self.placement, improved.schedule)
        if improved.interrupted:
            raise KeyboardInterrupt

    def best(self, repetend: Repetend) -> Schedule:
        """Return the shortest valid schedule found."""
        unrolled = validate(self._unrolled(repetend))
        if self._shortened is not None and self._shortened.makespan < unrolled.makespan:
            return validate(self._shortened)
        return unrolled

    def _quality(self, repetend: Repetend) -> tuple[int, int, int]:
        """Return what makes one repetend of a period better than another: less, from the first figure on."""
        schedule = self._unrolled(repetend)
        return schedule.makespan, -total_slack(schedule), repetend.span

    def _unrolled(self, repetend: Repetend) -> Schedule:
        return with_optimizer(self.placement, repetend.unroll(self.num_micro_batches))
