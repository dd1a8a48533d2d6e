"""What a search begins with: greedy repetends and those of hand-made schedules, and simulated schedules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from placements import Placement
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.baselines.interleaved import interleavings
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort
from schedsearch.starts.event_simulation import RULES, list_schedule
from schedsearch.starts.greedy_repetends import greedy_repetends
from schedsearch.starts.steady_state import steady_state

_WORK_OF_BLOCK = 1e-5
"""Units of work for a block of a hand-made schedule and of its steady state."""

_WORK_OF_SIMULATED_BLOCK = 1.5e-5
"""Work of a block of one simulated schedule."""

_WORK_OF_GREEDY_BLOCK = 1.5e-4
"""Work of a block of one greedy repetend."""


_SECONDS_OF_BLOCK = 2.5e-5
"""Seconds that a block of a hand-made schedule takes on a slow machine: none is begun that would end late."""


class Start(NamedTuple):
    """A repetend to begin with, and the name of what made it."""

    repetend: Repetend
    made_by: str


def hand_made(placement: Placement, num_micro_batches: int, effort: Effort) -> Iterator[tuple[str, Schedule]]:
    """Yield each hand-made schedule that is defined for a placement, with its name, whatever it holds.

    GPipe is the last. None is begun that would end after the time limit.
    """
    for name, make in _makers():
        if not _has_time(placement, num_micro_batches, effort):
            return
        for schedule in make(placement, num_micro_batches):
            yield name, schedule


def _has_time(placement: Placement, num_micro_batches: int, effort: Effort) -> bool:
    return len(placement.blocks) * num_micro_batches * _SECONDS_OF_BLOCK < effort.left_s


def _makers() -> Iterator[tuple[str, Callable[[Placement, int], Iterator[Schedule]]]]:
    """Yield a name and what makes the schedules so called, none where they are not defined."""

    def one(name: str, placement: Placement, number: int) -> Iterator[Schedule]:
        with contextlib.suppress(UnsuitablePlacementError):
            yield HAND_MADE[name](placement, number)

    def several(placement: Placement, number: int) -> Iterator[Schedule]:
        with contextlib.suppress(UnsuitablePlacementError):
            yield from interleavings(placement, number)

    yield from ((name, partial(one, name)) for name in HAND_MADE if name != "gpipe")
    yield "interleaved in groups", several
    yield "gpipe", partial(one, "gpipe")


def simulated(placement: Placement, num_micro_batches: int, effort: Effort) -> Iterator[tuple[str, Schedule]]:
    """Yield the schedule that each rule makes under the placement's memory, with a name.

    Args:
        placement: What runs where, without optimizer blocks.
        num_micro_batches: Micro-batches of the schedule.
        effort: Told what is done; none is made after its time limit.
    """
    for number, rule in enumerate(RULES, 1):
        schedule = list_schedule(placement, num_micro_batches, rule, effort.deadline)
        effort.spend(len(placement.blocks) * num_micro_batches * _WORK_OF_SIMULATED_BLOCK)
        if schedule is not None:
            yield f"simulation by rule {number}", schedule


def hand_made_repetends(placement: Placement, enough: Fraction, effort: Effort) -> Iterator[Start]:
    """Yield the repetends of hand-made schedules.

    These are of up to as many micro-batches as there are devices: interleaved 1F1B repeats after so many.

    Args:
        placement: What runs where, without optimizer blocks.
        enough: Ticks per micro-batch that no repetend beats; none is sought once it is reached.
        effort: Told what is done.

    Raises:
        OutOfTimeError: The time limit is over.
        KeyboardInterrupt: There was a Ctrl-C.
    """
    depth = max(placement.num_devices, 2)
    for name, make in _makers():
        repeats = False
        for times in (4, 6):  # some repeat only after a long warmup
            effort.require_s()
            if not _has_time(placement, times * depth, effort):
                return
            for schedule in () if repeats else make(placement, times * depth):
                effort.require_s()
                effort.spend(len(schedule.blocks) * _WORK_OF_BLOCK)
                repetend = steady_state(schedule, placement.num_devices)
                if repetend is not None:
                    repeats = True
                    yield Start(repetend, name)
                    if repetend.period_per_micro_batch <= enough:
                        return


def greedy_starts(placement: Placement, bound: Fraction, effort: Effort) -> Iterator[Start]:
    """Yield the greedy repetend of one micro-batch, if there is one.

    It is for placements whose memory no hand-made schedule fits, and that are too large to simulate.

    Args:
        placement: What runs where, without optimizer blocks.
        bound: Ticks per micro-batch that no repetend beats.
        effort: Told what is done.

    Raises:
        OutOfTimeError: The time limit is over.
        KeyboardInterrupt: There was a Ctrl-C.
    """
    for repetend in greedy_repetends(placement, bound):
        effort.require_s()
        effort.spend(len(placement.blocks) * _WORK_OF_GREEDY_BLOCK)
        if repetend is not None:
            yield Start(repetend, "greedy modulo scheduling")
