"""One micro-batch on its own, one block after another: what a search begins with."""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import pairwise

from placements import Block, Placement
from schedsearch.repetend import Repetend
from schedsearch.schedule import earliest_starts


def serial_period(placement: Placement) -> int:
    """Return a period in which one micro-batch can run on its own, one block after another."""
    longest = sum(max(each.time for each in placement.alternatives(block.name)) for block in placement.blocks)
    return longest + sum(ticks for _, _, ticks in placement.transfer)


def serial_repetend(placement: Placement) -> Repetend | None:
    """Return the repetend in which no two blocks run at once, or None where being greedy fails.

    Where there are decisions, all take their first choice, or all their second, ..., whichever is quickest.
    """
    if placement.decisions:
        numbers = range(max(len(each.choices) for each in placement.decisions))
        found = []
        for number in numbers:
            chosen = tuple(min(number, len(each.choices) - 1) for each in placement.decisions)
            serial = serial_repetend(placement.as_run(chosen))
            if serial is not None:
                starts = serial.first_starts
                found.append(Repetend.from_first_starts(placement, 1, serial.period, starts, (chosen,)))
        return min(found, key=lambda each: each.period, default=None)
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
    on_hosts = list(placement.host_memory) if placement.host_memory is not None else None
    position = {block.name: i for i, block in enumerate(placement.topological_order)}
    sorter = TopologicalSorter({block.name: block.after for block in placement.blocks})
    sorter.prepare()
    ready: list[str] = []
    order: list[str] = []
    while sorter.is_active():
        ready += sorter.get_ready()
        blocks = [placement.by_name[name] for name in ready]
        fitting = [each for each in blocks if _fits(each, free) and _fits_on_hosts(each, on_hosts)]
        if not fitting:
            return None
        block = min(fitting, key=lambda block: (_allocates(block), -position[block.name]))
        ready.remove(block.name)
        order.append(block.name)
        sorter.done(block.name)
        if free is not None:
            free = [units - block.memory_on(device) for device, units in enumerate(free)]
        if on_hosts is not None:
            for device in block.devices:
                on_hosts[device] -= block.host_memory
    return order


def _fits(block: Block, free: list[int] | None) -> bool:
    return free is None or all(
        block.memory_on(device) + block.transient <= free[device] for device in block.devices
    )


def _fits_on_hosts(block: Block, free: list[int] | None) -> bool:
    return free is None or all(block.host_memory <= free[device] for device in block.devices)


def _allocates(block: Block) -> bool:
    """Return whether it allocates memory on some device, whatever it releases on others."""
    return any(block.memory_on(device) > 0 for device in block.devices)
