"""The ends of blocks where the order of all messages is known: a maximum and a sum, all iterations at once.

Each device runs its blocks in order, so what one device sends over a link is in order too. A block starts at
the latest of known ends, as in a timed event graph (max-plus algebra). It takes some microseconds for each
block and a thousand iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schedsearch.simulation.messages import NO_LINK, IterationSteps


def ends_by_recurrence(
    steps: IterationSteps, times: Sequence[NDArray[np.float64]], iterations: int
) -> NDArray[np.float64]:
    """Return when each stream of a device has ended its last block.

    Args:
        steps: None of whose links is shared.
        times: Ticks of each step in each iteration.
        iterations: How many.

    Returns:
        Ticks; shape ``(num_lanes, iterations)``.
    """
    idle_from = np.zeros((steps.num_lanes, iterations))
    free_from = np.zeros((steps.num_links, iterations))
    ready: dict[int, NDArray[np.float64]] = {}

    def hold_up(target: int, tick: NDArray[np.float64]) -> None:
        known = ready.get(target)
        ready[target] = tick if known is None else np.maximum(known, tick)

    for group in steps.groups:
        start = idle_from[[lane for position in group for lane in steps.steps[position].lanes]].max(axis=0)
        for position in group:
            if position in ready:
                np.maximum(start, ready.pop(position), out=start)
        for position in group:
            step = steps.steps[position]
            end = start + times[position]
            for lane in step.lanes:
                idle_from[lane] = end
            for message in step.messages:
                there = end + message.occupied
                if message.link != NO_LINK:
                    there = np.maximum(end, free_from[message.link]) + message.occupied
                    free_from[message.link] = there
                    there = there + message.latency
                hold_up(message.target, there)
            for target in step.held_up:
                if target not in group:
                    hold_up(target, start)
    return idle_from
