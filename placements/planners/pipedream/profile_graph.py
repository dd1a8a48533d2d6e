"""Costs of each node of a model for one input, and the nodes that it reads: a profile as PipeDream has it.

The file form is a CSV file with a row for each node, a `ProfiledNode`. What PipeDream's planner leaves out is
left out: the time of loading data, and outputs that nobody reads. The module does not know stages or workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated

from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records
from placements.profiles.operating_point import ProfileError

_LONGEST = 60
"""Characters of a cell that a message shows."""


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

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing at all."""
        return not (self.time_ms or self.activation_bytes or self.parameter_bytes)


@dataclass(frozen=True)
class ProfileGraph:
    """The nodes of a model, each after those whose output it reads.

    Attributes:
        nodes: At least one, in topological order.

    Raises:
        ProfileError: A name is used twice or unknown, or nodes wait for each other.
    """

    nodes: tuple[ProfiledNode, ...]

    def __post_init__(self) -> None:
        """Check the names, and put the nodes in order."""
        object.__setattr__(self, "nodes", _in_order(self.nodes))

    @property
    def time_ms(self) -> float:
        """Forward and backward of the whole model on one worker."""
        return math.fsum(node.time_ms for node in self.nodes)

    @property
    def parameter_bytes(self) -> float:
        """Parameters of the whole model."""
        return math.fsum(node.parameter_bytes for node in self.nodes)


def chain_graph(nodes: Iterable[ProfiledNode]) -> ProfileGraph:
    """Return the graph in which each node reads the output of the one before.

    Raises:
        ProfileError: A name is used twice.
    """
    found: list[ProfiledNode] = []
    for node in nodes:
        found.append(replace(node, inputs=(found[-1].name,) if found else ()))
    return ProfileGraph(tuple(found))


def read_profile_graph(path: str | Path) -> ProfileGraph:
    """Read a profile from a CSV file, as the planner needs it; see `for_planning`.

    Raises:
        ProfileError: The file cannot be read or is wrong; the message begins with its path.
    """
    with in_file(path, ProfileError):
        return for_planning(profile_graph(Path(path)))


def profile_graph(table: str | Path) -> ProfileGraph:
    """Return the graph of a CSV file, or of what one holds, with all of its nodes.

    Raises:
        ProfileError: The table is wrong.
    """
    return ProfileGraph(tuple(node for _, node in csv_records(table, "node", ProfileError, ProfiledNode)))


def for_planning(graph: ProfileGraph) -> ProfileGraph:
    """Return a graph without what PipeDream's planner does not count.

    Nodes that load data are left out, with their time, as those who read them get it beside the pipeline.
    So are outputs (``__getitem__``) that nobody reads. Nodes that cost nothing and read nothing are left out
    too, as they can be in any stage.

    Raises:
        ProfileError: Nothing is left.
    """
    nodes = {node.name: node for node in graph.nodes}
    loads = [name for name, node in nodes.items() if not node.inputs and node.operator.startswith("Input")]
    nodes = _without(nodes, loads)
    while unread := [name for name in _unread(nodes) if nodes[name].operator.startswith("__getitem__")]:
        nodes = _without(nodes, unread)
    while free := [name for name, node in nodes.items() if node.is_free and not node.inputs]:
        nodes = _without(nodes, free)
    if not math.fsum(node.time_ms for node in nodes.values()) > 0:
        raise ProfileError("forward_ms: is 0 in all nodes that compute; give the time of at least one")
    return ProfileGraph(tuple(nodes.values()))


def _without(nodes: Mapping[str, ProfiledNode], names: Sequence[str]) -> dict[str, ProfiledNode]:
    gone = set(names)
    return {
        name: replace(node, inputs=tuple(each for each in node.inputs if each not in gone))
        for name, node in nodes.items()
        if name not in gone
    }


def _unread(nodes: Mapping[str, ProfiledNode]) -> list[str]:
    read = {name for node in nodes.values() for name in node.inputs}
    return [name for name in nodes if name not in read]


def _in_order(nodes: Sequence[ProfiledNode]) -> tuple[ProfiledNode, ...]:
    """Return nodes such that each comes after those that it reads, otherwise as they are."""
    if not nodes:
        raise ProfileError("nodes: is empty; give at least one")
    by_name = {node.name: node for node in nodes}
    if len(by_name) < len(nodes):
        names = [node.name for node in nodes]
        twice = next(name for name in names if names.count(name) > 1)
        raise ProfileError(f"node {_shown(twice)}: is given twice; rename one")
    for node in nodes:
        for name in node.inputs:
            if name not in by_name:
                raise ProfileError(
                    f"node {_shown(node.name)}, column inputs: there is no node {_shown(name)}; add it, or "
                    "remove the name"
                )
        if len(set(node.inputs)) < len(node.inputs):
            raise ProfileError(f"node {_shown(node.name)}, column inputs: names a node twice; name it once")
    place = {node.name: i for i, node in enumerate(nodes)}
    if all(place[name] < place[node.name] for node in nodes for name in node.inputs):
        return tuple(nodes)
    try:
        order = TopologicalSorter({node.name: node.inputs for node in nodes}).static_order()
        return tuple(by_name[name] for name in order)
    except CycleError as error:
        circle = ", ".join(error.args[1][1:7])
        raise ProfileError(
            f"column inputs: {circle} read each other in a circle; remove one of their inputs"
        ) from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
