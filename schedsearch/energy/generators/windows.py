"""When the blocks of one device may run within the time that all others leave, and their best modes there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedsearch.energy.generators.rounding import TOLERANCE
from schedsearch.energy.graph import Floats, Ints

MAX_LABELS = 64
"""Labels that are kept, evenly over time."""


@dataclass(frozen=True, eq=False)
class Windows:
    """When the instances of one device may run, in the device's order.

    Attributes:
        release_ms: None starts before; shape ``(members,)``.
        due_ms: None ends later.
        gap_ms: Least time between the end of the one before and the start of each.
    """

    release_ms: Floats
    due_ms: Floats
    gap_ms: Floats


def windows_of(
    members: Ints,
    start_ms: Floats,
    end_ms: Floats,
    latest_ms: float,
    waits: tuple[Ints, Ints, Floats],
) -> Windows:
    """Return when the instances of a device may run if all others start and end at given times.

    A transfer between blocks of the device that are not neighbors keeps its place in time.

    Args:
        members: Indices of the device's instances, in its order.
        start_ms: Start of each instance.
        end_ms: End of each instance.
        latest_ms: End of the iteration.
        waits: Who is waited for, who waits, and the least time between the two.
    """
    tail, head, min_ms = waits
    place = np.full(len(start_ms), -2)
    place[members] = np.arange(len(members))
    at_head, at_tail = place[head], place[tail]
    is_next = (at_head >= 0) & (at_head == at_tail + 1)
    release, due = np.zeros(len(start_ms)), np.full(len(start_ms), latest_ms)
    gap = np.zeros(len(start_ms))
    np.maximum.at(gap, head[is_next], min_ms[is_next])
    beyond = ~((at_head >= 0) & (at_tail >= 0)) | (~is_next & (min_ms > 0))
    entering, leaving = (at_head >= 0) & beyond, (at_tail >= 0) & beyond
    np.maximum.at(release, head[entering], (end_ms[tail] + min_ms)[entering])
    np.minimum.at(due, tail[leaving], (start_ms[head] - min_ms)[leaving])
    slip_ms = TOLERANCE * latest_ms
    return Windows(release[members] - slip_ms, due[members] + slip_ms, gap[members])


def best_within(windows: Windows, time_ms: Floats, cost_mj: Floats) -> Ints | None:
    """Return the modes of least cost with which a device keeps its windows, or None without any.

    Goes through the device's order and keeps the choices so far, called labels, that no other beats in both
    end and cost; of those that end at nearly the same time, only the first, so that there are at most
    `MAX_LABELS` (a label-setting program).

    Args:
        windows: Windows of the device.
        time_ms: Time of each member in each mode; infinite where it has fewer; shape ``(members, modes)``.
        cost_mj: Likewise.
    """
    end, cost = np.zeros(1), np.zeros(1)
    steps: list[tuple[Ints, Ints]] = []
    limits = zip(windows.release_ms, windows.due_ms, windows.gap_ms, strict=True)
    for k, (release, due, gap) in enumerate(limits):
        ends = np.maximum(end + gap, release)[:, None] + time_ms[k]
        label, mode = np.nonzero(ends <= due)
        if not len(label):
            return None
        ends, costs = ends[label, mode], cost[label] + cost_mj[k][mode]
        order = np.lexsort((costs, ends))
        least = np.minimum.accumulate(costs[order])
        order = order[costs[order] < np.concatenate([[np.inf], least[:-1]])]
        if len(order) > MAX_LABELS:
            first, last = ends[order[0]], ends[order[-1]]
            cell = ((ends[order] - first) * ((MAX_LABELS - 1) / (last - first))).astype(np.int64)
            order = order[np.unique(cell, return_index=True)[1]]
        end, cost = ends[order], costs[order]
        steps.append((label[order], mode[order]))
    best = int(cost.argmin())
    choice = np.empty(len(steps), dtype=np.int64)
    for k in range(len(steps) - 1, -1, -1):
        label, mode = steps[k]
        choice[k], best = mode[best], int(label[best])
    return choice
