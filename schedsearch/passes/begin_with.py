"""The given start of a search: the orders of a schedule or an answer, on the searched placement."""

from __future__ import annotations

from typing import Any

from placements import Placement
from schedsearch.core.answer import Answer, SearchError
from schedsearch.core.problem import BeginWith
from schedsearch.passes.lowered import Lowered
from schedsearch.repetend import Repetend
from schedsearch.schedule import CyclicOrderError, Schedule, as_soon_as_possible
from schedsearch.starts.serial import serial_period
from schedsearch.starts.steady_state import fits, steady_state
from schedsearch.validate import InvalidScheduleError, validate

_REMEDY = "give a schedule of this placement, or leave it out"


def starting_point_on(
    placement: Placement, num_micro_batches: int, begin_with: BeginWith
) -> tuple[Repetend | None, Schedule | None]:
    """Put the orders of a given start on the searched placement, with every block as early as possible.

    Times, transfers and memory may differ from the given ones. If the number of micro-batches differs,
    only the steady state is used.

    Args:
        placement: The searched placement.
        num_micro_batches: Micro-batches of the schedule asked for.
        begin_with: A schedule, whose steady state is used, or an answer, whose repetend is used.

    Raises:
        SearchError: It is no schedule, of other blocks, or nothing of it can be run on the placement.
    """
    given: Any = begin_with
    schedule, repetend = (given.schedule, given.repetend) if isinstance(given, Answer) else (given, None)
    if not isinstance(schedule, Schedule):
        raise SearchError(f"search.begin_with: there is no schedule in it; {_REMEDY}")
    schedule, here = schedule.per_micro_batch, placement.per_micro_batch
    _require_same_blocks(here, schedule.placement)
    if repetend is not None and not _is_of(schedule.placement, repetend):
        raise SearchError(f"search.begin_with: its repetend is not of its own blocks; {_REMEDY}")
    number, adapted, reason = schedule.num_micro_batches, None, ""
    try:
        adapted = validate(
            as_soon_as_possible(here, number, schedule.lane_orders, schedule.chosen, schedule.memory_waits)
        )
    except CyclicOrderError as error:
        reason = str(error)
    except InvalidScheduleError as error:
        reason = error.reason
    if not here.is_plain:
        repetend = None if adapted is None else _with_modes(adapted)
    elif repetend is not None:
        cycles = [repetend.cycle(device) for device in range(here.num_devices)]
        longest = repetend.micro_batches * serial_period(here)
        repetend = Repetend.of_min_period(here, repetend.micro_batches, cycles, 1, longest)
        repetend = repetend if repetend is not None and fits(repetend) else None
    elif adapted is not None:
        repetend = steady_state(adapted, here.num_devices)
    if adapted is not None and number != num_micro_batches:
        adapted, reason = None, f"it has {number} micro-batches, and no steady state"
    if adapted is None and repetend is None:
        raise SearchError(f"search.begin_with: it does not run on {here.name}: {reason}; {_REMEDY}")
    return repetend, adapted


def _with_modes(schedule: Schedule) -> Repetend | None:
    """Return the steady state of a schedule whose micro-batches all have the same modes; None for others."""
    chosen = tuple(dict.fromkeys(schedule.chosen)) or ((),)
    lowered = Lowered.of(schedule.placement, chosen) if len(chosen) == 1 else None
    if lowered is None:
        return None
    plain = steady_state(lowered.lowered_schedule(schedule), schedule.placement.num_devices)
    return None if plain is None else lowered.repetend(plain)


def _require_same_blocks(here: Placement, there: Placement) -> None:
    def named(devices: tuple[int, ...]) -> str:
        return f"device{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"

    mine, other = (
        {block.name: named(block.devices) for block in placement.blocks}
        | {"the whole": f"{placement.num_devices} devices"}
        for placement in (here, there)
    )
    for name in mine | other:
        if mine.get(name) != other.get(name):
            raise SearchError(
                f"search.begin_with: {name} is on {other.get(name, 'no device')} there, and on "
                f"{mine.get(name, 'no device')} in {here.name}; {_REMEDY}"
            )


def _is_of(placement: Placement, repetend: Repetend) -> bool:
    """Return whether a repetend, which may be from a file, has every block of each of its micro-batches."""
    return repetend.micro_batches >= 1 and all(
        table.keys() == placement.by_name.keys()
        and all(len(row) == repetend.micro_batches for row in table.values())
        for table in (repetend.start, repetend.modulo_stage)
    )
