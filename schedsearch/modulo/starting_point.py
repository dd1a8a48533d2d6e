"""The answer that a search is given to begin with: its orders, on the placement that is searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from placements import Placement
from schedsearch.core.answer import SearchError, SearchResult
from schedsearch.passes.lowered import Lowered
from schedsearch.repetend import Repetend
from schedsearch.schedule import CyclicOrderError, Schedule, as_soon_as_possible
from schedsearch.starts.serial import serial_period
from schedsearch.starts.steady_state import fits, steady_state
from schedsearch.validate import InvalidScheduleError, validate

BeginWith = Schedule | SearchResult
"""What a search may be given: any schedule, or what another search found."""

GIVEN = "what the search began with"
"""Name of what finds it, in a search's progress."""

_REMEDY = "give a schedule of this placement, or leave it out"


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
    schedule, repetend = _parts(begin_with)
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
        raise SearchError(f"search.begin_with: it does not run on {here.name}: {reason}; {_REMEDY}")
    return StartingPoint(repetend, found)


def _with_modes(found: Schedule) -> Repetend | None:
    """Return the steady state of a schedule whose micro-batches all run in the same modes, if it has one."""
    chosen = tuple(dict.fromkeys(found.chosen)) or ((),)
    lowered = Lowered.of(found.placement, chosen) if len(chosen) == 1 else None
    if lowered is None:
        return None
    plain = steady_state(lowered.lowered_schedule(found), found.placement.num_devices)
    return None if plain is None else lowered.repetend(plain)


def plain_orders(begin_with: BeginWith) -> dict[str, Any]:
    """Return what a search takes of it, as plain data: the orders of the devices.

    Raises:
        SearchError: It is no schedule.
    """
    schedule, repetend = _parts(begin_with)
    lanes = range(len(schedule.placement.lanes))
    return {
        "orders": list(schedule.lane_orders),
        "cycles": [] if repetend is None else [repetend.cycle(lane) for lane in lanes],
        **({"chosen": schedule.chosen} if schedule.chosen else {}),
    }


def _parts(begin_with: BeginWith) -> tuple[Schedule, Repetend | None]:
    """Return the schedule without optimizer blocks, and the repetend that was found with it, if one was."""
    schedule, repetend = (
        (begin_with.schedule, begin_with.repetend)
        if isinstance(begin_with, SearchResult)
        else (begin_with, None)
    )
    if not isinstance(schedule, Schedule):
        raise SearchError(f"search.begin_with: there is no schedule in it; {_REMEDY}")
    schedule = schedule.per_micro_batch
    if repetend is not None and not _is_of(schedule.placement, repetend):
        raise SearchError(f"search.begin_with: its repetend is not of its own blocks; {_REMEDY}")
    return schedule, repetend


def _is_of(placement: Placement, repetend: Repetend) -> bool:
    """Return whether a repetend, which may be from a file, has every block of each of its micro-batches."""
    return repetend.micro_batches >= 1 and all(
        each.keys() == placement.by_name.keys()
        and all(len(row) == repetend.micro_batches for row in each.values())
        for each in (repetend.start, repetend.modulo_stage)
    )


def _require_same_blocks(here: Placement, there: Placement) -> None:
    mine, other = ({block.name: block.devices for block in each.blocks} for each in (here, there))
    for name in mine | other:
        if mine.get(name) != other.get(name):
            raise SearchError(
                f"search.begin_with: {name} is on {_named(other.get(name))} there, and on "
                f"{_named(mine.get(name))} in {here.name}; {_REMEDY}"
            )
    if here.num_devices != there.num_devices:
        raise SearchError(
            f"search.begin_with: it is for {there.num_devices} devices, and {here.name} for "
            f"{here.num_devices}; {_REMEDY}"
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
