"""Where a model can be cut: the sets of nodes that have with each node all that it reads.

What lies between two such sets, of which one holds the other, can be a stage. For a chain they are its
beginnings; where branches run side by side there are more, one for each antichain of PipeDream's optimizer.
The module does not know workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements.planners.pipedream.profile_graph import ProfiledNode, ProfileGraph

MAX_SETS = 1000
"""Sets that are looked at; of a model with more, a few of each size."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ClosedSets:
    """The closed sets of a graph, smaller ones first, and what they cost.

    Attributes:
        graph: Graph whose nodes they are of.
        members: Whether a set has a node; shape ``(sets, nodes)``. The first has none, the last has all.
        is_complete: Whether they are all that there are.
    """

    graph: ProfileGraph
    members: Bools
    is_complete: bool

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.members)

    @cached_property
    def is_stage(self) -> Bools:
        """Whether what the second set has beyond the first is a stage; shape ``(sets, sets)``."""
        members = self.members.astype(np.float32)
        outside = members @ (1 - members).T
        found: Bools = outside == 0
        np.fill_diagonal(found, False)
        return found

    @cached_property
    def time_ms(self) -> Floats:
        """Forward and backward of each stage for one input; infinite where it is none."""
        return np.where(self.is_stage, self._between([node.time_ms for node in self.graph.nodes]), np.inf)

    @cached_property
    def parameter_bytes(self) -> Floats:
        """Parameters of each stage; shape ``(sets, sets)``, without meaning where it is none."""
        return self._between([node.parameter_bytes for node in self.graph.nodes])

    @cached_property
    def activation_bytes(self) -> Floats:
        """Outputs of all nodes of each stage for one input; likewise."""
        return self._between([node.activation_bytes for node in self.graph.nodes])

    @cached_property
    def cut_bytes(self) -> Floats:
        """Outputs of each set's nodes that nodes outside read; shape ``(sets,)``."""
        nodes = self.graph.nodes
        place = {node.name: i for i, node in enumerate(nodes)}
        is_read = np.zeros((len(nodes), len(nodes)), dtype=np.float32)
        for i, node in enumerate(nodes):
            is_read[[place[name] for name in node.inputs], i] = 1
        outside = 1 - self.members.astype(np.float32)
        crosses = self.members & (outside @ is_read.T > 0)
        sizes: Floats = crosses @ np.array([node.activation_bytes for node in nodes])
        return sizes

    def between(self, first: int, end: int) -> tuple[ProfiledNode, ...]:
        """Return the nodes that one set has beyond another."""
        found = self.members[end] & ~self.members[first]
        return tuple(node for node, is_in in zip(self.graph.nodes, found, strict=True) if is_in)

    def _between(self, figures: list[float]) -> Floats:
        until = self.members @ np.array(figures)
        found: Floats = np.maximum(until[None, :] - until[:, None], 0.0)
        return found


def closed_sets(graph: ProfileGraph) -> ClosedSets:
    """Return the closed sets of a graph.

    Where there are more than `MAX_SETS`, it is a few of each size: the one that begins the order of the
    nodes, and those whose nodes hand on the least.
    """
    branches = _Branches(graph)
    found = branches.sets(MAX_SETS)
    is_complete = len(found) <= MAX_SETS
    if not is_complete:
        found = branches.sets(MAX_SETS, max(1, MAX_SETS // (len(graph.nodes) + 1)))
    members = np.array([[bool(mask >> i & 1) for i in range(len(graph.nodes))] for mask in found])
    return ClosedSets(graph, members, is_complete)


class _Branches:
    """A graph whose sets of nodes are bits of a number."""

    def __init__(self, graph: ProfileGraph) -> None:
        place = {node.name: i for i, node in enumerate(graph.nodes)}
        self.sizes = [node.activation_bytes for node in graph.nodes]
        self.needs = [0] * len(place)
        self.readers = [0] * len(place)
        for i, node in enumerate(graph.nodes):
            for name in node.inputs:
                self.needs[i] |= 1 << place[name]
                self.readers[place[name]] |= 1 << i

    def sets(self, most: int, width: int | None = None) -> list[int]:
        """Return the closed sets by their size, of each at most the width; without one no more than needed.

        More than `most` are returned where it stopped before the end.
        """
        layer, found = {0}, [0]
        for size in range(1, len(self.needs) + 1):
            layer = {bigger for mask in layer for bigger in self._with_one_more(mask)}
            if width is not None and len(layer) > width:
                first = (1 << size) - 1
                least = sorted(layer - {first}, key=lambda mask: (self._cut_bytes(mask), mask))
                layer = {first, *least[: width - 1]}
            found += sorted(layer)
            if width is None and len(found) > most:
                break
        return found

    def _with_one_more(self, mask: int) -> Iterator[int]:
        for i, need in enumerate(self.needs):
            if not mask >> i & 1 and need & mask == need:
                yield mask | 1 << i

    def _cut_bytes(self, mask: int) -> float:
        rows = enumerate(zip(self.sizes, self.readers, strict=True))
        return sum(size for i, (size, readers) in rows if mask >> i & 1 and readers & ~mask)
