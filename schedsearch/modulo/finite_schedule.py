"""The objectives after the period, and the schedule of the asked number of micro-batches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from placements import Placement
from schedsearch.core.budget import Account
from schedsearch.core.known import OfSize
from schedsearch.core.objective import FINITE, FiniteObjective, Objective
from schedsearch.core.problem import GIVEN
from schedsearch.metrics import total_slack
from schedsearch.procedures.beginnings import hand_made, simulated
from schedsearch.procedures.neighbourhoods.improvement import NEIGHBOURHOODS, QUERIES, STATES, Improvement
from schedsearch.procedures.queries import Bisection
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.starts.turns import in_turns
from schedsearch.validate import InvalidScheduleError, validate

_PATIENCE = 12
"""Repetends in a row that may bring no shorter makespan before the search for one ends."""


_MAX_INSTANCES = 600
"""Blocks times micro-batches of the largest repetend that is sampled; with more, a question takes long."""

_MAX_UNROLLED = 100_000
"""Blocks of the longest schedule for which repetends are sampled: each sample is unrolled."""

_ANSWER = 3
"""How many times as long as unrolling the repetend is kept for choosing, checking and bounding the answer."""

_SHARES = {"simulated": 0.25}
"""Share of the work for a schedule that strategies get which do not soon end by themselves."""

IMPROVEMENTS = frozenset({QUERIES, STATES, NEIGHBOURHOODS})
"""Names of the strategies that are parts of an improvement."""

_WORK_OF_BLOCK = 1.5e-5
"""Units of work for a block of a schedule that is made and validated."""


@dataclass
class _Samples:
    """How far the sampling of a repetend is.

    Attributes:
        number: Samples so far.
        in_vain: Those since the last that was better.
        span: Ticks of the repetend of which other spans are taken; 0 before there is one.
        ended: Whether there are enough.
    """

    number: int = 0
    in_vain: int = 0
    span: int = 0
    ended: bool = False


@dataclass(eq=False)
class FiniteSchedule:
    """The schedule of a number of micro-batches: the repetend unrolled, or a shorter one.

    Attributes:
        objective: What is made less.
        given: A schedule that the caller begins with, without optimizer blocks; None for none.
        oracle: Solver to ask; its effort says when to stop.
        uses: Names of the strategies; see `schedsearch.procedures.registry.OF_SCHEDULE`.
        bound: Ticks that no schedule of as many micro-batches beats in it.
        known: What is known of the repetend that is unrolled; None before there is one.
        polished: Whether there is nothing more to do about it.
    """

    placement: Placement
    num_micro_batches: int
    objective: Objective
    given: Schedule | None
    oracle: Account
    uses: frozenset[str]
    known: OfSize | None = None
    polished: bool = False

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.effort = self.oracle.effort
        self.bound = self._goal.bound(self.placement, self.num_micro_batches)
        self._closed = False  # whether the objectives before the schedule's own can become no less
        self._samples = _Samples()
        self._bisection = Bisection(self.oracle)
        self._unrolled_last: tuple[Repetend, Schedule] | None = None
        self._unroll_s = 0.0  # seconds that it took
        self._offered: Repetend | None = None
        self._within: Placement | None = None
        self._starts: dict[str, Iterator[tuple[str, Schedule]]] = {}
        self._shortened: Schedule | None = None
        self._improvement: Improvement | None = None

    @property
    def _goal(self) -> FiniteObjective:
        return FINITE[self.objective]

    def begin_with(self, known: OfSize, is_searched: bool) -> None:
        """Take another repetend, of a shorter period, for what is still to be done.

        Args:
            known: What is known of it.
            is_searched: Whether its number of micro-batches is one that is asked for; no others are polished.
        """
        self.known = known.with_limit(Objective.PERIOD)
        self.polished = self._closed = not is_searched
        self._samples, self._bisection = _Samples(), Bisection(self.oracle)

    def is_done(self, objectives: Sequence[Objective]) -> bool:
        """Return whether no time would make these objectives less."""
        if not objectives:
            return True
        if self.known is None:
            return False
        if self.objective in objectives and self.proved:
            return self._closed
        return self.polished and (self.objective not in objectives or not self._may_shorten)

    @property
    def _may_shorten(self) -> bool:
        """Whether the latency is free: another order of the blocks would not keep it."""
        assert self.known is not None
        return Objective.LATENCY not in self.known.limit

    @property
    def proved(self) -> bool:
        """Whether no schedule is better than the best."""
        return self._shortened is not None and self._goal.value(self._shortened) <= self.bound

    def polish(self, objectives: Sequence[Objective], until: float) -> None:
        """Make the objectives after the period least, one after another, among repetends of that period.

        Args:
            objectives: These.
            until: Work after which to stop; the next call goes on.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        assert self.known is not None
        others = [objective for objective in objectives if objective not in FINITE]
        for known in self._bisection.minimise_in_turn(self.known, others, until):
            self.known = known
        if self.objective in objectives and "samples" in self.uses and not self._samples.ended:
            with self._counted("samples"):
                self._sample(until)
        self._closed = not any(self.known.is_open(objective) for objective in others)
        are_enough = self._samples.ended or self.objective not in objectives or "samples" not in self.uses
        self.polished = self._closed and are_enough

    def _sample(self, until: float) -> None:
        """Sample repetends of the best period; keep the one that unrolls to the shortest schedule.

        Where two are equally short, the one with more slack is better, since lower clocks can use it.
        """
        assert self.known is not None
        samples = self._samples
        instances = len(self.known.placement.blocks) * self.known.micro_batches
        unrolled = len(self.placement.blocks) * self.num_micro_batches
        samples.ended = instances > _MAX_INSTANCES or unrolled > _MAX_UNROLLED
        if samples.ended or self.effort.spent >= until:
            return
        if Objective.SPAN not in self.known.limit and not samples.number:
            for known in self._bisection.minimise(self.known, Objective.SPAN, until):
                self.known = known.without_limits([Objective.SPAN])
        repetend = self.known.repetend
        assert repetend is not None
        period = repetend.period
        span = samples.span = samples.span or repetend.span
        limits = (None, span, span + period // 2, span + period, span + 2 * period)
        best = self._quality(repetend)
        while best[1] > self.bound and samples.in_vain < _PATIENCE and self.effort.spent < until:
            number, limit = samples.number, limits[samples.number % len(limits)]
            samples.number, samples.in_vain = number + 1, samples.in_vain + 1
            for candidate in self._bisection.sample(self.known, limit, number, until):
                quality = self._quality(candidate)
                if quality < best:
                    samples.in_vain = 0 if quality[:2] < best[:2] else samples.in_vain
                    known = replace(self.known, repetend=candidate)
                    self.known, best = known.with_tightened_limits(), quality
            self._report(best[1], self.bound, "sample of the repetend")
        samples.ended = best[1] <= self.bound or samples.in_vain >= _PATIENCE

    def shorten(self, until: float) -> None:
        """Shorten the whole schedule; the next call goes on where this one ends.

        It begins with the shortest of the unrolled repetend, what the caller gave, the hand-made schedules
        that fit, and those that rules make (`schedsearch.starts.turns` and
        `schedsearch.starts.event_simulation`). Where the latency is limited nothing is done, since another
        order of the blocks would not keep it.

        Args:
            until: Work after which to stop.

        Raises:
            OutOfTimeError: The time limit is over, or nearly so where the answer takes long.
            KeyboardInterrupt: There was a Ctrl-C; the shortest schedule until then is kept.
        """
        if not self._may_shorten:
            return
        known = self.known
        assert known is not None and known.repetend is not None
        began = time.monotonic()
        self._keep_within(known)
        if known.repetend is not self._offered:
            self._offered = known.repetend
            self._offer("the repetend unrolled", self._unroll(known.repetend))
        answer_s = _ANSWER * max(self._unroll_s, time.monotonic() - began)
        self.effort.keep_s = max(self.effort.keep_s, answer_s)
        for name, starts in self._starts.items():
            end = self.effort.share(until, _SHARES.get(name, 1.0))
            while not self.proved and self.effort.spent < end:
                self.effort.require_s()
                with self._counted(name):
                    if (start := next(starts, None)) is None:
                        break
                    self._offer(*start)
        if self.proved or self.effort.spent >= until or not self.uses & IMPROVEMENTS:
            return
        best = self._shortened
        assert best is not None
        if self._improvement is None:
            self._improvement = Improvement(
                best,
                self.effort,
                self._goal,
                seed=self.oracle.seed,
                on_progress=self._report,
                uses=self.uses,
                counted=self._counted,
            )
        elif self._goal.value(best) < self._improvement.value:
            self._improvement.begin_with(best)
        try:
            self._improvement.go_on(until)
        finally:
            self._shortened = self._improvement.best
            if self._within == self.placement:
                self.bound = max(self.bound, self._improvement.bound)

    def take_hand_made(self, known: OfSize, seconds: float) -> None:
        """Offer the hand-made schedules that a search had not come to.

        Args:
            known: What is known of the repetend, where the search had not come to that either.
            seconds: Time to add to the limit for it.
        """
        self.known = self.known or known
        if seconds:
            self.effort.postpone(seconds - min(self.effort.left_s, 0.0))
        if self._may_shorten:
            self._keep_within(self.known)
            for start in self._starts.get("hand_made", ()):
                self._offer(*start)

    def _keep_within(self, known: OfSize) -> None:
        """Begin anew where the repetend has come to hold less memory, since the schedule may hold no more."""
        within = self._limited(known)
        if within == self._within:
            return
        self._within, self._offered, self._shortened, self._improvement = within, None, None, None
        each = within.per_micro_batch
        for schedule in self._given_within(known):
            self._offer(GIVEN, schedule)
        self._starts = {
            name: starts
            for name, starts in {
                "hand_made": self._hand_made(each),
                "turns": self._in_turns(each),
                "simulated": simulated(each, self.num_micro_batches, self.effort),
            }.items()
            if name in self.uses
        }

    def _limited(self, known: OfSize) -> Placement:
        """Return the whole placement with no more memory than a repetend came to hold."""
        memory = known.limited_placement().memory
        return self.placement if memory is None else self.placement.with_memory(memory)

    def _offer(self, name: str, schedule: Schedule) -> None:
        """Take a schedule to begin with where it is shorter than the best."""
        assert self._within is not None
        settled = self._goal.settled(with_optimizer(self._within, schedule))
        if self._shortened is None or self._goal.value(settled) < self._goal.value(self._shortened):
            self._shortened = settled
            self._report(self._goal.value(settled), self.bound, name)

    def _counted(self, name: str) -> AbstractContextManager[None]:
        """Count what is done inside as the work of a strategy."""
        return self.oracle.counted(self.objective, name, self._value)

    def _value(self) -> int:
        """Return the ticks of the best schedule so far; of the repetend unrolled before there is one."""
        improved = None if self._improvement is None else self._improvement.best
        found = [self._goal.value(each) for each in (self._shortened, improved) if each is not None]
        if not found:
            assert self.known is not None and self.known.repetend is not None
            found = [self._quality(self.known.repetend)[1]]
        return min(found)

    def _report(self, best: int, bound: int, move: str) -> None:
        self.oracle.tell(self.objective, best, bound if self._within == self.placement else self.bound, move)

    def _hand_made(self, placement: Placement) -> Iterator[tuple[str, Schedule]]:
        """Yield schedules made by hand, with their names."""
        each = self.placement.per_micro_batch
        for name, schedule in hand_made(each, self.num_micro_batches, self.effort):
            self.effort.spend(len(schedule.blocks) * _WORK_OF_BLOCK)
            with contextlib.suppress(InvalidScheduleError):  # it needs more memory
                yield name, validate(schedule.under(placement))

    def _in_turns(self, placement: Placement) -> Iterator[tuple[str, Schedule]]:
        """Yield schedules with micro-batches in turns, with a name."""
        for schedule in in_turns(placement, self.num_micro_batches):
            self.effort.spend(len(schedule.blocks) * _WORK_OF_BLOCK)
            yield "micro-batches in turns", schedule

    def _given_within(self, known: OfSize) -> Iterator[Schedule]:
        """Yield what the caller gave, if it keeps what earlier objectives reached."""
        if self.given is not None and Objective.LATENCY not in known.limit:
            with contextlib.suppress(InvalidScheduleError):  # it needs more memory
                yield validate(self.given.under(known.limited_placement()))

    def best(self, known: OfSize) -> Schedule:
        """Return the shortest valid schedule found: unrolled, shortened, or what the caller gave.

        Args:
            known: What is known of the best repetend.
        """
        assert known.repetend is not None
        found = [self._unroll(known.repetend)]
        if self._shortened is not None and self._limited(known) == self._within:
            found.append(self._shortened)
        elif self._shortened is not None:
            with contextlib.suppress(InvalidScheduleError):  # the repetend has come to hold less memory
                found.append(validate(self._shortened.under(self._limited(known))))
        found += self._given_within(known)
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
