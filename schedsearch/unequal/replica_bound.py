"""Lower bounds over all assignments of micro-batches to replicas, in any order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedsearch.unequal.replica_work import ReplicaWork

_SAFE = 1e-6
"""Share of a linear program's answer that may be an error of rounding."""


def replica_bound(work: ReplicaWork, span: bool = False) -> int:
    """Return ticks in which no assignment and no order ends on all replicas.

    It is the largest of three. The longest micro-batch takes its path where that is shortest. Of the micro-
    batches that load a device most, some replica has at least the average, and `_shared` says how many. And a
    linear program assigns parts of micro-batches: each device of each replica has its load, what must come
    before and after it, and memory times the least time for which it is held. For the `span`, each device
    counts by its own clock, so that nothing comes before and after.
    """
    replicas, _, number = work.times.shape
    device = np.array([work.placement.by_name[name].devices[0] for name in work.names])
    paths = _paths(work)
    heads = np.max(np.where(paths >= 0, paths, -1), axis=1)  # to the start of each kind
    tails = np.max(np.where(paths >= 0, paths + work.times[:, None], -1), axis=2)  # from its start on
    best = 0 if span else int(np.min(tails.max(axis=1), axis=0).max())
    free = () if span or work.placement.free_memory is None else work.placement.free_memory
    ends = np.zeros((work.placement.num_devices, replicas))
    rows, limits = [], []

    def limit(replica: int, weights: NDArray[Any], ticks: float, most: float) -> None:
        """Add a row: a replica's summed weights, less `ticks` times the makespan, are at most `most`."""
        row = np.zeros((replicas, number))
        row[replica] = weights
        rows.append(np.append(row, -ticks))
        limits.append(most)

    for d in np.unique(device):
        here = np.flatnonzero(device == d)
        load = work.times[:, here].sum(axis=1)
        before = after = np.zeros((replicas, number))
        if not span:
            before, after = heads[:, here].min(axis=1), (tails - work.times)[:, here].min(axis=1)
        ends[d] = before.min(axis=1) + after.min(axis=1)
        best = max(best, _shared(load.min(axis=0), before.min(axis=0), after.min(axis=0), replicas))
        for replica in range(replicas):
            limit(replica, load[replica], 1.0, -ends[d, replica])
    for d in np.unique(device) if free else ():
        here = np.flatnonzero(device == d)
        for replica in range(replicas):
            lost = _lost(work.memory[here], work.times[replica, here], free[d], best - ends[d, replica])
            area = _held(work, replica, paths[replica], here)
            limit(replica, area, float(free[d]), -float(free[d]) * (ends[d, replica] + lost))
    for replica in range(replicas if math.isfinite(work.most) else 0):
        limit(replica, np.ones(number), 0.0, work.most)
    whole = np.concatenate([np.tile(np.eye(number), replicas), np.zeros((number, 1))], axis=1)
    goal = np.append(np.zeros(number * replicas), 1)
    from scipy.optimize import linprog

    result = linprog(goal, np.array(rows), np.array(limits), whole, np.ones(number), method="highs")
    if result.status == 0:
        best = max(best, math.ceil(result.fun * (1 - _SAFE) - _SAFE))
    return best


def _shared(
    load: NDArray[np.int64], before: NDArray[np.int64], after: NDArray[np.int64], replicas: int
) -> int:
    """Return ticks that some replica needs at least, by the micro-batches that load a device most.

    Of the first k of them, one of R replicas has at least the average load, and one has at least k / R of
    them. Before the first and after the last of these come at least their own least ends. `load`, `before`
    and `after` are ticks of each micro-batch.
    """
    order = np.argsort(-load, kind="stable")
    order = order[load[order] > 0]
    if not len(order):
        return 0
    total = np.concatenate([[0], np.cumsum(load[order])])
    k = np.arange(1, len(order) + 1)
    shortest = total[k] - total[k - (k + replicas - 1) // replicas]
    average = -(-total[k] // replicas)
    ends = np.minimum.accumulate(before[order]) + np.minimum.accumulate(after[order])
    return int(np.max(ends + np.maximum(shortest, average)))


def _lost(memory: NDArray[np.int64], times: NDArray[np.int64], free: int, ticks: float) -> float:
    """Return the ticks that a device's memory loses at least while it fills at first and empties at last.

    Blocks allocate one after another. So after t ticks a device holds at most the memory that the quickest
    of them allocate in t ticks, plus one block's; likewise before the end.

    Args:
        memory: Units that the device's blocks allocate or, below 0, release; shape ``(kinds, number)``.
        times: Their ticks; likewise.
        free: The memory of the device.
        ticks: A bound from the first to the last of them; 0 is returned if filling and emptying take longer.
    """
    lost = spent = 0.0
    for sign in (1, -1):
        units, needed = sign * memory[sign * memory > 0], times[sign * memory > 0]
        if not len(units) or units.max() + units.sum() < free:
            return 0.0
        order = np.argsort(needed / units)
        level = np.minimum(units.max() + np.concatenate([[0], np.cumsum(units[order])]), free)
        passed = np.diff(level) / units[order] * needed[order]
        lost += float(np.sum(passed * (free - (level[1:] + level[:-1]) / 2))) / free
        spent += float(passed.sum())
    return lost if spent <= ticks else 0.0


def _paths(work: ReplicaWork) -> NDArray[np.int64]:
    """Return the least ticks between the starts of each two kinds of blocks; -1 if the second does not wait.

    The shape is ``(replicas, kinds, kinds, number)``.
    """
    replicas, kinds, number = work.times.shape
    names = work.names
    delay = {(a, b): ticks for a, b, ticks in work.placement.transfer}
    paths = np.full((replicas, kinds, kinds, number), -1, np.int64)
    for later in range(kinds):
        paths[:, later, later] = 0
        for name in work.placement.by_name[names[later]].after:
            if name not in names:
                continue
            before = names.index(name)
            step = work.times[:, before] + delay.get((name, names[later]), 0)
            through = np.where(paths[:, :, before] >= 0, paths[:, :, before] + step[:, None], -1)
            paths[:, :, later] = np.maximum(paths[:, :, later], through)
    return paths


def _held(
    work: ReplicaWork, replica: int, paths: NDArray[np.int64], kinds: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return for each micro-batch its memory on a device times the least ticks for which it is held.

    It is held from the start of the block that allocates it to the end of the block that releases it, as no
    other block of the device runs meanwhile. Allocated units are matched with released ones, in any way:
    the area is the sum over both, as the memory of a micro-batch sums to 0.
    """
    area = np.zeros(work.num_micro_batches)
    for n in range(work.num_micro_batches):
        allocated = [[kind, int(work.memory[kind, n])] for kind in kinds if work.memory[kind, n] > 0]
        for kind in kinds[::-1]:
            left = -int(work.memory[kind, n])
            while left > 0 and allocated:
                piece, ticks = min(left, allocated[0][1]), int(paths[allocated[0][0], kind, n])
                if ticks < 0:
                    return np.zeros(work.num_micro_batches)  # it may be released before, by others
                area[n] += piece * (ticks + int(work.times[replica, kind, n]))
                left -= piece
                allocated[0][1] -= piece
                if not allocated[0][1]:
                    allocated.pop(0)
    return area
