"""The serial repetend: one micro-batch at a time, one block after another, as the first start of a search."""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import pairwise

from placements import Block, Placement
from schedsearch.repetend import Repetend
from schedsearch.schedule import earliest_starts


def serial_period(placement: Placement) -> int:
    """Return a period in which one micro-batch can run on its own, one block after another."""
    longest = sum(max(mode.time for mode in placement.alternatives(block.name)) for block in placement.blocks)
    return longest + sum(ticks for _, _, ticks in placement.transfer)


def serial_repetend(placement: Placement) -> Repetend | None:
    """Return the repetend in which no two blocks run at once; None if the greedy order fails.

    With decisions, all take their first choice, or all their second, ..., whichever is shortest.
    """
    if placement.decisions:
        repetends = []
        for number in range(max(len(decision.choices) for decision in placement.decisions)):
            chosen = tuple(min(number, len(decision.choices) - 1) for decision in placement.decisions)
            serial = serial_repetend(placement.as_run(chosen))
            if serial is not None:
                starts = serial.first_starts
                repetends.append(Repetend.from_first_starts(placement, 1, serial.period, starts, (chosen,)))
        return min(repetends, key=lambda repetend: repetend.period, default=None)
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
    """Return an order of one micro-batch's blocks that fits the memory; None if the greedy order fails.

    Of the ready blocks that fit, one that allocates no memory comes first, and the latest of
    equals: depth first, so that allocated memory is released soon.
    """
    free, on_hosts = (
        None if units is None else list(units) for units in (placement.free_memory, placement.host_memory)
    )
    position = {block.name: i for i, block in enumerate(placement.topological_order)}
    sorter = TopologicalSorter({block.name: block.after for block in placement.blocks})
    sorter.prepare()
    ready: list[str] = []
    order: list[str] = []

    def fits(block: Block) -> bool:
        here = free is None or all(block.memory_on(d) + block.transient <= free[d] for d in block.devices)
        return here and (on_hosts is None or all(block.host_memory <= on_hosts[d] for d in block.devices))

    def rank(block: Block) -> tuple[bool, int]:
        return any(block.memory_on(device) > 0 for device in block.devices), -position[block.name]

    while sorter.is_active():
        ready += sorter.get_ready()
        block = min((b for b in map(placement.by_name.__getitem__, ready) if fits(b)), key=rank, default=None)
        if block is None:
            return None
        ready.remove(block.name)
        order.append(block.name)
        sorter.done(block.name)
        for device in block.devices:
            if free is not None:
                free[device] -= block.memory_on(device)
            if on_hosts is not None:
                on_hosts[device] -= block.host_memory
    return order
