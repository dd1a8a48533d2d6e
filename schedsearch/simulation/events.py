"""The ends of blocks where links are shared by devices: one iteration after the other, message after message.

Messages are taken in the order in which they are there to be sent, from all links together; whatever follows
from one is there no earlier than itself. It takes about two microseconds for each block and each message.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schedsearch.simulation.messages import NO_LINK, BlockOutput, IterationSteps


def ends_by_events(
    steps: IterationSteps, times: Sequence[NDArray[np.float64]], iterations: int
) -> NDArray[np.float64]:
    """Return when each device has ended its last block; see `ends_by_recurrence`, any links."""
    graph = _Graph(steps)
    columns = np.array(times).T.tolist()
    return np.array([graph.ends(columns[i]) for i in range(iterations)]).reshape(iterations, -1).T


class _Graph:
    """Who waits for whom: for messages, and for the block before on the same device."""

    def __init__(self, steps: IterationSteps) -> None:
        self.steps = steps
        self.messages = [step.messages for step in steps.steps]
        self.next: list[list[int]] = [[] for _ in steps.steps]
        self.missing = [0] * len(steps.steps)
        last: dict[int, int] = {}
        for position, step in enumerate(steps.steps):
            for device in step.devices:
                if device in last:
                    self.next[last[device]].append(position)
                    self.missing[position] += 1
                last[device] = position
            for message in step.messages:
                self.missing[message.target] += 1
        self.last = [last.get(device, -1) for device in range(steps.num_devices)]
        self.first = [position for position, number in enumerate(self.missing) if not number]

    def ends(self, times: list[float]) -> list[float]:
        """Return the end of each device's last block in one iteration, by the ticks of each step."""
        missing, ready = self.missing.copy(), [0.0] * len(times)
        end = [0.0] * len(times)
        free_from = [0.0] * self.steps.num_links
        waiting: list[tuple[float, int, int, BlockOutput]] = []
        known = self.first.copy()
        while known or waiting:
            if known:
                position = known.pop()
                ends = end[position] = ready[position] + times[position]
                arrivals = [(each, ends) for each in self.next[position]]
                for number, message in enumerate(self.messages[position]):
                    if message.link == NO_LINK:
                        arrivals.append((message.target, ends + message.occupied))
                    else:
                        heapq.heappush(waiting, (ends, position, number, message))
            else:
                sent, _, _, message = heapq.heappop(waiting)
                link = message.link
                free_from[link] = max(sent, free_from[link]) + message.occupied
                arrivals = [(message.target, free_from[link] + message.latency)]
            for target, tick in arrivals:
                ready[target] = max(ready[target], tick)
                missing[target] -= 1
                if not missing[target]:
                    known.append(target)
        return [end[position] if position >= 0 else 0.0 for position in self.last]
