"""What no assignment of micro-batches to replicas beats, in no order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from schedsearch.unequal.replica_work import ReplicaWork

_SAFE = 1e-6
"""Share of a linear program's answer that may be an error of rounding."""


def replica_bound(work: ReplicaWork, span: bool = False) -> int:
    """Return ticks in which no assignment and no order ends on all replicas.

    It is the largest of three. The longest micro-batch takes its path where that is shortest. Of any
    micro-batches ``h R + 1``, one of R replicas has h + 1, and on each device at least the shortest of them.
    And a linear program assigns parts of micro-batches: each device of each replica has its load, what must
    come before and after it, and memory times the least time for which it is held.

    Args:
        work: The micro-batches.
        span: Whether each device counts by its own clock, so that nothing comes before and after.
    """
    replicas, _, number = work.times.shape
    device = np.array([work.placement.by_name[name].devices[0] for name in work.names])
    paths = _paths(work)
    heads = np.max(np.where(paths >= 0, paths, -1), axis=1)  # to the start of each kind
    tails = np.max(np.where(paths >= 0, paths + work.times[:, None], -1), axis=2)  # from its start on
    best = 0 if span else int(np.min(tails.max(axis=1), axis=0).max())
    devices = range(work.placement.num_devices)
    free = work.placement.free_memory
    rows, limits = [], []
    for own in devices:
        kinds_here = np.flatnonzero(device == own)
        if not len(kinds_here):
            continue
        load = work.times[:, kinds_here].sum(axis=1)
        before = after = np.zeros(replicas)
        if not span:
            before = heads[:, kinds_here].min(axis=(1, 2))
            after = (tails[:, kinds_here] - work.times[:, kinds_here]).min(axis=(1, 2))
        least = np.sort(load.min(axis=0))[::-1]
        for some in range(number // replicas + 1):
            if some * replicas < number:
                few = least[some * replicas - some : some * replicas + 1].sum()
                best = max(best, int(few + (before + after).min()))
        for replica in range(replicas):
            row = np.zeros(number * replicas + 1)
            row[replica * number : (replica + 1) * number], row[-1] = load[replica], -1
            rows.append(row)
            limits.append(-(before + after)[replica])
            if free is not None and not span:
                row = np.zeros(number * replicas + 1)
                row[replica * number : (replica + 1) * number] = _held(work, paths[replica], kinds_here)
                row[-1] = -float(free[own])
                rows.append(row)
                limits.append(0.0)
    if math.isfinite(work.room):
        for replica in range(replicas):
            row = np.zeros(number * replicas + 1)
            row[replica * number : (replica + 1) * number] = work.weights
            rows.append(row)
            limits.append(work.room)
    whole = np.concatenate([np.tile(np.eye(number), replicas), np.zeros((number, 1))], axis=1)
    goal = np.zeros(number * replicas + 1)
    goal[-1] = 1
    found = linprog(goal, np.array(rows), np.array(limits), whole, np.ones(number), method="highs")
    if found.status == 0:
        best = max(best, math.ceil(found.fun * (1 - _SAFE) - _SAFE))
    return best


def _paths(work: ReplicaWork) -> NDArray[np.int64]:
    """Return ticks from the start of each kind to that of each, -1 for none.

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


def _held(work: ReplicaWork, paths: NDArray[np.int64], kinds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return memory times the least ticks for which each micro-batch holds it on a device.

    What is allocated is matched with what is released, in any way: the area is the sum over both, as the
    memory of a micro-batch sums to 0.
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
                area[n] += piece * ticks
                left -= piece
                allocated[0][1] -= piece
                if not allocated[0][1]:
                    allocated.pop(0)
    return area
