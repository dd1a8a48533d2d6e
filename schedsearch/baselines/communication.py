"""Hand-made schedules where devices communicate beside computing, as for tensor-parallel exchanges.

A rule orders the blocks that compute, and takes the others for transfers between them. Each stream then runs
its blocks in the order in which they become ready.
"""

from __future__ import annotations

from dataclasses import replace

from placements import Placement
from placements.block import COMPUTE
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


def computing_blocks(placement: Placement) -> Placement | None:
    """Return the blocks that compute, with the time of blocks on other streams between them as transfers.

    None where a block on another stream holds memory, as a copy to the host does.
    """
    kept = {block.name for block in placement.blocks if block.stream == COMPUTE}
    if any(any(b.units.values()) or b.host_memory for b in placement.blocks if b.name not in kept):
        return None
    ticks_after: dict[str, dict[str, int]] = {}  # of a block, from the end of each computing one before it
    for block in placement.topological_order:
        ticks_from = ticks_after[block.name] = {}
        for name in block.after:
            time, transfer = placement.by_name[name].time, placement.transfer_time(name, block.name)
            before = {name: -time} if name in kept else ticks_after[name]
            for source, ticks in before.items():
                ticks_from[source] = max(ticks_from.get(source, 0), ticks + time + transfer)
    blocks = tuple(
        replace(b, after=tuple(ticks_after[b.name])) for b in placement.topological_order if b.name in kept
    )
    waits = tuple(
        (source, b.name, ticks) for b in blocks for source, ticks in ticks_after[b.name].items() if ticks
    )
    return replace(placement, blocks=blocks, transfer=waits, slowdown=(), shared_streams=())


def with_communication(placement: Placement, num_micro_batches: int, computing: Schedule) -> Schedule:
    """Return the schedule of a placement's streams by a schedule of its `computing_blocks`."""
    end_of = {(block.name, n): 0 for block in placement.blocks for n in range(num_micro_batches)}
    for (name, n), start in computing.start_of.items():
        end_of[name, n] = start + placement.by_name[name].time
    ready: list[dict[Instance, int]] = [{} for _ in placement.lanes]
    for block in placement.topological_order:
        for n in range(num_micro_batches if block.stream != COMPUTE else 0):
            start = max((end_of[name, n] for name in block.after), default=0)
            end_of[block.name, n] = start + block.time
            for lane in placement.lanes_of(block):
                ready[lane][block.name, n] = start
    for device in range(placement.num_devices):
        ready[device] = {instance: computing.start_of[instance] for instance in computing.order(device)}
    orders = [sorted(begin, key=begin.__getitem__) for begin in ready]
    return as_soon_as_possible(placement, num_micro_batches, orders)
