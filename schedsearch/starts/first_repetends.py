"""The repetends that a search begins with: steady states of hand-made and of simulated schedules."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction

from placements import Placement
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.baselines.interleaved import interleavings
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.starts.event_simulation import RULES, simulate
from schedsearch.starts.steady_state import steady_state


def hand_made(placement: Placement, num_micro_batches: int) -> Iterator[Schedule]:
    """Yield each hand-made schedule that is defined for a placement, whatever it holds, latest first."""
    for make in reversed(HAND_MADE.values()):
        with contextlib.suppress(UnsuitablePlacementError):
            yield make(placement, num_micro_batches)
    with contextlib.suppress(UnsuitablePlacementError):
        yield from interleavings(placement, num_micro_batches)


def simulated(placement: Placement, num_micro_batches: int) -> Iterator[Schedule]:
    """Yield the schedule that each rule makes under the placement's memory."""
    for rule in RULES:
        schedule = simulate(placement, num_micro_batches, rule)
        if schedule is not None:
            yield schedule


def hand_made_repetends(placement: Placement, enough: Fraction, time_limit_s: float) -> dict[int, Repetend]:
    """Return the best repetend of a hand-made schedule for each number of micro-batches per repetend.

    These are up to as many as there are devices: interleaved 1F1B repeats after so many.

    Args:
        placement: What runs where, without optimizer blocks.
        enough: Ticks per micro-batch that no repetend beats; none is sought once it is reached.
        time_limit_s: Seconds after which no more are made.
    """
    schedules = hand_made(placement, 6 * max(placement.num_devices, 2))
    return _steady_states(schedules, placement.num_devices, enough, time_limit_s)


def simulated_repetends(
    placement: Placement, most_micro_batches: int, enough: Fraction, time_limit_s: float
) -> dict[int, Repetend]:
    """Return likewise those of simulated schedules, of up to so many micro-batches per repetend."""
    schedules = simulated(placement, 4 * max(placement.num_devices, 2))
    return _steady_states(schedules, most_micro_batches, enough, time_limit_s)


def _steady_states(
    schedules: Iterable[Schedule], most_micro_batches: int, enough: Fraction, time_limit_s: float
) -> dict[int, Repetend]:
    deadline = time.monotonic() + time_limit_s
    best: dict[int, Repetend] = {}
    for schedule in schedules:
        INTERRUPTS.raise_if_seen()
        repetend = steady_state(schedule, most_micro_batches)
        if repetend is not None:
            size = repetend.micro_batches
            if size not in best or repetend.period < best[size].period:
                best[size] = repetend
            if Fraction(repetend.period, size) <= enough:
                return {size: repetend}
        if time.monotonic() > deadline:
            break
    return best
