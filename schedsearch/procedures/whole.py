"""The whole schedule of a number of micro-batches: the best repetend unrolled, or a shorter one.

Where blocks have modes, the repetend's modes are kept; the result is a plain placement, on which all
procedures work. If no such plain placement exists, the repetend is unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice

from placements import Placement
from placements.modes import Chosen
from schedsearch.core.budget import Account, Budget
from schedsearch.core.known import Made, OfSize
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import GIVEN
from schedsearch.passes.lowered import Lowered
from schedsearch.procedures.beginnings import BEGINNINGS, hand_made_with_modes, has_time
from schedsearch.procedures.neighbourhoods.improvement import IMPROVEMENTS, QUERIES, Improvement
from schedsearch.procedures.queries import Bisection
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.solver.effort import OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import InvalidScheduleError, validate

_OF_SCHEDULES = frozenset({Objective.MEMORY, Objective.LATENCY})
"""Objectives before the period that a whole schedule keeps, too."""

_MAX_BLOCKS = 2000
"""Most blocks of a plain placement, one micro-batch of which is several of a placement with modes."""

_MAX_INSTANCES = 600
"""Most instances (blocks times micro-batches) of a repetend for new queries; larger ones take too long."""

_PATIENCE = 12
"""Most repetends of the period in a row without a shorter schedule, after which sampling ends."""

_SHARE_OF_MODES = 0.3
"""Share of the work for whole schedules that goes to hand-made ones with modes."""

_SHARE_OF_SAMPLES = 0.2
"""Share of the work for whole schedules that goes to sampled repetends."""


class WholeSearch:
    """The search for the objectives after the period, and for the schedule.

    Attributes:
        known: Record of the repetend to unroll, on the plain placement; None before a repetend is found, or
            without a plain placement.
        polished: Whether no objective of the repetend is left to improve.
    """

    def __init__(
        self,
        placement: Placement,
        num_micro_batches: int,
        objective: Objective,
        given: Schedule | None,
        account: Account,
        uses: frozenset[str],
    ) -> None:
        """Begin with nothing but the schedule that a caller may have given, without optimizer blocks."""
        self.placement, self.num_micro_batches, self._given = placement, num_micro_batches, given
        self.objective, self._goal = objective, FINITE[objective]
        self.account, self.effort, self.uses = account, account.effort, uses
        self._bound_of_all = self._goal.bound(placement, num_micro_batches)
        if not placement.is_plain:
            account.proved[objective] = self._bound_of_all  # not that of some modes
        self._with_modes = hand_made_with_modes(placement.per_micro_batch, num_micro_batches, self.effort)
        self._has_more_by_hand = not placement.is_plain and "hand_made" in uses
        self._best_of_modes: Schedule | None = None  # of any modes, not only those of the plain placement
        self._lowered: Lowered | None = None
        self._source: OfSize | None = None
        self._unrolled_last: tuple[Repetend, int, Schedule] | None = None
        self._lower(Lowered(placement, ((),), placement) if placement.is_plain else None)
        if given is not None and not placement.is_plain:
            self._keep(given)

    def _lower(self, lowered: Lowered | None) -> None:
        """Begin anew on another plain placement; None if no plain placement exists."""
        if self._lowered is not None and self._shortest is not None:
            self._keep(self._lowered.schedule(self._shortest))
        self._lowered = lowered
        self.known: OfSize | None = None
        self.polished, self._closed = lowered is None, False
        self._restart(None)
        if lowered is not None:
            self._number = self.num_micro_batches // len(lowered.chosen)
            self._bound = self._goal.bound(lowered.plain, self._number)

    def _restart(self, within: Placement | None) -> None:
        """Forget all schedules, because the next ones have less memory or another placement."""
        self._within = within
        self._offered: Repetend | None = None
        self._shortest: Schedule | None = None
        self._improvement: Improvement | None = None
        self._starts: dict[str, Iterator[Made]] = {}
        self._num_samples = self._in_vain = 0

    @property
    def source(self) -> OfSize | None:
        """The record of the repetend on the whole placement; None before a repetend is found."""
        if self.placement.is_plain:
            return self.known
        lowered, known, source = self._lowered, self.known, self._source
        if lowered is None or known is None or known.repetend is None:
            return source
        assert source is not None and source.repetend is not None
        is_of_modes = source.repetend.chosen == lowered.chosen or not self.placement.decisions
        return replace(source, repetend=lowered.repetend(known.repetend)) if is_of_modes else source

    @property
    def bound(self) -> int:
        """Lower bound in ticks on the objective of every schedule of as many micro-batches."""
        return self._bound if self.placement.is_plain else self._bound_of_all

    def begin_with(self, best: OfSize, is_searched: bool) -> None:
        """Take a better repetend; its other objectives are improved only if its size is searched."""
        self._source = best
        if self.placement.is_plain:
            self._begin(best, is_searched)
            return
        assert best.repetend is not None
        unrolled, chosen = self._unroll(best.repetend, self.num_micro_batches), best.repetend.chosen or ((),)
        self._keep(unrolled)
        if self.num_micro_batches % len(chosen):
            lowered = self._order_anew(unrolled)
        elif (lowered := self._lowered_to(chosen)) is not None:
            if self._lowered is None or self._lowered.chosen != chosen:
                self._lower(lowered)
            self._begin(self._record(lowered.lowered_repetend(best.repetend)), is_searched)
        if lowered is None:
            self._lower(None)

    def _begin(self, known: OfSize, is_searched: bool) -> None:
        self.known = known.with_limit(Objective.PERIOD)
        self.polished = self._closed = not is_searched
        self._bisection, self._has_span = Bisection(), Objective.SPAN in known.limit

    def _lowered_to(self, chosen: tuple[Chosen, ...]) -> Lowered | None:
        is_small = len(chosen) * len(self.placement.as_run(chosen[0]).blocks) <= _MAX_BLOCKS
        return Lowered.of(self.placement, chosen) if is_small else None

    def _order_anew(self, schedule: Schedule) -> Lowered | None:
        """Begin with the modes of a schedule, all its micro-batches as one, if a plain placement has them."""
        lowered = self._lowered_to(schedule.chosen or ((),) * self.num_micro_batches)
        if lowered is not None:
            self._lower(lowered)
            one = lowered.lowered_schedule(schedule)
            repetend = Repetend.from_first_starts(one.placement, 1, one.makespan, one.start_of)
            self._begin(self._record(repetend), is_searched=False)
        return lowered

    def _record(self, repetend: Repetend) -> OfSize:
        """Return the record of a repetend of the plain placement, with the limits of the whole one's."""
        assert self._source is not None
        limit = {name: ticks for name, ticks in self._source.limit.items() if name in _OF_SCHEDULES}
        plain = OfSize.without_search(repetend.placement, repetend.micro_batches)
        return replace(plain, repetend=repetend, limit=limit)

    def take(self, schedule: Schedule) -> None:
        """Take a schedule of another worker, without optimizer blocks, as the given one if it is shorter."""
        if not self.placement.is_plain:
            self._keep(schedule)
        elif self._given is None or self._goal.value(schedule) < self._goal.value(self._given):
            self._given = schedule
            if self._within is not None:
                self._offer_given(self._within.per_micro_batch)

    def _take_with_modes(self, until: float) -> None:
        """Take hand-made schedules with modes chosen by simple rules, up to the work."""
        if not self._has_more_by_hand or self.effort.spent >= until:
            return
        with self._counted("hand_made"):
            while self._has_more_by_hand and self.effort.spent < until:
                INTERRUPTS.raise_if_seen()
                if not has_time(self.placement, self.num_micro_batches, self.effort):
                    raise OutOfTimeError
                made = [*islice(self._with_modes, 1)]
                self._has_more_by_hand = bool(made)
                for schedule in made:
                    if schedule is not None and self._keep(schedule):
                        self.account.tell(self.objective, self._value(), self._bound_of_all, "hand_made")

    def _keep(self, schedule: Schedule) -> bool:
        """Keep a schedule of any modes if it is the best; return whether it is."""
        finished, best = self._finished(schedule), self._best_of_modes
        is_best = best is None or self._goal.value(finished) < self._goal.value(best)
        self._best_of_modes = finished if is_best else best
        return is_best

    def _finished(self, schedule: Schedule) -> Schedule:
        """Return a schedule of the whole placement with its optimizer blocks, as good as its orders allow."""
        return self._goal.settled(with_optimizer(self.placement, schedule))

    def _take_modes_of_best(self) -> None:
        """Go on with the best schedule of any modes, if no schedule in the repetend's modes is as good."""
        best, shortest = self._best_of_modes, self._shortest
        assert shortest is not None and self._source is not None
        if best is None or self._goal.value(shortest) <= self._goal.value(best):
            return
        best = best.per_micro_batch
        is_within = _is_valid(best.under(self._source.limited(self.placement).per_micro_batch))
        if is_within and self._order_anew(best) is not None:
            assert self.known is not None and self.known.repetend is not None
            self._keep_within(self.known)
            self._offer(Made(self._unroll(self.known.repetend), "hand_made"))

    def is_done(self, objectives: Sequence[Objective]) -> bool:
        """Return whether more time cannot improve these objectives, with the modes of the repetend."""
        if not objectives:
            return True
        if self._source is None or (self._has_more_by_hand and self.objective in objectives):
            return False
        if self.objective in objectives and self.proved:
            return self._closed
        return self.polished and (self.objective not in objectives or not self._may_shorten)

    @property
    def _may_shorten(self) -> bool:
        """Whether blocks may be ordered anew: not if a limit on the latency has to be kept."""
        return self.known is not None and Objective.LATENCY not in self.known.limit

    @property
    def _may_ask(self) -> bool:
        """Whether a solver may be asked for other repetends: queries are in use, and instances few enough."""
        assert self.known is not None
        instances = len(self.known.placement.blocks) * self.known.micro_batches
        return QUERIES in self.uses and instances <= _MAX_INSTANCES

    @property
    def proved(self) -> bool:
        """Whether the best schedule meets the bound."""
        return self._shortest is not None and self._goal.value(self._shortest) <= self._bound

    def polish(self, objectives: Sequence[Objective], until: float) -> None:
        """Minimise the objectives after the period, one after another, among repetends of this period.

        It stops at the work `until`; the next call continues. Before a whole schedule is shortened, the span
        is minimised once: a short repetend begins and ends sooner.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        if self._lowered is None:
            return
        assert self.known is not None
        budget = Budget(self.account, until)
        others = [objective for objective in objectives if objective not in FINITE]
        for known in self._bisection.minimise_in_turn(self.known, others, budget):
            self.known = known
        wants_span = self.objective in objectives and self._may_ask
        if wants_span and not self._has_span and not budget.is_over:
            with self._counted(QUERIES):
                for known in self._bisection.minimise(self.known, Objective.SPAN, budget):
                    self.known = known.without_limits([Objective.SPAN])
            self._has_span = True
        self._closed = not any(self.known.is_open(objective) for objective in others)
        self.polished = self._closed and (self._has_span or not wants_span)

    def shorten(self, until: float) -> None:
        """Shorten the whole schedule up to the work `until`; the next call continues where this one ends.

        It begins with the shortest of the unrolled repetend, what the caller gave, the hand-made schedules
        that fit, and those that rules make (see `BEGINNINGS`). Where the latency is limited nothing is done.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C; the shortest schedule until then is kept.
        """
        self._take_with_modes(self.effort.share(until, _SHARE_OF_MODES))
        if not self._may_shorten:
            return
        known = self.known
        assert known is not None and known.repetend is not None
        self._keep_within(known)
        if known.repetend is not self._offered:
            self._offered = known.repetend
            self._offer(Made(self._unroll(known.repetend), "the repetend unrolled"))
        for name, starts in self._starts.items():
            end = self.effort.share(until, BEGINNINGS[name][1])
            while not self.proved and self.effort.spent < end:
                self.effort.require_s()
                with self._counted(name):
                    if (made := next(starts, None)) is None:
                        break
                    self._offer(made)
        samples = Budget(self.account, until).share(_SHARE_OF_SAMPLES)
        while self._may_ask and self._in_vain < _PATIENCE and not (self.proved or samples.is_over):
            with self._counted(QUERIES):
                self._sample(known, samples)
        self._take_modes_of_best()
        best = self._shortest
        assert best is not None
        if self.proved or self.effort.spent >= until or not self.uses & IMPROVEMENTS:
            return
        if self._improvement is None:
            self._improvement = Improvement(
                best,
                self.effort,
                self._goal,
                seed=self.account.seed,
                on_progress=self._report,
                uses=self.uses,
                counted=self._counted,
            )
        elif self._goal.value(best) < self._improvement.value:
            self._improvement.begin_with(best)
        try:
            self._improvement.go_on(until)
        finally:
            self._shortest = self._improvement.best
            if self._is_free:
                self._bound = max(self._bound, self._improvement.bound)

    def _sample(self, known: OfSize, budget: Budget) -> None:
        """Offer another repetend of the period, unrolled: its warmup and cooldown may pack better."""
        assert known.repetend is not None and self._shortest is not None
        period, best = known.repetend.period, self._goal.value(self._shortest)
        query = known.query(Objective.PERIOD, period)
        longer = (0, None, period // 2, period, 2 * period)[self._num_samples % 5]
        spans = [query.span, None if longer is None else known.repetend.span + longer]
        self._num_samples, self._in_vain = self._num_samples + 1, self._in_vain + 1
        query = replace(query, span=min((span for span in spans if span is not None), default=None))
        _, sampled = budget.ask(query, budget.left / 4, self._num_samples)
        for repetend in () if sampled is None else (sampled, sampled.with_min_period(period)):
            if known.keeps_limits(repetend):
                self._offer(Made(self._unroll(repetend), "another repetend unrolled"))
        if self._goal.value(self._shortest) < best:
            self._in_vain = 0

    def take_hand_made(self, best: OfSize, seconds: float) -> None:
        """Offer the hand-made schedules that the search has not tried yet, with some seconds more.

        With modes there are too many for that: their work is a tenth of the search's more.
        """
        if self.known is None:
            self.begin_with(best, is_searched=False)
        if seconds:
            self.effort.deadline += seconds - min(self.effort.left_s, 0.0)
        self._take_with_modes(1.0 + 1.1 * self.effort.spent)
        if self._may_shorten and self.known is not None and self.placement.is_plain:
            self._keep_within(self.known)
            for made in self._starts.get("hand_made", ()):
                self._offer(made)

    def _keep_within(self, known: OfSize) -> None:
        """Begin anew if the repetend now holds less memory, since the schedule may hold no more than it."""
        assert self._lowered is not None
        within = known.limited(self._lowered.plain)
        if within == self._within:
            return
        self._restart(within)
        placement = within.per_micro_batch
        self._offer_given(placement)
        self._starts = {
            name: make(placement, self._number, self.effort)
            for name, (make, _) in BEGINNINGS.items()
            if name in self.uses
        }

    def _offer_given(self, within: Placement) -> None:
        """Offer the given schedule, if there is one that can be offered and it is valid within the memory."""
        if (
            self._given is not None
            and self.placement.is_plain
            and _is_valid(given := self._given.under(within))
        ):
            self._offer(Made(given, GIVEN))

    def _offer(self, made: Made) -> None:
        """Take a schedule as the start of the improvement if it is better than all before."""
        settled = self._settled(made.schedule)
        if self._shortest is None or self._goal.value(settled) < self._goal.value(self._shortest):
            self._shortest = settled
            self._report(self._goal.value(settled), self._bound, made.made_by)

    def _settled(self, schedule: Schedule) -> Schedule:
        assert self._lowered is not None
        return self._goal.settled(with_optimizer(self._within or self._lowered.plain, schedule))

    @property
    def _is_free(self) -> bool:
        """Whether all memory may be used, so that a bound holds for every schedule."""
        return self._lowered is not None and self._within in (None, self._lowered.plain)

    def _counted(self, name: str) -> AbstractContextManager[None]:
        """Charge the work done inside to a procedure."""
        return self.account.counted(self.objective, name, self._value)

    def _value(self) -> int:
        """Return the objective of the best schedule so far, in ticks; at first, of the unrolled repetend."""
        improved = None if self._improvement is None else self._improvement.best
        schedules = [schedule for schedule in (self._shortest, improved, self._best_of_modes) if schedule]
        if not schedules:
            assert self.known is not None and self.known.repetend is not None
            schedules = [self._settled(self._unroll(self.known.repetend))]
        return min(map(self._goal.value, schedules))

    def _report(self, best: int, bound: int, move: str) -> None:
        self.account.tell(self.objective, best, bound if self._is_free else self._bound, move)

    def best(self, known: OfSize) -> Schedule:
        """Return the shortest valid schedule found: the best repetend unrolled, shortened, or as given."""
        assert known.repetend is not None
        schedules = [self._unroll(known.repetend, self.num_micro_batches)]
        if self._shortest is not None and self._lowered is not None:
            schedules.append(self._lowered.schedule(self._shortest))
        if Objective.LATENCY not in known.limit:
            schedules += [schedule for schedule in (self._best_of_modes, self._given) if schedule is not None]
        within = known.limited(self.placement)
        by_value = sorted(map(self._finished, schedules), key=self._goal.value)
        return validate(next(schedule for schedule in by_value if _is_valid(schedule.under(within))))

    def _unroll(self, repetend: Repetend, number: int | None = None) -> Schedule:
        """Unroll a repetend and keep the result for the next call, because it takes long on many devices."""
        number = self._number if number is None else number
        if self._unrolled_last is None or self._unrolled_last[:2] != (repetend, number):
            self._unrolled_last = repetend, number, repetend.unroll(number)
        return self._unrolled_last[2]


def _is_valid(schedule: Schedule) -> bool:
    try:
        validate(schedule)
    except InvalidScheduleError:
        return False
    return True
