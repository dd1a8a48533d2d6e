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
    """Return when each stream has ended its last block; see `ends_by_recurrence`, any links."""
    graph = _Graph(steps)
    columns = np.array(times).T.tolist()
    return np.array([graph.ends(columns[i]) for i in range(iterations)]).reshape(iterations, -1).T


class _Graph:
    """Who waits for whom: for messages, for the block before on the same stream, and for memory.

    What starts together waits together: `missing` and `ready` are of groups of blocks.
    """

    def __init__(self, steps: IterationSteps) -> None:
        self.steps = steps
        self.messages = [step.messages for step in steps.steps]
        self.group_of = {position: i for i, group in enumerate(steps.groups) for position in group}
        self.next: list[list[int]] = [[] for _ in steps.steps]
        self.held_up = [
            [each for each in step.held_up if self.group_of[each] != self.group_of[position]]
            for position, step in enumerate(steps.steps)
        ]
        self.missing = [0] * len(steps.groups)
        last: dict[int, int] = {}
        for position, step in enumerate(steps.steps):
            for lane in step.lanes:
                if lane in last:
                    self.next[last[lane]].append(position)
                    self.missing[self.group_of[position]] += 1
                last[lane] = position
            for target in (*(message.target for message in step.messages), *self.held_up[position]):
                self.missing[self.group_of[target]] += 1
        self.last = [last.get(lane, -1) for lane in range(steps.num_lanes)]
        self.first = [group for group, number in enumerate(self.missing) if not number]

    def ends(self, times: list[float]) -> list[float]:
        """Return the end of each stream's last block in one iteration, by the ticks of each step."""
        missing, ready = self.missing.copy(), [0.0] * len(self.missing)
        end = [0.0] * len(times)
        free_from = [0.0] * self.steps.num_links
        waiting: list[tuple[float, int, int, BlockOutput]] = []
        known = self.first.copy()
        while known or waiting:
            arrivals: list[tuple[int, float]] = []
            if known:
                group = known.pop()
                for position in self.steps.groups[group]:
                    ends = end[position] = ready[group] + times[position]
                    arrivals += [(each, ready[group]) for each in self.held_up[position]]
                    arrivals += [(each, ends) for each in self.next[position]]
                    for number, message in enumerate(self.messages[position]):
                        if message.link == NO_LINK:
                            arrivals.append((message.target, ends + message.occupied))
                        else:
                            heapq.heappush(waiting, (ends, position, number, message))
            else:
                sent, _, _, message = heapq.heappop(waiting)
                link = message.link
                free_from[link] = max(sent, free_from[link]) + message.occupied
                arrivals.append((message.target, free_from[link] + message.latency))
            for target, tick in arrivals:
                group = self.group_of[target]
                ready[group] = max(ready[group], tick)
                missing[group] -= 1
                if not missing[group]:
                    known.append(group)
        return [end[position] if position >= 0 else 0.0 for position in self.last]
