"""The least period of a graph with edges over rounds: policy iteration on its critical cycle.

An edge asks for ``start[target] >= start[source] + ticks - rounds * period``. There are such starts just if
no cycle takes more ticks than its rounds times the period. Each node remembers the edge that pushed it last:
the cycles of these edges are found in one pass over the nodes, and the longest gives the next period to try.

The functions take lists, with which they run as they are, or arrays, with which numba compiles them; see
`schedsearch.graph.compiled`. They make no arrays.
"""

from __future__ import annotations

from typing import Any

Values = Any
"""Numbers, one for each node or edge: a list, or an array where compiled."""

NO_CYCLE = -(1 << 60)
"""Below every period of a cycle."""

FOREVER = 1 << 60
"""Above every period: of a cycle that takes no rounds, or longer than allowed."""

COMPILED_S = [0.0]
"""Seconds that numba has compiled so far: once after an installation some ten, which are not the search's."""

_PASSES = 2
"""Passes between two checks for cycles that are too long."""


def critical_cycle(
    source: Values,
    target: Values,
    ticks: Values,
    rounds: Values,
    least: int,
    most: int,
    starts: Values,
    pushed_by: Values,
    cycle: Values,
    seen: Values,
    path: Values,
) -> int:
    """Return the least period that has starts, rounded up; `FOREVER` if that is above `most`.

    It begins with the cycles of the edges that pushed the nodes before, if any. If none did and the least
    period allowed has starts, the starts are the earliest that are no earlier than those given.

    Args:
        source: Node at the tail of each edge.
        target: Node at the head of each edge, which waits.
        ticks: Ticks of each edge, from start to start.
        rounds: Rounds by which each edge's target is later.
        least: Shortest period of use.
        most: Longest period of use.
        starts: Start of each node, to begin with. Filled with the starts at the period.
        pushed_by: Edge from which each node has its start, -1 for none. Filled with the edges at the period.
        cycle: Takes the edges of the critical cycle, against their direction, -1 behind the last; none where
            nothing is longer than the least period. One longer than nodes.
        seen: Array to write in; as long as nodes.
        path: Likewise.
    """
    period, is_done = NO_CYCLE, False
    while not is_done:
        longest, on_cycle = longest_around(source, ticks, rounds, pushed_by, seen, path)
        if max(longest, least) > period:
            period = max(longest, least)
            length, node = 0, on_cycle
            while node >= 0:
                cycle[length] = pushed_by[node]
                node = source[pushed_by[node]]
                length += 1
                if node == on_cycle:
                    break
            cycle[length] = -1
            if period > most:
                return FOREVER
            follow(source, ticks, rounds, period, starts, pushed_by, seen, path)
        for _ in range(_PASSES):
            is_done = push(source, target, ticks, rounds, period, 0, starts, pushed_by)
            if is_done:
                break
    return period


def push(
    source: Values,
    target: Values,
    ticks: Values,
    rounds: Values,
    period: Any,
    slip: Any,
    starts: Values,
    pushed_by: Values,
) -> bool:
    """Let each node start as late as each of its edges asks, in one pass; return whether all did.

    The period is in the unit of the ticks; a node may start too early by `slip`, 0 where times are whole.
    """
    is_done = True
    for edge in range(len(source)):
        start = starts[source[edge]] + ticks[edge] - rounds[edge] * period
        if start > starts[target[edge]] + slip:
            starts[target[edge]] = start
            pushed_by[target[edge]] = edge
            is_done = False
    return is_done


def follow(
    source: Values,
    ticks: Values,
    rounds: Values,
    period: int,
    starts: Values,
    pushed_by: Values,
    seen: Values,
    path: Values,
) -> None:
    """Set each node's start from its edge; nodes without one, and one node of each cycle, keep their start.

    `seen` and `path` are as `longest_around` leaves them.
    """
    for node in path:
        edge = pushed_by[node]
        if edge >= 0 and seen[source[edge]] < 0:
            starts[node] = starts[source[edge]] + ticks[edge] - rounds[edge] * period
        seen[node] = -1


def longest_around(
    source: Values, ticks: Values, rounds: Values, pushed_by: Values, seen: Values, path: Values
) -> tuple[int, int]:
    """Find the cycles of the edges by which nodes are pushed.

    `seen` takes from which node each was seen, `path` the nodes, each after the one that pushes it, but for
    one of each cycle.

    Returns:
        The longest period of a cycle, rounded up, and a node of it; `FOREVER` if one takes no rounds, and
        `NO_CYCLE` and -1 if there is none.
    """
    longest, on_cycle, number = NO_CYCLE, -1, 0
    for node in range(len(seen)):
        seen[node] = -1
    for first in range(len(seen)):
        begin, at, is_cycle = number, first, True
        while seen[at] < 0:
            seen[at] = first
            path[number] = at
            number += 1
            if pushed_by[at] < 0:
                is_cycle = False
                break
            at = source[pushed_by[at]]
        if number == begin:
            continue
        for i in range((number - begin) // 2):
            path[begin + i], path[number - 1 - i] = path[number - 1 - i], path[begin + i]
        if not is_cycle or seen[at] != first:
            continue
        sum_of_ticks, sum_of_rounds, node = 0, 0, at
        while True:
            sum_of_ticks += ticks[pushed_by[node]]
            sum_of_rounds += rounds[pushed_by[node]]
            node = source[pushed_by[node]]
            if node == at:
                break
        if sum_of_rounds <= 0:
            return FOREVER, at
        if -((-sum_of_ticks) // sum_of_rounds) > longest:
            longest, on_cycle = -((-sum_of_ticks) // sum_of_rounds), at
    return longest, on_cycle
