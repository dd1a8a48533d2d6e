"""Modes that a schedule chose, kept: what is left is a plain placement, which is worked on."""

from __future__ import annotations

from typing import NamedTuple

from placements import Placement
from schedsearch.passes.lowered import Lowered
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.starts.serial import serial_repetend
from schedsearch.starts.steady_state import steady_state

_MAX_BLOCKS = 2000
"""Blocks of the largest placement that is made of the micro-batches of a schedule with their modes."""


class KeptModes(NamedTuple):
    """What is worked on.

    Attributes:
        lowered: The placement with these modes.
        schedule: The schedule that chose them, on its plain placement.
        repetend: A repetend there.
        is_own: Whether that is the repetend given, with its own modes.
    """

    lowered: Lowered
    schedule: Schedule
    repetend: Repetend
    is_own: bool


def lower(placement: Placement, repetend: Repetend, base: Schedule) -> KeptModes | None:
    """Return the plain placement with the modes of a schedule.

    Args:
        placement: With decisions.
        repetend: One of it, which is kept where it has these modes.
        base: The schedule, without optimizer blocks.

    Returns:
        None where what is left cannot be said without modes and streams, or is too large.
    """
    chosen = _shortest(base.chosen) or ((),)
    if base.num_micro_batches % len(chosen):
        chosen = base.chosen
    is_small = len(chosen) * len(placement.blocks) <= _MAX_BLOCKS
    lowered = Lowered.of(placement, chosen) if is_small else None
    if lowered is None:
        return None
    begun, is_own = lowered.lowered_schedule(base), repetend.chosen == chosen
    own = lowered.lowered_repetend(repetend) if is_own else _repeating(begun)
    return None if own is None else KeptModes(lowered, begun, own, is_own)


def _repeating(schedule: Schedule) -> Repetend | None:
    """Return a repetend of a plain placement to go with a schedule: its steady state, or it as a whole."""
    if schedule.num_micro_batches == 1:
        return Repetend.from_first_starts(schedule.placement, 1, schedule.makespan, schedule.start_of)
    found = steady_state(schedule, schedule.placement.num_devices)
    return found or serial_repetend(schedule.placement)


def _shortest(chosen: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Return the shortest part of which the choices of some micro-batches are a repetition."""
    for size in range(1, len(chosen)):
        if len(chosen) % size == 0 and chosen == chosen[:size] * (len(chosen) // size):
            return chosen[:size]
    return chosen
