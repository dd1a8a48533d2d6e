"""One micro-batch on its own, one block after another: what a search begins with."""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import pairwise

from placements import Block, Placement
from schedsearch.repetend import Repetend
from schedsearch.schedule import earliest_starts


def serial_period(placement: Placement) -> int:
    """Return a period in which one micro-batch can run on its own, one block after another."""
    return sum(block.time for block in placement.blocks) + sum(ticks for _, _, ticks in placement.transfer)


def serial_repetend(placement: Placement) -> Repetend | None:
    """Return the repetend in which no two blocks run at once, or None where being greedy fails."""
    order = one_after_another(placement)
    if order is None:
        return None
    time = {block.name: block.time for block in placement.blocks}
    waits = {
        block.name: [(name, time[name] + placement.transfer_time(name, block.name)) for name in block.after]
        for block in placement.blocks
    }
    for earlier, later in pairwise(order):
        waits[later].append((earlier, time[earlier]))
    starts = {(name, 0): ticks for name, ticks in earliest_starts(waits).items()}
    return Repetend.from_first_starts(placement, 1, serial_period(placement), starts)


def one_after_another(placement: Placement) -> list[str] | None:
    """Return an order of one micro-batch's blocks that respects memory, or None where being greedy fails.

    Of the blocks whose inputs are there and that fit, the one that allocates least comes first, the latest of
    equals: depth first, so that what is allocated is released soon.
    """
    free = list(placement.free_memory) if placement.free_memory is not None else None
    position = {block.name: i for i, block in enumerate(placement.topological_order)}
    sorter = TopologicalSorter({block.name: block.after for block in placement.blocks})
    sorter.prepare()
    ready: list[str] = []
    order: list[str] = []
    while sorter.is_active():
        ready += sorter.get_ready()
        fitting = [placement.by_name[name] for name in ready if _fits(placement.by_name[name], free)]
        if not fitting:
            return None
        block = min(fitting, key=lambda block: (_allocates(block), -position[block.name]))
        ready.remove(block.name)
        order.append(block.name)
        sorter.done(block.name)
        if free is not None:
            free = [units - block.memory_on(device) for device, units in enumerate(free)]
    return order


def _fits(block: Block, free: list[int] | None) -> bool:
    return free is None or all(
        block.memory_on(device) + block.transient <= free[device] for device in block.devices
    )


def _allocates(block: Block) -> bool:
    """Return whether it allocates memory on some device, whatever it releases on others."""
    return any(block.memory_on(device) > 0 for device in block.devices)
