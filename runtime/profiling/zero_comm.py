"""A measured iteration again, with the block times that were measured and transfers that take no time.

What the iteration took longer than this is what messages and scripts cost; what this takes longer than the
busiest device computes is the order's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise

from placements import Placement
from runtime.profiling.records import Record
from runtime.program.tensor_flow import tensor_inputs
from schedsearch.schedule import Instance


def zero_comm_spans(
    placement: Placement, records: Sequence[Record]
) -> Mapping[Instance, tuple[float, float]]:
    """Return when each block begins and ends if it starts as soon as its inputs and its devices are there.

    No block begins later than it did if all blocks are on one device each. A block of several devices takes
    as long as on that which was quickest: the others waited in it.

    Args:
        placement: Placement of the blocks.
        records: Records of all devices, of one iteration, for the orders and the times of the blocks.

    Returns:
        Milliseconds from the begin of the iteration, for each (block, micro-batch).
    """
    time_ms: dict[Instance, float] = {}
    for row in (row for record in records for row in record.blocks):
        time_ms[row.instance] = min(row.end_ms - row.begin_ms, time_ms.get(row.instance, float("inf")))
    inputs = tensor_inputs(placement)
    before = {(block, n): {(name, n) for name in inputs[block]} & time_ms.keys() for block, n in time_ms}
    for record in records:
        for first, second in pairwise(record.blocks):
            before[second.instance].add(first.instance)
    spans: dict[Instance, tuple[float, float]] = {}
    for instance in TopologicalSorter(before).static_order():
        begin_ms = max((spans[each][1] for each in before[instance]), default=0.0)
        spans[instance] = begin_ms, begin_ms + time_ms[instance]
    return spans
