"""What no schedule of so many micro-batches can beat, periodic or not: lower bounds with their proofs."""

from __future__ import annotations

import math
from fractions import Fraction

from placements import Placement
from schedsearch.bounds.memory_occupancy import residence_on
from schedsearch.bounds.shared_time import Contraction, contractions
from schedsearch.schedule import micro_batches_of


def makespan_bound(placement: Placement, num_micro_batches: int) -> int:
    """Return a lower bound on the ticks of a schedule of so many micro-batches.

    It is the greatest of two bounds, over all time axes of `schedsearch.bounds.shared_time`: head, work and
    tail of each device, and Little's law for the whole makespan, see `_unused_memory`.
    """
    axes = contractions(placement)
    bound = max(_head_work_tail(axis, num_micro_batches) for axis in axes)
    for axis in contractions(placement.per_micro_batch):
        left = bound - num_micro_batches * axis.shared_time
        unused = [
            Fraction(_unused_memory(axis, device, left), num_micro_batches)
            for device in range(placement.num_devices)
        ]
        proof = residence_on(axis, unused)
        if proof is not None:
            bound = max(bound, math.ceil(proof.bound(axis.placement, unused) * num_micro_batches))
    return bound


def _head_work_tail(axis: Contraction, num_micro_batches: int) -> int:
    """Return the bound that each device's first block, work and last block make.

    Proof. Before the first block of a device, the blocks that this one waits for must run, after the last
    one those that wait for it, and in between the device has all its blocks to do; the same holds of its
    blocks without the optimizer's. Where all devices share an
    embedding, as in the M-shape, the axis without it also shows that the embedding cannot fill the head and
    the tail.
    """
    placement, shared = axis.placement, {block.name for block in axis.shared}
    bound = max(start + axis.length[name] for name, start in axis.heads.items())
    for device in range(placement.num_devices):
        here = [block.name for block in placement.on(device) if block.name not in shared]
        for names in (here, [name for name in here if name in placement.per_micro_batch.by_name]):
            if names:
                runs = {name: len(micro_batches_of(placement, name, num_micro_batches)) for name in names}
                work = sum(runs[name] * axis.length[name] for name in names)
                head, tail = min(axis.heads[name] for name in names), min(axis.tails[name] for name in names)
                bound = max(bound, head + work + tail)
    return bound + num_micro_batches * axis.shared_time


def _unused_memory(axis: Contraction, device: int, makespan: int) -> int:
    """Return memory times ticks that a device must leave unused in a schedule of at least this makespan.

    Proof. A device holds nothing before the first block that takes memory starts, and nothing after the
    last one that gives back ends. Blocks that take start at least the shortest one's time apart, so
    its memory fills in steps of at most the largest take; it empties likewise. Steps up and down are counted
    only where the makespan leaves room for both one after the other. With transient memory nothing is
    claimed.
    """
    placement = axis.placement
    if placement.free_memory is None or any(block.transient for block in placement.on(device)):
        return 0
    capacity = placement.free_memory[device]
    takes = [block for block in placement.on(device) if block.memory_on(device) > 0]
    gives = [block for block in placement.on(device) if block.memory_on(device) < 0]
    if not takes or not gives:
        return 0
    ticks = min(axis.heads[block.name] for block in takes) + min(axis.tails[block.name] for block in gives)
    unused = capacity * ticks
    for blocks in (takes, gives):
        step = max(abs(block.memory_on(device)) for block in blocks)
        time = min(axis.length[block.name] for block in blocks)
        missing = range(capacity - step, 0, -step)
        unused += time * sum(missing)
        ticks += time * len(missing)
    return unused if ticks <= makespan else 0
