"""Costs of each node of a model for one input, the nodes that it reads, and the cuts of the graph.

A profile is a CSV file with a row for each node, a `ProfiledNode`. The time of loading
data and outputs that nobody reads are left out, as in PipeDream's planner.

A graph is cut at closed sets: nodes that have with each all that it reads. What lies between two such sets,
of which one holds the other, can be a stage. For a chain they are its beginnings; where branches run side by
side there are more, one for each antichain of PipeDream's optimizer. The module does not know workers.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from placements.planners.division import Floats
from placements.profiles.operating_point import ProfileError

_BACKWARD_FORWARDS = 2
"""How many forwards take as long as a backward: a product for the gradient of either factor."""

MAX_SETS = 1000
"""Sets that are looked at."""


@dataclass(frozen=True)
class ProfiledNode:
    """An operator of the model, or several as one, with its costs for one input.

    An input is a mini-batch in PipeDream, after each of which the weights are updated.
    """

    name: Annotated[str, Meaning("unique name", key="node")]
    operator: Annotated[str, Meaning("operator; `Input` is left out", may_be_empty=True)]
    forward_ms: Annotated[float, Meaning("forward time of a mini-batch on one worker", "ms", min=0)]
    backward_ms: Annotated[float, Meaning("backward time of a mini-batch on one worker", "ms", min=0)]
    activation_bytes: Annotated[float, Meaning("size of its output", "bytes", min=0)]
    parameter_bytes: Annotated[float, Meaning("size of its parameters", "bytes", min=0)]
    inputs: Annotated[tuple[str, ...], Meaning("predecessors, separated by `|`")] = ()

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
        """Check the names, and sort nodes after their inputs if the given order does not."""
        place: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            if place.setdefault(node.name, i) != i:
                raise ProfileError(f"node {node.name!r}: is given twice; rename one")
        for node in self.nodes:
            where = f"node {node.name!r}, column inputs"
            if unknown := [name for name in node.inputs if name not in place]:
                raise ProfileError(f"{where}: there is no node {unknown[0]!r}; add it, or remove the name")
            if len(set(node.inputs)) < len(node.inputs):
                raise ProfileError(f"{where}: names a node twice; name it once")
        if all(place[name] < place[node.name] for node in self.nodes for name in node.inputs):
            return
        try:
            order = [*TopologicalSorter({node.name: node.inputs for node in self.nodes}).static_order()]
        except CycleError as error:
            circle = ", ".join(error.args[1][1:7])
            fault = f"{circle} read each other in a circle"
            raise ProfileError(f"column inputs: {fault}; remove one of their inputs") from None
        object.__setattr__(self, "nodes", tuple(self.nodes[place[name]] for name in order))


def chain_graph(nodes: Iterable[ProfiledNode]) -> ProfileGraph:
    """Return the graph in which each node reads the output of the one before."""
    chain: list[ProfiledNode] = []
    for node in nodes:
        chain.append(replace(node, inputs=(chain[-1].name,) if chain else ()))
    return ProfileGraph(tuple(chain))


def computed_profile(layers: Iterable[Layer], batch_size: int, tflops: float) -> ProfileGraph:
    """Return a chain of layers as a computed profile of one mini-batch in 32 bits, without measurements.

    Args:
        layers: In order.
        batch_size: Images of a mini-batch on one worker.
        tflops: Speed that a worker reaches, in 1e12 operations per second.
    """
    nodes = []
    for layer in layers:
        forward_ms = batch_size * layer.forward_flops(1) / (tflops * 1e9)
        outputs, parameters = batch_size * layer.output_elements(), layer.num_parameters
        times_ms, num_bytes = (forward_ms, _BACKWARD_FORWARDS * forward_ms), (4.0 * outputs, 4.0 * parameters)
        nodes.append(ProfiledNode(layer.name, "computed", *times_ms, *num_bytes))
    return chain_graph(nodes)


def read_profile_graph(path: str | Path) -> ProfileGraph:
    """Read a profile from a CSV file, without the nodes that PipeDream's planner does not count.

    Nodes that load data are left out, with their time, as those who read them get it beside the pipeline.
    So are outputs (``__getitem__``) that nobody reads. Nodes that cost nothing and read nothing are left out
    too, as they can be in any stage.

    Raises:
        ProfileError: The file cannot be read or is wrong, or nothing is left; the message begins with its
            path.
    """
    with in_file(path, ProfileError):
        rows = csv_records(Path(path), "node", ProfileError, ProfiledNode)
        nodes, left_out = ProfileGraph(tuple(node for _, node in rows)).nodes, {""}
        while left_out:
            read = {name for node in nodes for name in node.inputs}
            left_out = {node.name for node in nodes if _is_left_out(node, node.name in read)}
            nodes = tuple(
                replace(node, inputs=tuple(name for name in node.inputs if name not in left_out))
                for node in nodes
                if node.name not in left_out
            )
        if not any(node.time_ms for node in nodes):
            raise ProfileError("forward_ms: is 0 in all nodes that compute; give the time of at least one")
        return ProfileGraph(nodes)


def _is_left_out(node: ProfiledNode, is_read: bool) -> bool:
    is_free = not (node.time_ms or node.activation_bytes or node.parameter_bytes)
    if not node.inputs and (is_free or node.operator.startswith("Input")):
        return True
    return not is_read and node.operator.startswith("__getitem__")


class ClosedSets(NamedTuple):
    """The closed sets of a graph, smaller ones first, and their costs.

    Attributes:
        nodes: Nodes of the graph.
        members: Whether a set has a node; shape ``(sets, nodes)``. The first has none, the last has all.
        is_complete: Whether these are all closed sets of the graph.
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


def closed_sets(graph: ProfileGraph, *, is_cut: bool = True) -> ClosedSets:
    """Return the closed sets of a graph; if they are too many, only prefixes of the order of its nodes.

    Without cuts they are the empty set and the whole.
    """
    nodes = graph.nodes
    place = {node.name: i for i, node in enumerate(nodes)}
    needs = [sum(1 << place[name] for name in node.inputs) for node in nodes]
    layer, sets = {0}, [0]  # sets as bits of a number
    while is_cut and layer and len(sets) <= MAX_SETS:
        layer = {
            mask | 1 << i
            for mask in layer
            for i, need in enumerate(needs)
            if not mask >> i & 1 and need & mask == need
        }
        sets += sorted(layer)
    is_complete = len(sets) <= MAX_SETS
    if not is_cut or not is_complete:
        sets = [(1 << size) - 1 for size in range(0, len(nodes) + 1, 1 if is_cut else len(nodes))]
    members = np.array([[bool(mask >> i & 1) for i in range(len(nodes))] for mask in sets])
    is_stage = members.astype(np.float32) @ ~members.T == 0
    np.fill_diagonal(is_stage, False)
    figures = [(node.time_ms, node.parameter_bytes, node.activation_bytes) for node in nodes]
    until = (members @ np.array(figures)).T
    time_ms, parameters, activations = (np.maximum(sums[None, :] - sums[:, None], 0.0) for sums in until)
    time_ms = np.where(is_stage, time_ms, np.inf)
    is_read = np.array([[node.name in reader.inputs for node in nodes] for reader in nodes])
    cut_bytes = (members & (~members @ is_read)) @ np.array([node.activation_bytes for node in nodes])
    return ClosedSets(nodes, members, is_complete, time_ms, parameters, activations, cut_bytes)
