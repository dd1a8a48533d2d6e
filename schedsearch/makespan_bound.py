"""What no schedule of so many micro-batches can beat, periodic or not: lower bounds with their proofs."""

from __future__ import annotations

import math
from fractions import Fraction

from placements import Placement
from schedsearch.bounds import heads, tails
from schedsearch.residence import residence
from schedsearch.schedule import micro_batches_of


def makespan_bound(placement: Placement, num_micro_batches: int) -> int:
    """Return a lower bound on the ticks of a schedule of so many micro-batches.

    It is the greatest of `_contracted_bound`, over all sets of devices that a block runs on, and of
    Little's law for the whole makespan: see `_unused_memory`.
    """
    each = placement.per_micro_batch
    shared = {frozenset[int]()} | {frozenset(block.devices) for block in each.blocks}
    bound = max(_contracted_bound(placement, num_micro_batches, devices) for devices in shared)
    unused = [
        Fraction(_unused_memory(each, device, bound), num_micro_batches) for device in range(each.num_devices)
    ]
    proof = residence(each, unused)
    return (
        max(bound, math.ceil(proof.bound(each, unused) * num_micro_batches)) if proof is not None else bound
    )


def _contracted_bound(placement: Placement, num_micro_batches: int, shared: frozenset[int]) -> int:
    """Return a lower bound on the makespan that looks away from the time when shared blocks run.

    Shared are the blocks that run on all of some devices together, and perhaps on more; none, when no
    devices are given.

    Proof. No two shared blocks run at once, so in all they run for their time times the number of
    micro-batches. Cut these stretches out of the time axis. A block that has a device in common with every
    shared block never ran in any of them and keeps its length; let the length of all others and of all
    transfers be 0. Where a block waited for another it still does. Now, before the first block of one of
    the devices that is not shared, the blocks that this one waits for must run, after the last one those
    that wait for it, and in between the device has all its blocks that are not shared to do. With
    nothing shared that is head + work + tail. Where all devices share an embedding, as in the M-shape, it
    also sees that the embedding cannot fill the head and the tail. Optimizer blocks come once; where
    something is shared, their length is let be 0 too.
    """
    each = placement.per_micro_batch
    apart = [block for block in each.blocks if shared and shared <= set(block.devices)]
    length = {
        block.name: block.time
        if block not in apart and all(set(block.devices) & set(other.devices) for other in apart)
        else 0
        for block in each.blocks
    } | {block.name: 0 if shared else block.time for block in placement.optimizer_blocks}
    head = heads(placement, length, transfers=not shared)
    tail = tails(placement, length, transfers=not shared)
    bound = max(head[name] + length[name] for name in length)
    for device in shared or range(placement.num_devices):
        rest = [block.name for block in placement.on(device) if block not in apart]
        if rest:
            runs = {name: len(micro_batches_of(placement, name, num_micro_batches)) for name in rest}
            work = sum(runs[name] * length[name] for name in rest)
            bound = max(bound, min(head[name] for name in rest) + work + min(tail[name] for name in rest))
    return bound + num_micro_batches * sum(block.time for block in apart)


def _unused_memory(placement: Placement, device: int, makespan: int) -> int:
    """Return memory times ticks that a device must leave unused in a schedule of at least this makespan.

    Proof. A device holds nothing before the first block that takes memory starts, and nothing after the
    last one that gives back ends. Blocks that take start at least the shortest one's time apart, so
    memory fills in steps of at most the largest take; it empties likewise. Steps up and down are counted
    only where the makespan leaves room for both one after the other. With transient memory nothing is
    claimed.
    """
    if placement.free_memory is None or any(block.transient for block in placement.on(device)):
        return 0
    capacity = placement.free_memory[device]
    takes = [block for block in placement.on(device) if block.memory > 0]
    gives = [block for block in placement.on(device) if block.memory < 0]
    if not takes or not gives:
        return 0
    lengths = {block.name: block.time for block in placement.blocks}
    head, tail = heads(placement, lengths), tails(placement, lengths)
    ticks = min(head[block.name] for block in takes) + min(tail[block.name] for block in gives)
    unused = capacity * ticks
    for blocks in (takes, gives):
        step, time = max(abs(block.memory) for block in blocks), min(block.time for block in blocks)
        missing = range(capacity - step, 0, -step)
        unused += time * sum(missing)
        ticks += time * len(missing)
    return unused if ticks <= makespan else 0
