"""The repetends that a search begins with: steady states of hand-made and of simulated schedules."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from fractions import Fraction

from placements import Placement
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.baselines.interleaved import interleavings
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.starts.event_simulation import RULES, simulate
from schedsearch.starts.steady_state import steady_state


def first_repetends(
    placement: Placement, most_micro_batches: int, enough: Fraction, time_limit_s: float
) -> dict[int, Repetend]:
    """Return the best repetend found without a solver for each number of micro-batches per repetend.

    Args:
        placement: What runs where, without optimizer blocks.
        most_micro_batches: Per repetend of a simulated schedule; one made by hand may repeat after as many as
            there are devices, as interleaved 1F1B does.
        enough: Ticks per micro-batch that no repetend beats; none is sought once it is reached.
        time_limit_s: Seconds after which no more are made.
    """
    deadline = time.monotonic() + time_limit_s
    best: dict[int, Repetend] = {}
    for repetend in _steady_states(placement, most_micro_batches):
        INTERRUPTS.raise_if_seen()
        size = repetend.micro_batches
        if size not in best or repetend.period < best[size].period:
            best[size] = repetend
        if Fraction(repetend.period, size) <= enough:
            return {size: repetend}
        if time.monotonic() > deadline:
            break
    return best


def _steady_states(placement: Placement, most_micro_batches: int) -> Iterator[Repetend]:
    """Yield the steady state of each schedule that has one, those made by hand first, latest rules first."""
    enough = max(placement.num_devices, 2)
    for schedule in hand_made(placement, 6 * enough):
        yield from _steady_state(schedule, placement.num_devices)
    for rule in RULES:
        simulated = simulate(placement, 4 * enough, rule)
        if simulated is not None:
            yield from _steady_state(simulated, most_micro_batches)


def hand_made(placement: Placement, num_micro_batches: int) -> Iterator[Schedule]:
    """Yield each hand-made schedule that is defined for a placement, whatever it holds, latest first."""
    for make in reversed(HAND_MADE.values()):
        with contextlib.suppress(UnsuitablePlacementError):
            yield make(placement, num_micro_batches)
    with contextlib.suppress(UnsuitablePlacementError):
        yield from interleavings(placement, num_micro_batches)


def _steady_state(schedule: Schedule, most: int) -> Iterator[Repetend]:
    """Yield the steady state that fits in memory, if there is one; warmup and cooldown may need more."""
    repetend = steady_state(schedule, most)
    if repetend is not None:
        yield repetend
