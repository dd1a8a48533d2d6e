"""Procedures that need no start: rule-made schedules, and their steady states as repetends."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from placements import Placement
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.baselines.chosen_modes import attempts
from schedsearch.baselines.interleaved import interleavings
from schedsearch.core.budget import Budget
from schedsearch.core.known import Known, Made, Start
from schedsearch.procedures.procedure import Procedure
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort
from schedsearch.starts.event_simulation import RULES, list_schedule
from schedsearch.starts.greedy_repetends import greedy_repetends
from schedsearch.starts.steady_state import steady_state
from schedsearch.starts.turns import in_turns
from schedsearch.validate import InvalidScheduleError, validate

_WORK_OF_STEADY_BLOCK = 1e-5
"""Units of work for a block of a hand-made schedule and of its steady state."""

_WORK_OF_GREEDY_BLOCK = 1.5e-4
"""Units of work of one greedy repetend."""

_WORK_OF_BLOCK = 1.5e-5
"""Units of work of a schedule made and validated, or simulated."""

_SECONDS_OF_BLOCK = 2.5e-5
"""Seconds that a block of a hand-made schedule takes on a slow machine: none is begun that would end late."""

_GROUPS = "interleaved in groups"

_BY_HAND = (*(name for name in HAND_MADE if name != "gpipe"), _GROUPS, "gpipe")
"""Names of schedules made by hand, in the order in which they are tried."""


@dataclass
class _Supply(Procedure):
    """Continues one iterator of repetends from round to round, until it is exhausted."""

    is_first: ClassVar[bool] = True
    _left: Iterator[Start] | None = field(default=None, init=False, repr=False)

    def run(self, known: Known, budget: Budget) -> Iterator[Start]:
        """Yield the remaining repetends, until the budget is used up."""
        if self._left is None:
            self._left = self._made(known, budget.effort)
        while not budget.is_over and (start := next(self._left, None)) is not None:
            yield start

    @abstractmethod
    def _made(self, known: Known, effort: Effort) -> Iterator[Start]: ...


@dataclass
class HandMade(_Supply):
    """Takes the steady states of schedules made by hand; on a hundred devices that takes a minute.

    These are of up to as many micro-batches as there are devices: interleaved 1F1B repeats after so many.
    """

    name: ClassVar[str] = "hand_made"
    share: float = 0.8

    def first_work(self, known: Known) -> float:
        """Return the units of work of the first schedule."""
        return 4 * known.placement.num_devices * len(known.placement.blocks) * _WORK_OF_STEADY_BLOCK

    def _made(self, known: Known, effort: Effort) -> Iterator[Start]:
        placement, depth = known.placement, max(known.placement.num_devices, 2)
        for name in _BY_HAND:
            repeats = False
            for number in (4 * depth, 6 * depth):  # some repeat only after a long warmup
                effort.require_s()
                if not has_time(placement, number, effort):
                    return
                for schedule in () if repeats else _made_by_hand(name, placement, number):
                    effort.require_s()
                    effort.spend(len(schedule.blocks) * _WORK_OF_STEADY_BLOCK)
                    repetend = steady_state(schedule, placement.num_devices)
                    if repetend is not None:
                        repeats = True
                        yield Start(repetend, name)
                        if repetend.period_per_micro_batch <= known.period_bound:
                            return


@dataclass
class Greedy(_Supply):
    """Places block after block where memory has room; on 320 devices that takes some seconds.

    It is for placements whose memory no hand-made schedule fits, and that are too large to simulate.
    """

    name: ClassVar[str] = "greedy"
    share: float = 0.2

    def _made(self, known: Known, effort: Effort) -> Iterator[Start]:
        for repetend in greedy_repetends(known.placement, known.period_bound):
            effort.require_s()
            effort.spend(len(known.placement.blocks) * _WORK_OF_GREEDY_BLOCK)
            if repetend is not None:
                yield Start(repetend, "greedy modulo scheduling")


def hand_made(placement: Placement, number: int, effort: Effort) -> Iterator[Made]:
    """Yield each hand-made schedule that is defined for a placement and fits its memory, GPipe last.

    Args:
        placement: What runs where, without optimizer blocks.
        number: Micro-batches of the schedule.
        effort: Counts the work; no schedule is begun that would end after the time limit.
    """
    for name in _BY_HAND:
        if not has_time(placement, number, effort):
            return
        for schedule in _made_by_hand(name, placement, number):
            effort.spend(len(schedule.blocks) * _WORK_OF_BLOCK)
            with contextlib.suppress(InvalidScheduleError):  # it needs more memory
                yield Made(validate(schedule), name)


def hand_made_with_modes(placement: Placement, number: int, effort: Effort) -> Iterator[Schedule | None]:
    """Yield each hand-made schedule of a placement with modes or streams, None where one does not fit."""
    makers = {name: HAND_MADE[name] for name in _BY_HAND if name in HAND_MADE}
    for _, schedule in attempts(placement, number, makers):
        effort.spend(2 * len(placement.blocks) * number * _WORK_OF_BLOCK)  # with copies two are made
        yield schedule


def turns(placement: Placement, number: int, effort: Effort) -> Iterator[Made]:
    """Yield schedules whose micro-batches take turns; same arguments as `hand_made`."""
    for schedule in in_turns(placement, number):
        effort.spend(len(schedule.blocks) * _WORK_OF_BLOCK)
        yield Made(schedule, "micro-batches in turns")


def simulated(placement: Placement, number: int, effort: Effort) -> Iterator[Made]:
    """Yield the schedule that each rule of the event simulation makes; see `hand_made`."""
    for i, rule in enumerate(RULES, 1):
        schedule = list_schedule(placement, number, rule, effort.deadline)
        effort.spend(len(placement.blocks) * number * _WORK_OF_BLOCK)
        if schedule is not None:
            yield Made(schedule, f"simulation by rule {i}")


BEGINNINGS: dict[str, tuple[Callable[[Placement, int, Effort], Iterator[Made]], float]] = {
    "hand_made": (hand_made, 1.0),
    "turns": (turns, 1.0),
    "simulated": (simulated, 0.25),
}
"""Makers of whole schedules by name, each with its share of work; most need less than this share."""


def has_time(placement: Placement, number: int, effort: Effort) -> bool:
    """Return whether another schedule made by hand would end before the time limit."""
    return len(placement.blocks) * number * _SECONDS_OF_BLOCK < effort.left_s


def _made_by_hand(name: str, placement: Placement, number: int) -> Iterator[Schedule]:
    """Yield the hand-made schedules of a name; none if the rule is not defined for the placement."""
    with contextlib.suppress(UnsuitablePlacementError):
        if name == _GROUPS:
            yield from interleavings(placement, number)
        else:
            yield HAND_MADE[name](placement, number)
