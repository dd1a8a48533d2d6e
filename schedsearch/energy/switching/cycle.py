"""How long one round of a loop takes in the long run: the longest cycle of waits, for each round it spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Wait(NamedTuple):
    """One wait of a loop.

    Attributes:
        tail: Node that is waited for.
        head: Node that waits.
        rounds: How many rounds earlier the tail runs.
        weight_ms: Least time from the tail's start to the head's.
    """

    tail: int
    head: int
    rounds: int
    weight_ms: float


SAME_TIME = 1e-11
"""Share of the sum of all weights that is less than any real difference of times."""


def cycle_ms(num_nodes: int, waits: Sequence[Wait], at_least_ms: float = 0.0) -> float:
    """Return the least period with which every round can start after the one before.

    A period is too short if some cycle of waits takes longer than the periods it spans; then it becomes
    that cycle's.

    Args:
        num_nodes: Nodes are numbered from 0.
        waits: Those of no rounds make no cycle.
        at_least_ms: A period that is known not to be too long.
    """
    slip = SAME_TIME * sum(wait.weight_ms for wait in waits)
    period = at_least_ms
    while (cycle := _longer_than(num_nodes, waits, period, slip)) is not None:
        period = sum(wait.weight_ms for wait in cycle) / sum(wait.rounds for wait in cycle)
    return period


def _longer_than(num_nodes: int, waits: Sequence[Wait], period: float, slip: float) -> list[Wait] | None:
    """Return a cycle that takes longer than its rounds at a period, or None."""
    start = [0.0] * num_nodes
    before: list[Wait | None] = [None] * num_nodes
    weighted = [(wait, wait.tail, wait.head, wait.weight_ms - wait.rounds * period) for wait in waits]
    for _ in range(num_nodes + 1):
        moved = None
        for wait, tail, head, weight in weighted:
            ready = start[tail] + weight
            if ready > start[head] + slip:
                start[head], before[head], moved = ready, wait, head
        if moved is None:
            return None
        cycle = _cycle_to(before, moved)
        if cycle is not None:
            return cycle
    return None


def _cycle_to(before: Sequence[Wait | None], node: int) -> list[Wait] | None:
    """Return the cycle that one comes to by going back from a node, or None where it ends."""
    seen: dict[int, int] = {}
    path: list[Wait] = []
    while node not in seen:
        seen[node] = len(path)
        wait = before[node]
        if wait is None:
            return None
        path.append(wait)
        node = wait.tail
    return path[seen[node] :]
