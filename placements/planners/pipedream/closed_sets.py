"""Where a model can be cut: the sets of nodes that have with each node all that it reads.

What lies between two such sets, of which one holds the other, can be a stage. For a chain they are its
beginnings; where branches run side by side there are more, one for each antichain of PipeDream's optimizer.
The module does not know workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements.planners.pipedream.profile_graph import ProfiledNode, ProfileGraph

MAX_SETS = 1000
"""Sets that are looked at."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ClosedSets:
    """The closed sets of a graph, smaller ones first, and what they cost.

    Attributes:
        nodes: Nodes of the graph.
        members: Whether a set has a node; shape ``(sets, nodes)``. The first has none, the last has all.
        is_complete: Whether they are all that there are.
    """

    nodes: tuple[ProfiledNode, ...]
    members: Bools
    is_complete: bool

    @cached_property
    def is_stage(self) -> Bools:
        """Whether what the second set has beyond the first is a stage; shape ``(sets, sets)``."""
        members = self.members.astype(np.float32)
        found: Bools = members @ (1 - members).T == 0
        np.fill_diagonal(found, False)
        return found

    @cached_property
    def time_ms(self) -> Floats:
        """Forward and backward of each stage for one input; infinite where it is none."""
        return np.where(self.is_stage, self._between([node.time_ms for node in self.nodes]), np.inf)

    @cached_property
    def parameter_bytes(self) -> Floats:
        """Parameters of each stage; shape ``(sets, sets)``, without meaning where it is none."""
        return self._between([node.parameter_bytes for node in self.nodes])

    @cached_property
    def activation_bytes(self) -> Floats:
        """Outputs of all nodes of each stage for one input; likewise."""
        return self._between([node.activation_bytes for node in self.nodes])

    @cached_property
    def cut_bytes(self) -> Floats:
        """Outputs of each set's nodes that nodes outside read; shape ``(sets,)``."""
        is_read = np.array([[node.name in reader.inputs for reader in self.nodes] for node in self.nodes])
        crosses = self.members & (~self.members @ is_read.T)
        sizes: Floats = crosses @ np.array([node.activation_bytes for node in self.nodes])
        return sizes

    def between(self, first: int, end: int) -> tuple[ProfiledNode, ...]:
        """Return the nodes that one set has beyond another."""
        return tuple(self.nodes[i] for i in np.flatnonzero(self.members[end] & ~self.members[first]))

    def _between(self, figures: Sequence[float]) -> Floats:
        until = self.members @ np.array(figures)
        found: Floats = np.maximum(until[None, :] - until[:, None], 0.0)
        return found


def closed_sets(graph: ProfileGraph) -> ClosedSets:
    """Return the closed sets of a graph; of one with too many those that begin the order of its nodes."""
    nodes = graph.nodes
    place = {node.name: i for i, node in enumerate(nodes)}
    needs = [sum(1 << place[name] for name in node.inputs) for node in nodes]
    layer, found = {0}, [0]  # sets as bits of a number
    while layer and len(found) <= MAX_SETS:
        layer = {
            mask | 1 << i
            for mask in layer
            for i, need in enumerate(needs)
            if not mask >> i & 1 and need & mask == need
        }
        found += sorted(layer)
    is_complete = len(found) <= MAX_SETS
    if not is_complete:
        found = [(1 << size) - 1 for size in range(len(nodes) + 1)]
    members = np.array([[bool(mask >> i & 1) for i in range(len(nodes))] for mask in found])
    return ClosedSets(nodes, members, is_complete)
