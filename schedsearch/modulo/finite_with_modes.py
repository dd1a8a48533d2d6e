"""The schedule of the asked number of micro-batches where blocks have modes, or devices streams.

The modes of the repetend are kept, or those of the schedule that the search began with where that is
shorter. Where what is left can be said without modes and streams, that is searched as any other placement;
else the repetend is unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from placements import Placement
from schedsearch.baselines import HAND_MADE
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.core.budget import Account
from schedsearch.core.known import OfSize
from schedsearch.core.objective import FINITE, Objective
from schedsearch.modulo.finite_schedule import FiniteSchedule
from schedsearch.passes.lowered import Lowered
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.starts.serial import serial_repetend
from schedsearch.starts.steady_state import steady_state
from schedsearch.validate import InvalidScheduleError, validate

_WORK_OF_BLOCK = 3e-5
"""Units of work for a block of a schedule that is made by hand."""

_MAX_BLOCKS = 2000
"""Blocks of the largest placement that is made of the micro-batches of a schedule with their modes."""


@dataclass(eq=False)
class FiniteWithModes:
    """As `FiniteSchedule`, of a placement that is not plain.

    Attributes:
        placement: What runs where.
        num_micro_batches: Micro-batches of the schedule.
        objective: What is made less.
        given: A schedule that the caller begins with; None for none.
        oracle: Solver to ask.
        uses: Names of the strategies.
        bound: Ticks that no schedule of as many micro-batches beats in it.
        effort: What the search may spend.
        known: What is known of the repetend that is unrolled; None before there is one.
    """

    placement: Placement
    num_micro_batches: int
    objective: Objective
    given: Schedule | None
    oracle: Account
    uses: frozenset[str]
    known: OfSize | None = None

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.effort = self.oracle.effort
        self.bound = FINITE[self.objective].bound(self.placement, self.num_micro_batches)
        self.oracle.proved[self.objective] = self.bound
        self._lowered: Lowered | None = None
        self._inner: FiniteSchedule | None = None

    def begin_with(self, known: OfSize, is_searched: bool) -> None:
        """Take another repetend, with its modes."""
        self.known = known
        repetend = known.repetend
        assert repetend is not None
        unrolled = repetend.unroll(self.num_micro_batches)
        base = min((unrolled, *self._others), key=FINITE[self.objective].value)
        chosen = _shortest(base.chosen) or ((),)
        if self.num_micro_batches % len(chosen):
            chosen = base.chosen
        if self._lowered is None or self._lowered.chosen != chosen:
            self._inner = None
            is_small = len(chosen) * len(self.placement.blocks) <= _MAX_BLOCKS
            self._lowered = Lowered.of(self.placement, chosen) if is_small else None
        if self._lowered is None:
            return
        plain = self._lowered.plain
        begun = self._lowered.lowered_schedule(base)
        own = self._lowered.lowered_repetend(repetend) if repetend.chosen == chosen else _repeating(begun)
        if own is None:
            self._lowered = None
            return
        if self._inner is None:
            number = self.num_micro_batches // len(chosen)
            self._inner = FiniteSchedule(plain, number, self.objective, begun, self.oracle, self.uses)
        start = OfSize.without_search(plain.per_micro_batch, own.micro_batches)
        is_its_own = is_searched and repetend.chosen == chosen
        self._inner.begin_with(replace(start, repetend=own), is_its_own)

    @cached_property
    def _others(self) -> list[Schedule]:
        """What the caller gave, and the shortest schedule with modes as people choose them."""
        found = [] if self.given is None else [self.given]
        each = self.placement.per_micro_batch
        if len(each.blocks) * self.num_micro_batches <= _MAX_BLOCKS and "hand_made" in self.uses:
            made = [schedule for _, schedule in with_chosen_modes(each, self.num_micro_batches, HAND_MADE)]
            self.effort.spend(len(made) * len(each.blocks) * self.num_micro_batches * _WORK_OF_BLOCK)
            found += [min(made, key=FINITE[self.objective].value)] if made else []
        return found

    @property
    def polished(self) -> bool:
        """Whether there is nothing more to do about the repetend."""
        return self._inner is None or self._inner.polished

    def is_done(self, objectives: Sequence[Objective]) -> bool:
        """Return whether no time would make these objectives less, with the modes of the repetend."""
        return not objectives or (
            self.known is not None and (self._inner is None or self._inner.is_done(objectives))
        )

    def polish(self, objectives: Sequence[Objective], until: float) -> None:
        """Make the objectives after the period least among repetends of that period and these modes."""
        if self._inner is not None:
            self._inner.polish(objectives, until)
            self._take(self._inner.known)

    def shorten(self, until: float) -> None:
        """Shorten the whole schedule with these modes."""
        if self._inner is not None:
            self._inner.shorten(until)

    def _take(self, own: OfSize | None) -> None:
        assert self.known is not None and self.known.repetend is not None and self._lowered is not None
        is_of_modes = self.known.repetend.chosen == self._lowered.chosen or not self.placement.decisions
        if own is not None and own.repetend is not None and is_of_modes:
            self.known = replace(self.known, repetend=self._lowered.repetend(own.repetend))

    def best(self, known: OfSize) -> Schedule:
        """Return the shortest valid schedule found: unrolled, shortened, or what the caller gave."""
        assert known.repetend is not None
        goal = FINITE[self.objective]
        unrolled = known.repetend.unroll(self.num_micro_batches)
        found = [goal.settled(with_optimizer(self.placement, each)) for each in (unrolled, *self._others)]
        if self._inner is not None and self._inner.known is not None:
            assert self._lowered is not None
            found.append(self._lowered.schedule(self._inner.best(self._inner.known)))
        return min(filter(_is_valid, found), key=goal.value)


def _repeating(schedule: Schedule) -> Repetend | None:
    """Return a repetend of a plain placement to go with a schedule: its steady state, or it as a whole."""
    if schedule.num_micro_batches == 1:
        return Repetend.from_first_starts(schedule.placement, 1, schedule.makespan, schedule.start_of)
    found = steady_state(schedule, schedule.placement.num_devices)
    return found or serial_repetend(schedule.placement)


def _is_valid(schedule: Schedule) -> bool:
    try:
        validate(schedule)
    except InvalidScheduleError:
        return False
    return True


def _shortest(chosen: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Return the shortest part of which the choices of some micro-batches are a repetition."""
    for size in range(1, len(chosen)):
        if len(chosen) % size == 0 and chosen == chosen[:size] * (len(chosen) // size):
            return chosen[:size]
    return chosen
