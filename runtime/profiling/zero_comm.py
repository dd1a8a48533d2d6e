"""A measured iteration again, with the block times that were measured and transfers that take no time.

What the iteration took longer than this is what messages and scripts cost; what this takes longer than the
busiest device computes is the order's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from placements import Placement
from placements.copies.replicas import copies_in
from placements.modes import Chosen
from runtime.profiling.records import Record
from runtime.program.tensor_flow import tensor_inputs
from schedsearch.energy.graph import instance_graph
from schedsearch.schedule import Instance, as_soon_as_possible


def zero_comm_spans(
    placement: Placement, records: Sequence[Record]
) -> Mapping[Instance, tuple[float, float]]:
    """Return when each block begins and ends if it starts as soon as its inputs and its devices are there.

    No block begins later than it did if all blocks are on one device each. A block of several devices takes
    as long as on that which was quickest: the others waited in it.

    Args:
        placement: What ran where.
        records: Records of all devices, of one iteration; give the orders and the times of the blocks.

    Returns:
        Milliseconds from the begin of the iteration, for each (block, micro-batch).
    """
    time_ms: dict[Instance, float] = {}
    for row in (row for record in records for row in record.blocks):
        taken_ms = row.end_ms - row.begin_ms
        time_ms[row.instance] = min(taken_ms, time_ms.get(row.instance, taken_ms))
    inputs = tensor_inputs(placement)
    number = 1 + max(micro_batch for _, micro_batch in time_ms)
    chosen = _taken(placement, number, time_ms)
    blocks = tuple(replace(block, time=1, after=inputs[block.name]) for block in placement.blocks)
    copies = placement.decisions if chosen else ()
    decisions = tuple(each.mapped(lambda block: replace(block, after=inputs[block.name])) for each in copies)
    bare = replace(placement, blocks=blocks, transfer=(), decisions=decisions)
    orders = [[row.instance for row in record.blocks] for record in records]
    graph = instance_graph(as_soon_as_possible(bare, number, orders, chosen))
    taken = np.array([time_ms[instance] for instance in graph.instances])
    begin = graph.earliest_start(taken[:, None])[:, 0]
    spans = zip(begin.tolist(), (begin + taken).tolist(), strict=True)
    return dict(zip(graph.instances, spans, strict=True))


def _taken(placement: Placement, number: int, ran: Iterable[Instance]) -> tuple[Chosen, ...]:
    """Return which copies of the stages each micro-batch took; empty where the placement has no copies."""
    copies = copies_in(placement)
    if not copies:
        return ()
    chosen = [[0] * len(placement.decisions) for _ in range(number)]
    for name, n in ran:
        if name in placement.decision_of:
            chosen[n][placement.decision_of[name]] = copies[name].number
    return tuple(map(tuple, chosen))
