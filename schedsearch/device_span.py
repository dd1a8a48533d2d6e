"""The device span: the longest time from a device's own first start to its own last end.

It is what an iteration takes where iterations follow each other without a barrier: a device begins the next
one (its optimizer step first) as soon as it has ended its last block, whatever the others still do ("Zero
Bubble Pipeline Parallelism" gives most of its bubble rates so).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from schedsearch.schedule import Instance, Schedule, ScheduledBlock, waits_in_order

_NEVER = np.iinfo(np.int64).min // 4
"""Ticks from a device to a block that does not wait for it."""


def device_spans(schedule: Schedule) -> NDArray[np.int64]:
    """Return the ticks from each device's first start to its last end; shape ``(num_devices,)``."""
    by_name = schedule.placement.by_name
    spans = []
    for device in range(schedule.placement.num_devices):
        order = schedule.order(device)
        starts = [schedule.start_of[instance] for instance in order]
        spans.append(starts[-1] + by_name[order[-1][0]].time - starts[0] if order else 0)
    return np.array(spans, dtype=np.int64)


def first_starts(schedule: Schedule) -> tuple[int, ...]:
    """Return the tick of each device's first start; 0 where it has none."""
    orders = [schedule.order(device) for device in range(schedule.placement.num_devices)]
    return tuple(schedule.start_of[order[0]] if order else 0 for order in orders)


def with_least_device_span(schedule: Schedule) -> Schedule:
    """Return the schedule of the same orders in which the longest device span is least.

    Let ``path[a, b]`` be the longest way from the first start on device a to the last end on device b. The
    first starts s keep ``s[b] + span >= s[a] + path[a, b]``, which can be had just if the span is no less
    than the mean of any cycle over devices. Every block then starts as early as these let it.

    Args:
        schedule: Valid.
    """
    placement = schedule.placement
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    since = _since_first_starts(schedule, orders)
    time = {block.name: block.time for block in placement.blocks}
    path = np.full((len(orders), len(orders)), _NEVER, dtype=np.int64)
    for device, order in enumerate(orders):
        if order:
            path[:, device] = since[order[-1]] + time[order[-1][0]]
    span = _greatest_cycle_mean(path)
    first = _earliest(np.where(path > _NEVER // 2, path - span, _NEVER))
    blocks = [
        ScheduledBlock(int((first + ticks).max()), micro_batch, name)
        for (name, micro_batch), ticks in since.items()
    ]
    origin = min(block.start for block in blocks)
    return replace(schedule, blocks=tuple(block._replace(start=block.start - origin) for block in blocks))


def _since_first_starts(
    schedule: Schedule, orders: list[tuple[Instance, ...]]
) -> dict[Instance, NDArray[np.int64]]:
    """Return for each instance the least ticks since each device's first start; shape ``(num_devices,)``."""
    waits = waits_in_order(schedule.placement, schedule.num_micro_batches, orders)
    firsts = [order[0] if order else None for order in orders]
    since: dict[Instance, NDArray[np.int64]] = {}
    for _, micro_batch, name in schedule.blocks:  # by start, so that what an instance waits for comes before
        instance = name, micro_batch
        ticks = np.full(len(orders), _NEVER, dtype=np.int64)
        for before, least in waits[instance]:
            np.maximum(ticks, since[before] + least, out=ticks)
        for device in schedule.placement.by_name[name].devices:
            if firsts[device] == instance:
                ticks[device] = max(ticks[device], 0)
        since[instance] = ticks
    return since


def _greatest_cycle_mean(path: NDArray[np.int64]) -> int:
    """Return the least whole ticks that are no less than the mean of any cycle (Karp's algorithm)."""
    size = len(path)
    walks = np.full((size + 1, size), _NEVER, dtype=np.int64)
    walks[0] = 0
    for length in range(1, size + 1):
        walks[length] = np.maximum((walks[length - 1][:, None] + path).max(axis=0), _NEVER)
    best = max(int(path.diagonal().max()), 0)
    for device in range(size):
        if walks[size, device] > _NEVER // 2:
            means = [
                -((walks[length, device] - walks[size, device]) // (size - length))
                for length in range(size)
                if walks[length, device] > _NEVER // 2
            ]
            best = max(best, int(min(means)))
    return best


def _earliest(weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least values from 0 on that keep every difference; there is no cycle above 0."""
    values = np.zeros(len(weights), dtype=np.int64)
    for _ in range(len(weights)):
        values = np.maximum(values, (values[:, None] + weights).max(axis=0))
    return values
