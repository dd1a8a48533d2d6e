"""Costs of each node of a model for one input, the nodes that it reads, and where such a graph can be cut.

A profile is a CSV file with a row for each node, a `ProfiledNode`. What PipeDream's planner leaves out is
left out: the time of loading data, and outputs that nobody reads.

A graph is cut at closed sets: nodes that have with each all that it reads. What lies between two such sets,
of which one holds the other, can be a stage. For a chain they are its beginnings; where branches run side by
side there are more, one for each antichain of PipeDream's optimizer. The module does not know workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records
from placements.models.layers import Layer
from placements.profiles.operating_point import ProfileError

_NUMBER_BYTES = 4
"""Bytes of a 32-bit number."""

_BACKWARD_FORWARDS = 2
"""How many forwards take as long as a backward: a product for the gradient of either factor."""


MAX_SETS = 1000
"""Sets that are looked at."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ProfiledNode:
    """An operator of the model, or several in one, and what it costs for one input.

    An input is a mini-batch in PipeDream, after each of which the weights are updated.
    """

    name: Annotated[str, Meaning("name of the node, unique within the graph", key="node")]
    operator: Annotated[str, Meaning("what it computes; `Input` loads data", may_be_empty=True)]
    forward_ms: Annotated[float, Meaning("forward of an input on one worker", "ms", min=0)]
    backward_ms: Annotated[float, Meaning("backward, likewise", "ms", min=0)]
    activation_bytes: Annotated[float, Meaning("size of its output", "bytes", min=0)]
    parameter_bytes: Annotated[float, Meaning("size of its parameters", "bytes", min=0)]
    inputs: Annotated[tuple[str, ...], Meaning("nodes whose output it reads, with `|` between")] = ()

    @property
    def time_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


@dataclass(frozen=True)
class ProfileGraph:
    """The nodes of a model, at least one, in topological order.

    Raises:
        ProfileError: A name is used twice or unknown, or nodes wait for each other.
    """

    nodes: tuple[ProfiledNode, ...]

    def __post_init__(self) -> None:
        """Check the names, and put the nodes in order."""
        object.__setattr__(self, "nodes", _in_order(self.nodes))


def chain_graph(nodes: Iterable[ProfiledNode]) -> ProfileGraph:
    """Return the graph in which each node reads the output of the one before."""
    found: list[ProfiledNode] = []
    for node in nodes:
        found.append(replace(node, inputs=(found[-1].name,) if found else ()))
    return ProfileGraph(tuple(found))


def computed_profile(layers: Iterable[Layer], batch_size: int, tflops: float) -> ProfileGraph:
    """Return a chain of layers as a profile of one mini-batch in 32 bits, where there is no measured one.

    Args:
        layers: In order.
        batch_size: Images of a mini-batch on one worker.
        tflops: What a worker reaches, in 1e12 operations each second.
    """
    return chain_graph(
        ProfiledNode(
            layer.name,
            "computed",
            forward_ms,
            _BACKWARD_FORWARDS * forward_ms,
            _NUMBER_BYTES * batch_size * layer.output_elements(),
            _NUMBER_BYTES * layer.num_parameters,
        )
        for layer in layers
        for forward_ms in [batch_size * layer.forward_flops(1) / (tflops * 1e9)]
    )


def read_profile_graph(path: str | Path) -> ProfileGraph:
    """Read a profile from a CSV file, as the planner needs it; see `for_planning`.

    Raises:
        ProfileError: The file cannot be read or is wrong; the message begins with its path.
    """
    with in_file(path, ProfileError):
        rows = csv_records(Path(path), "node", ProfileError, ProfiledNode)
        return for_planning(ProfileGraph(tuple(node for _, node in rows)))


def for_planning(graph: ProfileGraph) -> ProfileGraph:
    """Return a graph without what PipeDream's planner does not count.

    Nodes that load data are left out, with their time, as those who read them get it beside the pipeline.
    So are outputs (``__getitem__``) that nobody reads. Nodes that cost nothing and read nothing are left out
    too, as they can be in any stage.

    Raises:
        ProfileError: Nothing is left.
    """
    nodes = graph.nodes
    loads = [node.name for node in nodes if not node.inputs and node.operator.startswith("Input")]
    nodes = _without(nodes, loads)
    while unread := _unread_items(nodes):
        nodes = _without(nodes, unread)
    while free := [node.name for node in nodes if not node.inputs and _is_free(node)]:
        nodes = _without(nodes, free)
    if not any(node.time_ms for node in nodes):
        raise ProfileError("forward_ms: is 0 in all nodes that compute; give the time of at least one")
    return ProfileGraph(nodes)


def _without(nodes: Iterable[ProfiledNode], names: Collection[str]) -> tuple[ProfiledNode, ...]:
    return tuple(
        replace(node, inputs=tuple(name for name in node.inputs if name not in names))
        for node in nodes
        if node.name not in names
    )


def _unread_items(nodes: Sequence[ProfiledNode]) -> list[str]:
    read = {name for node in nodes for name in node.inputs}
    return [node.name for node in nodes if node.name not in read and node.operator.startswith("__getitem__")]


def _is_free(node: ProfiledNode) -> bool:
    return not (node.time_ms or node.activation_bytes or node.parameter_bytes)


def _in_order(nodes: Sequence[ProfiledNode]) -> tuple[ProfiledNode, ...]:
    """Return nodes such that each comes after those that it reads, otherwise as they are."""
    if not nodes:
        raise ProfileError("nodes: is empty; give at least one")
    place: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if place.setdefault(node.name, i) != i:
            raise ProfileError(f"node {node.name!r}: is given twice; rename one")
    for node in nodes:
        where = f"node {node.name!r}, column inputs"
        for name in node.inputs:
            if name not in place:
                raise ProfileError(f"{where}: there is no node {name!r}; add it, or remove the name")
        if len(set(node.inputs)) < len(node.inputs):
            raise ProfileError(f"{where}: names a node twice; name it once")
    if all(place[name] < place[node.name] for node in nodes for name in node.inputs):
        return tuple(nodes)
    try:
        order = TopologicalSorter({node.name: node.inputs for node in nodes}).static_order()
        return tuple(nodes[place[name]] for name in order)
    except CycleError as error:
        circle = ", ".join(error.args[1][1:7])
        raise ProfileError(
            f"column inputs: {circle} read each other in a circle; remove one of their inputs"
        ) from None


class ClosedSets(NamedTuple):
    """The closed sets of a graph, smaller ones first, and what they cost.

    Attributes:
        nodes: Nodes of the graph.
        members: Whether a set has a node; shape ``(sets, nodes)``. The first has none, the last has all.
        is_complete: Whether they are all that there are.
        time_ms: Forward and backward for one input of the stage that the second set has beyond the first;
            shape ``(sets, sets)``, infinite where that is none.
        parameter_bytes: Parameters of each stage likewise, without meaning where it is none.
        activation_bytes: Outputs of all nodes of each stage for one input, likewise.
        cut_bytes: Outputs of each set's nodes that nodes outside read; shape ``(sets,)``.
    """

    nodes: tuple[ProfiledNode, ...]
    members: NDArray[np.bool_]
    is_complete: bool
    time_ms: Floats
    parameter_bytes: Floats
    activation_bytes: Floats
    cut_bytes: Floats

    def between(self, first: int, end: int) -> tuple[ProfiledNode, ...]:
        """Return the nodes that one set has beyond another."""
        return tuple(self.nodes[i] for i in np.flatnonzero(self.members[end] & ~self.members[first]))


def closed_sets(graph: ProfileGraph, *, is_cut: bool = True) -> ClosedSets:
    """Return the closed sets of a graph; of one with too many those that begin the order of its nodes.

    Where it is not cut, they are the empty one and the whole.
    """
    nodes = graph.nodes
    place = {node.name: i for i, node in enumerate(nodes)}
    needs = [sum(1 << place[name] for name in node.inputs) for node in nodes]
    layer, found = {0}, [0]  # sets as bits of a number
    while is_cut and layer and len(found) <= MAX_SETS:
        layer = {
            mask | 1 << i
            for mask in layer
            for i, need in enumerate(needs)
            if not mask >> i & 1 and need & mask == need
        }
        found += sorted(layer)
    is_complete = len(found) <= MAX_SETS
    if not is_cut or not is_complete:
        found = [(1 << size) - 1 for size in range(0, len(nodes) + 1, 1 if is_cut else len(nodes))]
    members = np.array([[bool(mask >> i & 1) for i in range(len(nodes))] for mask in found])
    is_stage = members.astype(np.float32) @ ~members.T == 0
    np.fill_diagonal(is_stage, False)
    figures = [(each.time_ms, each.parameter_bytes, each.activation_bytes) for each in nodes]
    until = (members @ np.array(figures)).T
    time_ms, parameters, activations = (np.maximum(each[None, :] - each[:, None], 0.0) for each in until)
    time_ms = np.where(is_stage, time_ms, np.inf)
    is_read = np.array([[node.name in reader.inputs for node in nodes] for reader in nodes])
    cut_bytes = (members & (~members @ is_read)) @ np.array([node.activation_bytes for node in nodes])
    return ClosedSets(nodes, members, is_complete, time_ms, parameters, activations, cut_bytes)
