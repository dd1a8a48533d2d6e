"""When the blocks of one device may run within the time that all others leave, and their best modes there.

A device's order is gone through once. Ways so far, called labels, are kept that no other beats in both end
and cost. Where changes of clock take time, or may not follow each other closely, that is so for each clock of
the last block; a label goes on at its clock at once, or at another one after the latency, if its stretch has
lasted for the dwell (a label-setting program).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.rounding import TOLERANCE

SHARES_OF_SLACK = (0.5, 0.0, 1.0)
"""When the other devices run within their slack: in the middle, as early as they can, or as late."""


MOST_LABELS = 64
"""Labels that are kept, of all clocks where changes are free, evenly over time."""

MOST_OF_CLOCK = 8
"""Labels that are kept for each clock of the last block where changes are not."""

MOST_CHANGING = 24
"""Labels, of all clocks, from which a change is tried."""


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
    delay_ms: Floats | None = None,
) -> Windows:
    """Return when the instances of a device may run if all others start and end at given times.

    A transfer between blocks of the device that are not neighbors keeps its place in time.

    Args:
        members: Indices of the device's instances, in its order.
        start_ms: Of each instance.
        end_ms: Of each instance.
        latest_ms: End of the iteration.
        waits: Who is waited for, who waits, and the least time between the two.
        delay_ms: Time between the two at the clocks of now; by default the least.
    """
    tail, head, min_ms = waits
    delay = min_ms if delay_ms is None else delay_ms
    place = np.full(len(start_ms), -2)
    place[members] = np.arange(len(members))
    at_head, at_tail = place[head], place[tail]
    is_next = (at_head >= 0) & (at_head == at_tail + 1)
    release, due = np.zeros(len(start_ms)), np.full(len(start_ms), latest_ms)
    gap = np.zeros(len(start_ms))
    np.maximum.at(gap, head[is_next], min_ms[is_next])
    beyond = ~((at_head >= 0) & (at_tail >= 0)) | (~is_next & (min_ms > 0))
    entering, leaving = (at_head >= 0) & beyond, (at_tail >= 0) & beyond
    np.maximum.at(release, head[entering], (end_ms[tail] + delay)[entering])
    np.minimum.at(due, tail[leaving], (start_ms[head] - delay)[leaving])
    slip_ms = TOLERANCE * latest_ms
    return Windows(release[members] - slip_ms, due[members] + slip_ms, gap[members])


@dataclass(frozen=True, eq=False)
class _Labels:
    """Ways so far along a device's order.

    Attributes:
        end_ms: Of the last block; shape ``(labels,)``.
        cost_mj: So far.
        mode: Of the last block.
        since_ms: Start of the last stretch of one mode.
        back: Which label before it continues.
    """

    end_ms: Floats
    cost_mj: Floats
    mode: Ints
    since_ms: Floats
    back: Ints

    @classmethod
    def of_all(cls, groups: Sequence[_Labels]) -> _Labels:
        """Return the labels of all groups together."""
        return cls(
            np.concatenate([each.end_ms for each in groups]),
            np.concatenate([each.cost_mj for each in groups]),
            np.concatenate([each.mode for each in groups]),
            np.concatenate([each.since_ms for each in groups]),
            np.concatenate([each.back for each in groups]),
        )

    def take(self, rows: Ints) -> _Labels:
        """Return some of them."""
        return _Labels(
            self.end_ms[rows], self.cost_mj[rows], self.mode[rows], self.since_ms[rows], self.back[rows]
        )


def best_within(
    windows: Windows, time_ms: Floats, cost_mj: Floats, latency_ms: float = 0.0, dwell_ms: float = 0.0
) -> Ints | None:
    """Return the modes of least cost with which a device keeps its windows, or None where none was found.

    Args:
        windows: Of the device.
        time_ms: Of each member in each mode, infinite where it has it not; shape ``(members, modes)``. With
            a latency or a dwell, a column is the same clock for all.
        cost_mj: Likewise.
        latency_ms: Between blocks of different clocks, at least.
        dwell_ms: From the start of a stretch to that of the next; the first and the last may be shorter.
    """
    is_free = latency_ms == dwell_ms == 0
    zero = np.zeros(1)
    labels = _Labels(zero, zero, np.full(1, -1), np.full(1, -np.inf), np.zeros(1, dtype=np.int64))
    steps: list[_Labels] = []
    limits = zip(windows.release_ms, windows.due_ms, windows.gap_ms, strict=True)
    for k, (release, due, gap) in enumerate(limits):
        found = _changed(
            labels, max(gap, latency_ms if k else 0.0), release, dwell_ms, time_ms[k], cost_mj[k]
        )
        if k and not is_free:
            found = [_unchanged(labels, gap, release, time_ms[k], cost_mj[k]), *found]
        if not found:
            return None
        ways = _Labels.of_all(found)
        ways = ways.take(np.flatnonzero(ways.end_ms <= due))
        if not len(ways.end_ms):
            return None
        ripe = ways.end_ms - ways.since_ms >= dwell_ms
        group = np.zeros_like(ways.mode) if is_free else 2 * ways.mode + ripe
        labels = ways.take(_undominated(ways, group, MOST_LABELS if is_free else MOST_OF_CLOCK))
        steps.append(labels)
    best = int(labels.cost_mj.argmin())
    choice = np.empty(len(steps), dtype=np.int64)
    for k in range(len(steps) - 1, -1, -1):
        choice[k], best = steps[k].mode[best], int(steps[k].back[best])
    return choice


def _unchanged(
    labels: _Labels, gap_ms: float, release_ms: float, time_ms: Floats, cost_mj: Floats
) -> _Labels:
    """Return the labels with one block more at the clock of their last."""
    start = np.maximum(labels.end_ms + gap_ms, release_ms)
    with np.errstate(invalid="ignore"):
        return _Labels(
            start + time_ms[labels.mode],
            labels.cost_mj + cost_mj[labels.mode],
            labels.mode,
            labels.since_ms,
            np.arange(len(start)),
        )


def _changed(
    labels: _Labels, gap_ms: float, release_ms: float, dwell_ms: float, time_ms: Floats, cost_mj: Floats
) -> list[_Labels]:
    """Return the labels with one block more in any mode, of those whose stretch may end."""
    start = np.maximum(labels.end_ms + gap_ms, release_ms)
    ready = replace(labels, end_ms=start, back=np.arange(len(start)))
    ready = ready.take(np.flatnonzero(start - labels.since_ms >= dwell_ms))
    if not len(ready.end_ms):
        return []
    if len(ready.end_ms) > MOST_LABELS:  # of many clocks, so that changes are not free
        ready = ready.take(_undominated(ready, np.zeros_like(ready.mode), MOST_CHANGING))
    label, mode = np.nonzero(np.broadcast_to(np.isfinite(time_ms), (len(ready.end_ms), len(time_ms))))
    begun = ready.end_ms[label]
    return [
        _Labels(begun + time_ms[mode], ready.cost_mj[label] + cost_mj[mode], mode, begun, ready.back[label])
    ]


def _undominated(labels: _Labels, group: Ints, most: int) -> Ints:
    """Return the labels that no other of their group beats in end and cost; of many, some evenly in time."""
    order = np.lexsort((labels.cost_mj, labels.end_ms, group))
    apart = 2 * float(np.ptp(labels.cost_mj)) + 1.0
    cost = labels.cost_mj[order] - apart * group[order]  # below all of the groups before
    order = order[cost < np.concatenate([[np.inf], np.minimum.accumulate(cost)[:-1]])]
    end, kept = labels.end_ms[order], group[order]
    first, last = float(end.min()), float(end.max())
    if np.bincount(kept).max() > most and last > first:
        cell = ((end - first) * ((most - 1) / (last - first))).astype(np.int64)
        order = order[np.unique(kept * most + cell, return_index=True)[1]]
    return order
