"""The ends of blocks where streams of a device slow each other down: one iteration after the other.

Each iteration is run by `schedsearch.side_by_side`, which counts what is slowed down when. It takes some
milliseconds for a hundred blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from schedsearch import side_by_side
from schedsearch.schedule import Instance, Schedule
from schedsearch.simulation.conditions import ConditionsError
from schedsearch.simulation.messages import IterationSteps

_PARTS = 1000
"""Parts of a tick that are counted where times are not whole ticks."""


def ends_side_by_side(
    schedule: Schedule, steps: IterationSteps, times: Sequence[NDArray[np.float64]], iterations: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when each stream has ended its last block, and how long each block took.

    Args:
        schedule: Valid; of a placement with slowdown.
        steps: Its blocks, none of whose messages has a link.
        times: Ticks of each step in each iteration, while nothing slows it down.
        iterations: How many.

    Returns:
        Ticks; shapes ``(num_lanes, iterations)`` and ``(steps, iterations)``.

    Raises:
        ConditionsError: Blocks start together, as they swap memory, which no such iteration knows.
    """
    if len(steps.groups) < len(steps.steps):
        raise ConditionsError(
            f"schedule: blocks of {schedule.placement.name} swap memory at one tick where streams slow each "
            "other down; give them a transient, or leave `slowdown` out of the placement"
        )
    drawn = np.array(times)
    delays = [message.occupied for step in steps.steps for message in step.messages]
    is_whole = (drawn == np.round(drawn)).all() and all(each == round(each) for each in delays)
    parts = 1 if is_whole else _PARTS
    names = [step.instance for step in steps.steps]
    waits: dict[Instance, list[side_by_side.Wait]] = {each: [] for each in names}
    for step in steps.steps:
        for message in step.messages:
            ticks = round(message.occupied * parts)
            waits[names[message.target]].append(side_by_side.Wait(step.instance, ticks))
        for target in step.held_up:
            waits[names[target]].append(side_by_side.Wait(step.instance, 0, False))
    for order in schedule.lane_orders:
        for earlier, later in pairwise(order):
            waits[later].append(side_by_side.Wait(earlier, 0))
    blocks = {each: schedule.block(*each) for each in names}
    ends = np.zeros((steps.num_lanes, iterations))
    took = np.zeros((len(names), iterations))
    for i in range(iterations):
        timed = {
            each: replace(blocks[each], time=round(ticks * parts))
            for each, ticks in zip(names, drawn[:, i].tolist(), strict=True)
        }
        start, end = side_by_side.run(schedule.placement, timed, waits, {})
        took[:, i] = [(end[each] - start[each]) / parts for each in names]
        ends[:, i] = [end[order[-1]] / parts if order else 0.0 for order in schedule.lane_orders]
    return ends, took
