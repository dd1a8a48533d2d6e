"""The loops over instances, edges and plans, compiled by numba; importing this module takes half a second.

The edges of a graph are in order of their heads: those of instance i are ``first[i] .. first[i + 1] - 1``.
Instances are in topological order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schedsearch.graph.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_LIMIT = np.iinfo(np.int64).max


@compiled
def starts(first: Ints, tail: Ints, delay_ms: Floats, time_ms: Floats) -> Floats:
    """Return the earliest start of each instance in each plan.

    Args:
        first: Where the edges of each instance begin; shape ``(instances + 1,)``.
        tail: Who is waited for; shape ``(edges,)``.
        delay_ms: Least time from end to start; shape ``(edges,)``.
        time_ms: How long each instance runs; shape ``(instances, plans)``.
    """
    start = np.zeros_like(time_ms)
    for i in range(len(time_ms)):
        for edge in range(first[i], first[i + 1]):
            j = tail[edge]
            for plan in range(time_ms.shape[1]):
                ready = start[j, plan] + time_ms[j, plan] + delay_ms[edge]
                if ready > start[i, plan]:
                    start[i, plan] = ready
    return start


@compiled
def chosen_in_turn(
    first: Ints, tail: Ints, delay_ms: Floats, mode_ms: Floats, row: Ints, until_ms: Floats, most: Ints
) -> Ints:
    """Return the slowest modes with which instances that each start as soon as they can end in time.

    Args:
        first: As of `starts`, with the two after it.
        tail: Likewise.
        delay_ms: Likewise.
        mode_ms: Time of each mode, ascending, padded with infinity; shape ``(blocks, modes)``.
        row: Row of each instance there.
        until_ms: When each must end; shape ``(instances, plans)``.
        most: The slowest mode that it may take; likewise.
    """
    size, plans = until_ms.shape
    choice = np.empty((size, plans), dtype=np.int64)
    end = np.empty((size, plans))
    for i in range(size):
        times = mode_ms[row[i]]
        for plan in range(plans):
            start = 0.0
            for edge in range(first[i], first[i + 1]):
                start = max(start, end[tail[edge], plan] + delay_ms[edge])
            fits = np.searchsorted(times, until_ms[i, plan] - start, side="right") - 1
            mode = min(max(fits, 0), most[i, plan])
            choice[i, plan] = mode
            end[i, plan] = start + times[mode]
    return choice


@compiled
def push_and_move(
    leaving: Ints, arc_of: Ints, tail: Ints, head: Ints, lengths: Ints, limits: Ints, flow: Ints, event: Ints
) -> tuple[int, int]:
    """Push the flow that arcs without slack carry from the source to the sink, then move the node potentials.

    An arc takes flow up to the first of its limits at its first length, up to the next at the next, which is
    shorter. It has slack if its head is later than its tail by more than the length at which it takes more;
    and backwards, if by less than that at which it gives some back. Nodes that no path of arcs
    without slack reaches move to earlier times, until such a path reaches the last node.

    Args:
        leaving: Where the arcs at each node begin in `arc_of`; shape ``(nodes + 1,)``.
        arc_of: Arcs that leave or enter each node.
        tail: Node that each arc leaves; shape ``(arcs,)``.
        head: Node that each enters.
        lengths: Lengths of each, falling; shape ``(arcs, most lengths)``.
        limits: Limits of each, rising, ended by `NO_LIMIT`; in the same shape.
        flow: Flow on each arc, which is raised.
        event: Tick of each node, which falls.

    Returns:
        Flow pushed, and the ticks by which the last node moved.
    """
    nodes = len(event)
    source, sink = nodes - 2, nodes - 1
    by, queue = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    pushed, moved = 0, 0
    while True:
        by[:] = -1
        by[source] = -2
        queue[0] = source
        count, at = 1, 0
        is_moving = False
        while by[sink] == -1:
            if at == count:
                is_moving = True
                least = NO_LIMIT
                for node in queue[:count]:
                    for k in range(leaving[node], leaving[node + 1]):
                        arc = arc_of[k]
                        other = head[arc] if tail[arc] == node else tail[arc]
                        if by[other] == -1:
                            least = min(least, _slack(tail, head, lengths, limits, flow, event, arc, node))
                for node in range(nodes):
                    if by[node] == -1:
                        event[node] -= least
                moved += least
                at = 0
            node = queue[at]
            at += 1
            for k in range(leaving[node], leaving[node + 1]):
                arc = arc_of[k]
                other = head[arc] if tail[arc] == node else tail[arc]
                if by[other] == -1 and _slack(tail, head, lengths, limits, flow, event, arc, node) == 0:
                    by[other] = arc
                    queue[count] = other
                    count += 1
        if is_moving:
            return pushed, moved
        amount, node = NO_LIMIT, sink
        while node != source:
            arc = by[node]
            room = flow[arc]
            place = 0
            if head[arc] == node:
                while limits[arc, place] <= flow[arc]:
                    place += 1
                room = limits[arc, place] - flow[arc]
            else:
                while limits[arc, place] < flow[arc]:
                    place += 1
                if place > 0:
                    room -= limits[arc, place - 1]
            amount = min(amount, room)
            node = tail[arc] if head[arc] == node else head[arc]
        node = sink
        while node != source:
            arc = by[node]
            if head[arc] == node:
                flow[arc] += amount
                node = tail[arc]
            else:
                flow[arc] -= amount
                node = head[arc]
        pushed += amount


@compiled
def _slack(
    tail: Ints, head: Ints, lengths: Ints, limits: Ints, flow: Ints, event: Ints, arc: int, node: int
) -> int:
    """Return an arc's slack in ticks for more flow out of a node; `NO_LIMIT` if the arc cannot take any."""
    span = event[head[arc]] - event[tail[arc]]
    place = 0
    if tail[arc] == node:
        while limits[arc, place] <= flow[arc]:
            place += 1
        return int(span - lengths[arc, place])
    if flow[arc] == 0:
        return NO_LIMIT
    while limits[arc, place] < flow[arc]:
        place += 1
    return int(lengths[arc, place] - span)
