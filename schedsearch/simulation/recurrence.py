"""The ends of blocks where the order of all messages is known: a maximum and a sum, all iterations at once.

Each device runs its blocks in order, so what one device sends over a link is in order too. A block starts at
the latest of known ends, as in a timed event graph (max-plus algebra). It takes some microseconds for each
block and a thousand iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    last = np.zeros((steps.num_lanes, iterations))
    for position, end in ends_of_steps(steps, times, iterations):
        for lane in steps.steps[position].lanes:
            last[lane] = end
    return last


def ends_of_steps(
    steps: IterationSteps,
    times: Sequence[NDArray[np.float64]],
    iterations: int,
    earliest: Mapping[int, NDArray[np.float64]] | None = None,
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the position of each step and its end, in ticks, those of a stream in order.

    Args:
        steps: None of whose links is shared.
        times: Ticks of each step in each iteration.
        iterations: How many.
        earliest: Ticks before which a step does not start, by position, as that of a request that comes.
    """
    idle_from = np.zeros((steps.num_lanes, iterations))
    free_from = np.zeros((steps.num_links, iterations))
    ready = dict(earliest or {})

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
            yield position, end
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
