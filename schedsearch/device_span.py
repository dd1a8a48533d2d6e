"""The device span: the longest time from a device's own first start to its own last end.

It is what an iteration takes where iterations follow each other without a barrier: a device begins the next
one (its optimizer step first) as soon as it has ended its last block, whatever the others still do ("Zero
Bubble Pipeline Parallelism" gives most of its bubble rates so).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from schedsearch.graph import Edge, numbered
from schedsearch.schedule import Schedule, ScheduledBlock, waits_in_order


def device_spans(schedule: Schedule) -> NDArray[np.int64]:
    """Return the ticks from each device's first start to its last end; shape ``(num_devices,)``."""
    spans = []
    for device in range(schedule.placement.num_devices):
        starts = {instance: schedule.start_of[instance] for instance in schedule.order(device)}
        end = max((schedule.end_of[instance] for instance in starts), default=0)
        spans.append(end - min(starts.values(), default=0))
    return np.array(spans, dtype=np.int64)


def first_starts(schedule: Schedule) -> tuple[int, ...]:
    """Return the tick of each device's first start; 0 for a device that runs no block."""
    orders = [schedule.order(device) for device in range(schedule.placement.num_devices)]
    return tuple(schedule.start_of[order[0]] if order else 0 for order in orders)


def with_least_device_span(schedule: Schedule) -> Schedule:
    """Return the schedule of a valid one's orders in which the longest device span is least.

    That each device ends within the span from its first start is one more edge, from its last block to its
    first of a round later; so the span is the least period of the graph. Of a device with several streams
    that is so of the last and the first of each. Every block starts as early as it lets it.
    """
    placement, orders = schedule.placement, schedule.lane_orders
    waits = waits_in_order(placement, schedule.num_micro_batches, orders, schedule.chosen)
    for earlier, later, least in schedule.memory_waits:
        waits[later].append((earlier, least))
    edges = [
        Edge(before, (name, n), ticks, 0)
        for _, n, name in schedule.blocks  # by start, so that one pass finds nearly all starts
        for before, ticks in waits[name, n]
    ]
    for device in range(placement.num_devices):
        here = [
            order for (of, _), order in zip(placement.lanes, orders, strict=True) if of == device and order
        ]
        edges += [Edge(one[-1], other[0], schedule.block(*one[-1]).time, 1) for one in here for other in here]
    instances, system = numbered(edges)
    solution = system.min_period()
    assert solution is not None, "a valid schedule keeps its own orders"
    starts = dict(zip(instances, solution[1], strict=True))
    origin = min(starts.values())
    blocks = [ScheduledBlock(ticks - origin, n, name) for (name, n), ticks in starts.items()]
    return replace(schedule, blocks=tuple(blocks))
