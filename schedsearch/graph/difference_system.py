"""Difference constraints between periodic starts: feasible periods, and the cycle that forbids others."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from schedsearch.graph import kernel
from schedsearch.graph.kernel import FOREVER

Node = TypeVar("Node", bound=Hashable)

_MANY_EDGES = 30_000
"""Number of edges from which on loading numba pays off."""


class Edge(NamedTuple, Generic[Node]):
    """The constraint ``start[target] >= start[source] + ticks - rounds * period``."""

    source: Node
    target: Node
    ticks: int
    rounds: int


class DifferenceSystem:
    """Difference constraints between numbered nodes, as edges with ticks and rounds.

    Small systems go through the kernel as lists, without waiting for numba, unless the compiled kernel is
    there already; what is found is the same.
    """

    def __init__(self, num_nodes: int, source: Any, target: Any, ticks: Any, rounds: Any) -> None:
        """Take the edges, column by column."""
        self.num_nodes = num_nodes
        columns = source, target, ticks, rounds
        self.columns: Any = [np.ascontiguousarray(column, dtype=np.int64) for column in columns]
        self.is_compiled = f"{__package__}.compiled" in sys.modules or len(self.columns[0]) >= _MANY_EDGES

    def min_period(self, shortest: int = 0, longest: int = FOREVER - 1) -> tuple[int, list[int]] | None:
        """Return the least feasible period in a range, and its earliest starts from 0 on; None if none is."""
        period, starts, _ = self._critical_cycle(shortest, longest)
        if shortest < period < FOREVER:
            _, starts, _ = self._critical_cycle(period, period)
        return (period, starts) if period < FOREVER else None

    def forbidding(self, period: int) -> list[int]:
        """Return the positions of the edges of a cycle that forbids a period; empty for a feasible period."""
        min_period, _, cycle = self._critical_cycle(period, period)
        return cycle if min_period > period else []

    def _critical_cycle(self, least: int, most: int) -> tuple[int, list[int], list[int]]:
        """Return the least feasible period in a range, its starts, and the edges of the critical cycle."""
        nodes: Any = np.zeros((4, self.num_nodes), dtype=np.int64)
        nodes[1] = -1
        cycle: Any = np.full(self.num_nodes + 1, -1)
        if self.is_compiled:
            from schedsearch.graph import compiled

            solve: Any = compiled.critical_cycle
            (starts, pushed_by, seen, path), columns = nodes, self.columns
        else:
            solve = kernel.critical_cycle
            (starts, pushed_by, seen, path), cycle = nodes.tolist(), cycle.tolist()
            columns = [column.tolist() for column in self.columns]
        period = solve(*columns, least, most, starts, pushed_by, cycle, seen, path)
        return period, list(map(int, starts)), list(itertools.takewhile(lambda edge: edge >= 0, cycle))


def numbered(edges: Sequence[Edge[Node]]) -> tuple[list[Node], DifferenceSystem]:
    """Return the nodes of edges, and the system in which each has its position as its number."""
    index: dict[Node, int] = {}
    for edge in edges:
        index.setdefault(edge.source, len(index))
        index.setdefault(edge.target, len(index))
    columns = [(index[edge.source], index[edge.target], edge.ticks, edge.rounds) for edge in edges]
    return list(index), DifferenceSystem(len(index), *np.array(columns, dtype=np.int64).reshape(-1, 4).T)
