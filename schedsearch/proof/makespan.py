"""Lower bounds on the makespan of any schedule of some micro-batches, periodic or not, with proofs."""

from __future__ import annotations

import math
from fractions import Fraction

from placements import Placement
from schedsearch.proof.ends import ends_bound
from schedsearch.proof.memory_occupancy import memory_occupancy_on
from schedsearch.proof.timeline import Timeline, timelines


def makespan_bound(placement: Placement, num_micro_batches: int) -> int:
    """Return a lower bound, in ticks, on the makespan of `num_micro_batches` micro-batches.

    It is the greatest of two bounds over all timelines of `schedsearch.proof.timeline`: each device's work
    plus its idle time at both ends (`ends_bound`), and memory occupancy over the whole makespan.

    Proof of memory occupancy. Little's law holds for the whole of a schedule as it does for its steady state
    (see `MemoryOccupancy`), and what memory a device leaves unused at the ends adds to what is in use: both
    fit in its capacity times the makespan. A makespan below the bound so far need not be looked at, so
    `_unused_memory` may rely on that many ticks.
    """
    placement = placement.relaxed
    bound = max(ends_bound(timeline, num_micro_batches) for timeline in timelines(placement))
    for timeline in timelines(placement.per_micro_batch):
        left = bound - num_micro_batches * timeline.shared_time
        devices = range(placement.num_devices)
        unused = [Fraction(_unused_memory(timeline, d, left), num_micro_batches) for d in devices]
        proof = memory_occupancy_on(timeline, unused)
        if proof is not None:
            bound = max(bound, math.ceil(proof.value(timeline.placement, unused) * num_micro_batches))
    return bound


def _unused_memory(timeline: Timeline, device: int, makespan: int) -> int:
    """Return the least memory times ticks that a device leaves unused, for a makespan of at least this.

    Proof. No memory is in use before the first block that allocates some starts, and none after the last one
    that releases some ends. Blocks that allocate start at least the shortest one's time apart, so memory
    fills in steps of at most the largest allocation; it empties likewise. Steps up and down are counted only
    where the makespan leaves room for both one after the other. With transient memory nothing is claimed.
    """
    here, free = timeline.placement.on(device), timeline.placement.free_memory
    allocating = [block for block in here if block.memory_on(device) > 0]
    releasing = [block for block in here if block.memory_on(device) < 0]
    if free is None or not allocating or not releasing or any(block.transient for block in here):
        return 0
    ticks = min(timeline.heads[b.name] for b in allocating) + min(timeline.tails[b.name] for b in releasing)
    unused = free[device] * ticks
    for blocks in (allocating, releasing):
        step = max(abs(block.memory_on(device)) for block in blocks)
        time = min(timeline.length[block.name] for block in blocks)
        missing = range(free[device] - step, 0, -step)
        unused += time * sum(missing)
        ticks += time * len(missing)
    return unused if ticks <= makespan else 0
