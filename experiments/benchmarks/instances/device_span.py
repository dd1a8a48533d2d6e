"""How long each device is busy: from the start of its first block to the end of its last.

The metric of zero bubble's ZB-2p: where nothing makes the devices begin or end an iteration together, the
next one follows after the longest of these spans.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from placements import Placement
from schedsearch.schedule import Instance, Schedule, ScheduledBlock, earliest_starts, waits_in_order

_Orders = Sequence[Sequence[Instance]]


def device_span(schedule: Schedule) -> int:
    """Return the longest of the devices' spans, in ticks."""
    time = {block.name: block.time for block in schedule.placement.blocks}
    start = schedule.start_of
    orders = [schedule.order(device) for device in range(schedule.placement.num_devices)]
    return max(start[order[-1]] + time[order[-1][0]] - start[order[0]] for order in orders if order)


def starting_from(
    placement: Placement, num_micro_batches: int, orders: _Orders, first_starts: Sequence[int]
) -> Schedule:
    """Return the schedule of these orders that starts each block as soon as it can, from asked ticks on.

    Args:
        placement: What runs where.
        num_micro_batches: Of the schedule.
        orders: For each device its blocks in order.
        first_starts: For each device the least start of its first block, in ticks.
    """
    waits: dict[Hashable, list[tuple[Hashable, int]]] = {
        instance: list(before)
        for instance, before in waits_in_order(placement, num_micro_batches, orders).items()
    }
    begin = object()
    waits[begin] = []
    for order, ticks in zip(orders, first_starts, strict=True):
        if order:
            waits[order[0]].append((begin, ticks))
    starts = earliest_starts(waits)
    blocks = (
        ScheduledBlock(starts[name, n], n, name)
        for name, n in waits_in_order(placement, num_micro_batches, orders)
    )
    return Schedule(placement, num_micro_batches, tuple(blocks))


def late_first_starts(schedule: Schedule) -> list[int]:
    """Return for each device how late its first block can start while every device ends when it does.

    The orders stay as they are. No device's span becomes longer, and where a device waits after its first
    blocks it becomes shorter.

    Returns:
        Ticks, the least of them 0; shape ``(num_devices,)``.
    """
    placement, starts = schedule.placement, schedule.start_of
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    end = object()
    rest: dict[Hashable, list[tuple[Hashable, int]]] = {end: []}
    waits = waits_in_order(placement, schedule.num_micro_batches, orders)
    rest |= {instance: [] for instance in waits}
    for later, before in waits.items():
        for earlier, ticks in before:
            rest[earlier].append((later, ticks))
    for order in orders:
        if order:
            rest[order[-1]].append((end, schedule.makespan - starts[order[-1]]))
    before_end = earliest_starts(rest)
    latest = [schedule.makespan - before_end[order[0]] if order else 0 for order in orders]
    return [ticks - min(latest) for ticks in latest]
