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
    """Return when each device has ended its last block.

    Args:
        steps: None of whose links is shared.
        times: Ticks of each step in each iteration.
        iterations: How many.

    Returns:
        Ticks; shape ``(num_devices, iterations)``.
    """
    idle_from = np.zeros((steps.num_devices, iterations))
    free_from = np.zeros((steps.num_links, iterations))
    ready: dict[int, NDArray[np.float64]] = {}
    for position, (step, time) in enumerate(zip(steps.steps, times, strict=True)):
        end = idle_from[list(step.devices)].max(axis=0)
        if position in ready:
            np.maximum(end, ready.pop(position), out=end)
        end += time
        for device in step.devices:
            idle_from[device] = end
        for message in step.messages:
            there = end + message.occupied
            if message.link != NO_LINK:
                there = np.maximum(end, free_from[message.link]) + message.occupied
                free_from[message.link] = there
                there = there + message.latency
            known = ready.get(message.target)
            ready[message.target] = there if known is None else np.maximum(known, there)
    return idle_from
