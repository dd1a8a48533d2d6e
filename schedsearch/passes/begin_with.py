"""The answer that a search is given to begin with: its orders, on the placement that is searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placements import Placement
from schedsearch.core.answer import SearchError
from schedsearch.core.problem import REMEDY, BeginWith, parts_of
from schedsearch.passes.lowered import Lowered
from schedsearch.repetend import Repetend
from schedsearch.schedule import CyclicOrderError, Schedule, as_soon_as_possible
from schedsearch.starts.serial import serial_period
from schedsearch.starts.steady_state import fits, steady_state
from schedsearch.validate import InvalidScheduleError, validate


class StartingPoint(NamedTuple):
    """What there is to begin with on the placement that is searched.

    Attributes:
        repetend: Repetend with the least period of its order; None where there is none that fits.
        schedule: Schedule of the number of micro-batches that is asked for, without optimizer blocks; None
            likewise.
    """

    repetend: Repetend | None = None
    schedule: Schedule | None = None


def starting_point_on(placement: Placement, num_micro_batches: int, begin_with: BeginWith) -> StartingPoint:
    """Return what a search is given, every block as early as the orders let it be.

    Times, transfers and memory may be others than those with which it was found. Of another number of
    micro-batches, only the steady state is taken.

    Args:
        placement: What is searched.
        num_micro_batches: Micro-batches of the schedule that is asked for.
        begin_with: A schedule, whose steady state is looked for, or a result, whose repetend is taken.

    Raises:
        SearchError: It is no schedule, of other blocks, or nothing of it can be run on the placement.
    """
    schedule, repetend = parts_of(begin_with)
    here, there = placement.per_micro_batch, schedule.placement
    _require_same_blocks(here, there)
    found: Schedule | None = None
    reason = ""
    try:
        found = validate(
            as_soon_as_possible(
                here,
                schedule.num_micro_batches,
                schedule.lane_orders,
                schedule.chosen,
                schedule.memory_waits,
            )
        )
    except CyclicOrderError as error:
        reason = str(error)
    except InvalidScheduleError as error:
        reason = error.reason
    if not here.is_plain:
        repetend = None if found is None else _with_modes(found)
    elif repetend is not None:
        repetend = _on(here, repetend)
    elif found is not None:
        repetend = steady_state(found, here.num_devices)
    if found is not None and found.num_micro_batches != num_micro_batches:
        found = None
        reason = f"it has {schedule.num_micro_batches} micro-batches, and no steady state"
    if found is None and repetend is None:
        raise SearchError(f"search.begin_with: it does not run on {here.name}: {reason}; {REMEDY}")
    return StartingPoint(repetend, found)


def _with_modes(found: Schedule) -> Repetend | None:
    """Return the steady state of a schedule whose micro-batches all run in the same modes, if it has one."""
    chosen = tuple(dict.fromkeys(found.chosen)) or ((),)
    lowered = Lowered.of(found.placement, chosen) if len(chosen) == 1 else None
    if lowered is None:
        return None
    plain = steady_state(lowered.lowered_schedule(found), found.placement.num_devices)
    return None if plain is None else lowered.repetend(plain)


def _require_same_blocks(here: Placement, there: Placement) -> None:
    mine, other = ({block.name: block.devices for block in each.blocks} for each in (here, there))
    for name in mine | other:
        if mine.get(name) != other.get(name):
            raise SearchError(
                f"search.begin_with: {name} is on {_named(other.get(name))} there, and on "
                f"{_named(mine.get(name))} in {here.name}; {REMEDY}"
            )
    if here.num_devices != there.num_devices:
        raise SearchError(
            f"search.begin_with: it is for {there.num_devices} devices, and {here.name} for "
            f"{here.num_devices}; {REMEDY}"
        )


def _named(devices: Sequence[int] | None) -> str:
    if devices is None:
        return "no device"
    return f"device{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"


def _on(placement: Placement, repetend: Repetend) -> Repetend | None:
    """Return a repetend's orders on a placement of the same blocks; None where they do not run or fit."""
    size = repetend.micro_batches
    cycles = [repetend.cycle(device) for device in range(placement.num_devices)]
    found = Repetend.of_min_period(placement, size, cycles, 1, size * serial_period(placement))
    return found if found is not None and fits(found) else None
