"""Clusters as data: nodes of GPUs, the links in and between them, and times of collectives on these links.

Times are computed from data sheets and an assumed share of them. The module does not know a model, nor what
other groups of GPUs send at the same time.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, Named, json_file
from placements.forms.tables import csv_rows
from placements.gpus import GPUS, gpu_table
from placements.hardware import Gpu

LINK_EFFICIENCY = 0.77
"""Share of the data sheet's link bandwidth that ring all-reduces and transfers reach: assumed, 230 of the
300 GB/s of an A100."""

LATENCY_US = 5.0
"""Time from a message's start to its first byte: assumed, a few microseconds for NVLink and InfiniBand."""

NAMED_GPUS: Named = {Gpu: GPUS}
"""GPUs that their names stand for in files."""


class GpusError(ValueError):
    """A cluster or a group of its GPUs is wrong; the message gives the fault and the remedy in one line."""


@dataclass(frozen=True)
class Nodes:
    """Equal machines."""

    gpu: Annotated[Gpu, Meaning("what each of their GPUs is")]
    num_nodes: Annotated[int, Meaning("number of nodes", min=1, max=1e6)]
    gpus_per_node: Annotated[int, Meaning("GPUs of a node", min=1, max=1e6)]


@dataclass(frozen=True)
class Cluster:
    """Nodes of GPUs, numbered through: the GPUs of a node follow each other.

    Bandwidths are in one direction, 1e9 bytes per second.
    """

    nodes: Annotated[tuple[Nodes, ...], Meaning("nodes in order, of one or several kinds of GPU")]
    node_bandwidth_gb_s: Annotated[float, Meaning("between a node and all others", "GB/s", above=0)]
    link_bandwidth_gb_s: Annotated[
        float | None, Meaning("between two GPUs of a node; without, each GPU's own", "GB/s", above=0)
    ] = None
    link_efficiency: Annotated[float, Meaning("share of both that is reached", above=0, max=1)] = (
        LINK_EFFICIENCY
    )
    latency_us: Annotated[float, Meaning("latency of each message", "us", min=0)] = LATENCY_US
    source: Annotated[str, Meaning("where the bandwidth between nodes is from")] = "given"

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of all nodes together."""
        return sum(part.num_nodes * part.gpus_per_node for part in self.nodes)

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """The node of each GPU."""
        sizes = [part.gpus_per_node for part in self.nodes for _ in range(part.num_nodes)]
        return tuple(node for node, size in enumerate(sizes) for _ in range(size))

    def group(self, first: int, count: int) -> DeviceGroup:
        """Return a group of consecutive GPUs: the same object each time, so that its ring figures are kept.

        Raises:
            GpusError: The cluster lacks some of them.
        """
        if (first, count) not in self._groups:
            self._groups[first, count] = DeviceGroup(self, first, count)
        return self._groups[first, count]

    @property
    def whole(self) -> DeviceGroup:
        """The group of all GPUs of the cluster."""
        return self.group(0, self.num_gpus)

    @cached_property
    def _groups(self) -> dict[tuple[int, int], DeviceGroup]:
        return {}


class _Sets(NamedTuple):
    """How sets of GPUs lie in the nodes of a group.

    Attributes:
        in_node: The most GPUs of a set that are in one node.
        num_nodes: The most nodes in which GPUs of a set are.
        leaving: Most bytes that leave a node in an all-to-all, as a multiple of one GPU's bytes.
        ring_gb_s: Bandwidth of the slowest ring.
    """

    in_node: int
    num_nodes: int
    leaving: float
    ring_gb_s: float


@dataclass(frozen=True)
class DeviceGroup:
    """Consecutive GPUs of a cluster, which run the same layers.

    Collectives are among `degree` of them that are `stride` apart, in a ring that goes through the members in
    one node before it goes on to the next. So each ring enters and leaves each of its nodes once. All rings
    of the group run at the same time and share what a node has: a ring with k members in a node of g GPUs of
    the group is one of g / k, and its bandwidth is ``min(link, node_bandwidth * k / g)``. A ring in one node
    has the link's. The module counts the rings that cross each node, so that groups which begin or end
    inside a node have what is really theirs; the slowest ring counts for all.

    Raises:
        GpusError: The cluster lacks some of them.
    """

    cluster: Cluster
    first: int
    count: int

    def __post_init__(self) -> None:
        if self.first < 0 or self.count < 1 or self.first + self.count > self.cluster.num_gpus:
            raise GpusError(
                f"count: {self.count} GPUs from {self.first} on are not all in a cluster of "
                f"{self.cluster.num_gpus}; give fewer, or a larger cluster"
            )

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The node of each GPU of the group."""
        return self.cluster.node_of[self.first : self.first + self.count]

    @cached_property
    def _by_node(self) -> list[tuple[Gpu, int]]:
        """The kind and number of the group's GPUs in each of its nodes."""
        kinds = [part.gpu for part in self.cluster.nodes for _ in range(part.num_nodes)]
        return [(kinds[node], count) for node, count in Counter(self.nodes).items()]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of the group."""
        return tuple(gpu for gpu, count in self._by_node for _ in range(count))

    @cached_property
    def _kinds(self) -> list[Gpu]:
        return list({id(gpu): gpu for gpu, _ in self._by_node}.values())

    def fits_in_nodes(self, count: int) -> bool:
        """Return whether the group's GPUs, cut into runs of `count`, have each run in one node."""
        nodes, n = self.nodes, self.count
        return all(nodes[i] == nodes[min(i + count, n) - 1] for i in range(0, n, count))

    @cached_property
    def gpu(self) -> Gpu:
        """The slowest kind of GPU in the group, by its half-precision products."""
        return min(self._kinds, key=lambda gpu: gpu.peak_tflops)

    @property
    def memory_gib(self) -> float:
        """Memory of the GPU that has the least."""
        return min(gpu.memory_gib for gpu in self._kinds)

    @cached_property
    def pattern(self) -> tuple[tuple[str, int], ...]:
        """Kind and number of GPUs in each node of the group. Groups of equal patterns take equal times."""
        return tuple((gpu.name, count) for gpu, count in self._by_node)

    def all_gather_ms(self, num_bytes: float, degree: int, stride: int = 1) -> float:
        """Return the time of a ring all-gather or reduce-scatter of a tensor of `num_bytes` in all.

        Each of n GPUs of a ring sends (n - 1) / n of the bytes in n - 1 messages; an all-reduce is both, one
        after the other.

        Raises:
            GpusError: The group does not consist of such rings.
        """
        return (degree - 1) * self.transfer_ms(num_bytes / degree, degree, stride)

    def transfer_ms(self, num_bytes: float, degree: int, stride: int = 1) -> float:
        """Return the time in which each GPU sends `num_bytes` to the next GPU of its ring."""
        if degree == 1:
            return 0.0
        return self._message_ms(num_bytes, self._sets(degree, stride).ring_gb_s)

    def all_to_all_ms(
        self, num_bytes: float, degree: int, stride: int = 1, node_bytes: float | None = None
    ) -> float:
        """Return the time in which each GPU gives each other GPU of its set an equal part of `num_bytes`.

        Bytes for the same node go by its links and all others by the node's bandwidth, at the same time.
        Messages begin side by side: 256 bytes take 6.5 us among two H100 and 7.4 among eight.

        Bytes are what each GPU gives to all GPUs, itself included; of a node, to all nodes, where one of it
        hands them on by its links, by default all of `num_bytes`.
        """
        if degree == 1:
            return 0.0
        sets, cluster = self._sets(degree, stride), self.cluster
        inside_ms = num_bytes * (degree - 1) / degree / (self._link_gb_s(sets.in_node - 1) * 1e6)
        leaving_bytes = num_bytes if node_bytes is None else node_bytes
        outside_ms = leaving_bytes * sets.leaving / (cluster.node_bandwidth_gb_s * 1e6)
        return max(inside_ms, outside_ms) / cluster.link_efficiency + cluster.latency_us / 1e3

    def next_transfer_ms(self, after: DeviceGroup, num_bytes: float) -> float:
        """Return the time in which each GPU of another group receives `num_bytes` from this group's GPUs.

        A GPU sends to the GPU at its place in the other group, in proportion where the groups' sizes differ.
        GPUs of one node share its bandwidth.
        """
        sources = (self.nodes[place * self.count // after.count] for place in range(after.count))
        flows = [pair for pair in zip(sources, after.nodes, strict=True) if pair[0] != pair[1]]
        crossing = Counter(end for pair in flows for end in enumerate(pair))
        shared = self._shared_gb_s(crossing)
        return self._message_ms(num_bytes, min(self._link_gb_s(1), after._link_gb_s(1), shared))

    def num_nodes(self, degree: int, stride: int = 1) -> int:
        """Return the most nodes in which GPUs of a set are."""
        return self._sets(degree, stride).num_nodes

    def _link_gb_s(self, num_others: int) -> float:
        """Return the bandwidth from a GPU to `num_others` GPUs of its node together."""
        given = self.cluster.link_bandwidth_gb_s
        return min(gpu.link_gb_s(num_others) for gpu in self._kinds) if given is None else given

    def _shared_gb_s(self, crossing: Counter[Any]) -> float:
        """Return the bandwidth of each flow through the node that the most flows cross."""
        return self.cluster.node_bandwidth_gb_s / max(crossing.values()) if crossing else math.inf

    @cached_property
    def _known_sets(self) -> dict[tuple[int, int], _Sets]:
        return {}

    def _sets(self, degree: int, stride: int) -> _Sets:
        """Return the layout over nodes of sets of `degree` GPUs that are `stride` apart."""
        if known := self._known_sets.get((degree, stride)):
            return known
        size, nodes, leaving = degree * stride, self.nodes, Counter[int]()
        if self.count % size:
            fault = f"{degree} GPUs that are {stride} apart do not divide a group of {self.count}"
            raise GpusError(f"degree: {fault}; give degrees whose product divides it")
        begins = (block + i for block in range(0, self.count, size) for i in range(stride))
        rings = [Counter(nodes[begin : begin + size : stride]) for begin in begins]
        for ring in rings:
            for node, members in ring.items():
                leaving[node] += members * (degree - members)
        in_node = max(max(ring.values()) for ring in rings)
        crossing = Counter(node for ring in rings if len(ring) > 1 for node in ring)
        ring_gb_s = min(self._link_gb_s(in_node - 1), self._shared_gb_s(crossing))
        sets = _Sets(in_node, max(map(len, rings)), max(leaving.values()) / degree, ring_gb_s)
        return self._known_sets.setdefault((degree, stride), sets)

    def _message_ms(self, num_bytes: float, bandwidth_gb_s: float) -> float:
        cluster = self.cluster
        seconds = num_bytes / (bandwidth_gb_s * 1e9 * cluster.link_efficiency) + cluster.latency_us / 1e6
        return seconds * 1e3


def read_cluster(text: str, *, gpus_per_node: int | None = None, **figures: float | None) -> Cluster:
    """Return a cluster by its name: a GPU of `placements.gpus.GPUS`, ``_`` and the number of GPUs.

    Several kinds are joined by ``+``, as in ``a100_16+v100_16``; GPUs of your own table are such as
    ``mine.csv:name_16``. Besides, it is one of `CLUSTERS`, or the path of a JSON file with the fields of
    `Cluster`, whose GPUs are names or have those of `Gpu`. By default a node has the GPU's usual number, or
    all where there are fewer; the bandwidth between nodes is the least of the GPUs' own. Other figures, such
    as `node_bandwidth_gb_s`, are fields of `Cluster`; None for the usual one.

    Raises:
        GpusError: A name or a number is wrong, or a bandwidth is missing.

    >>> read_cluster("a100_32").nodes[0].num_nodes
    4
    >>> read_cluster("a100_16+v100_4").num_gpus
    20
    """
    changes: dict[str, Any] = {name: value for name, value in figures.items() if value is not None}
    text = str(text)
    is_file = text.lower().endswith(".json")
    if gpus_per_node is not None and (is_file or text in CLUSTERS):
        raise GpusError(f"gpus_per_node: {gpus_per_node} cannot change {text}; leave it out, or name a GPU")
    if is_file:
        with json_file(text, "a file of a cluster", GpusError, "cluster") as data:
            known = data.record(Cluster, named=NAMED_GPUS)
    elif text in CLUSTERS:
        known = CLUSTERS[text]
    else:
        nodes = tuple(_nodes(part.strip(), text, gpus_per_node) for part in text.split("+"))
        usual = {part.gpu.node_bandwidth_gb_s: part.gpu.network_source for part in nodes}
        num_nodes = sum(part.num_nodes for part in nodes)
        if None in usual and num_nodes > 1 and "node_bandwidth_gb_s" not in changes:
            fault = f"is not known between nodes of {text}"
            raise GpusError(f"node_bandwidth_gb_s: {fault}; give it, in GB/s per direction")
        least = min((gb_s for gb_s in usual if gb_s is not None), default=1.0)  # not used in one node
        known = Cluster(nodes, least, source=usual.get(least, "one node"))
    if "node_bandwidth_gb_s" in changes:
        changes["source"] = "given"
    changed = Field(vars(replace(known, **changes)), "", GpusError, is_open=True)
    return changed.record(Cluster, nodes=known.nodes)


def _nodes(part: str, text: str, gpus_per_node: int | None) -> Nodes:
    """Return the nodes of a part of a cluster's name: one kind of GPU and a number, as ``a100_32``."""
    name, _, count = part.rpartition("_")
    gpus, key = gpu_table(name)
    if key not in gpus or not re.fullmatch("0*[1-9][0-9]{0,5}", count):
        near = [part] if part in gpus else difflib.get_close_matches((key or part).lower(), gpus, n=1)
        remedy = f"did you mean {near[0]}_{count if count.strip('0').isdecimal() else 8}? " if near else ""
        inside = "" if part == text else f" in {text!r}"
        fault = f"{part!r}{inside} is not a known GPU and a number, as in a100_8"
        others = "others have a file, as cluster=mine.json"
        raise GpusError(f"cluster: {fault}; {remedy}GPUs are {', '.join(gpus)}; {others}")
    asked = gpus[key].gpus_per_node if gpus_per_node is None else gpus_per_node
    per_node = min(Field(asked, "gpus_per_node", GpusError).whole("a number of GPUs", min=1), int(count))
    if int(count) % per_node:
        fault = f"{count} GPUs of {part} are not whole nodes of {per_node}"
        raise GpusError(f"cluster: {fault}; give a multiple, or another gpus_per_node")
    return Nodes(gpus[key], int(count) // per_node, per_node)


CLUSTERS: dict[str, Cluster] = {}
"""Clusters of papers, by name."""

for _row in csv_rows(Path(__file__).with_name("clusters.csv"), "cluster", GpusError):
    _links = {_name: _row[_name].number() for _name in _row.cells if _name.endswith("_gb_s")}
    _named = read_cluster(_row.text("gpus"), gpus_per_node=None, **_links)
    CLUSTERS[_row.text("name")] = replace(_named, source=_row.text("source"))
