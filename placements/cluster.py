"""Clusters as data: nodes of GPUs, the links in and between them, and what collectives take on these.

Times are computed from data sheets and an assumed share of them. The module does not know a model, nor what
other groups of GPUs send at the same time.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from placements.forms.reading import Named, json_file
from placements.gpus import GPUS
from placements.hardware import Gpu

LINK_EFFICIENCY = 0.77
"""Share of the data sheet's link bandwidth that ring all-reduces and transfers reach: assumed, 230 of the
300 GB/s of an A100."""

LATENCY_US = 5.0
"""Time from a message's start to its first byte: assumed, a few microseconds for NVLink and InfiniBand."""


NAMED_GPUS: Named = {Gpu: GPUS}
"""GPUs that their names stand for in files."""

_MAX = 10**6
"""Largest number of nodes, or of GPUs of a node."""


class GpusError(ValueError):
    """A cluster or a group of its GPUs is wrong; the message says what and the remedy in one line."""


@dataclass(frozen=True)
class Nodes:
    """Equal machines.

    Attributes:
        gpu: What each of their GPUs is.
        num_nodes: Number of nodes, at least one.
        gpus_per_node: GPUs of a node, at least one.

    Raises:
        GpusError: A number is out of its range.
    """

    gpu: Gpu
    num_nodes: int
    gpus_per_node: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("num_nodes", "gpus_per_node"):
            _check_count(name, getattr(self, name))


@dataclass(frozen=True)
class Cluster:
    """Machines whose GPUs are numbered through, those of a node one after the other.

    Attributes:
        nodes: Nodes in order; they may have GPUs of several kinds.
        node_bandwidth_gb_s: Bandwidth between a node and all others, in one direction, 1e9 bytes per second.
            Not used where there is one node.
        link_bandwidth_gb_s: Bandwidth between two GPUs of a node, in one direction; None for each GPU's own.
        link_efficiency: Share of both that is reached; above 0, at most 1.
        latency_us: Latency of each message, 1e-6 seconds.
        source: Where `node_bandwidth_gb_s` is from.

    Raises:
        GpusError: A figure is out of its range.
    """

    nodes: tuple[Nodes, ...]
    node_bandwidth_gb_s: float
    link_bandwidth_gb_s: float | None = None
    link_efficiency: float = LINK_EFFICIENCY
    latency_us: float = LATENCY_US
    source: str = "given"

    def __post_init__(self) -> None:
        """Check every figure."""
        if not self.nodes:
            raise GpusError("nodes: () has no machine; give at least one")
        for name in ("node_bandwidth_gb_s", "link_bandwidth_gb_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise GpusError(f"{name}: {value!r} is not a bandwidth above 0; give one in GB/s")
        if not 0 < self.link_efficiency <= 1:
            raise GpusError(
                f"link_efficiency: {self.link_efficiency} is not a share above 0 and at most 1; give one"
            )
        if not 0 <= self.latency_us < math.inf:
            raise GpusError(f"latency_us: {self.latency_us} is not a time of 0 or more; give one")

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of all nodes together."""
        return sum(each.num_nodes * each.gpus_per_node for each in self.nodes)

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """The node of each GPU."""
        sizes = [each.gpus_per_node for each in self.nodes for _ in range(each.num_nodes)]
        return tuple(node for node, size in enumerate(sizes) for _ in range(size))

    def group(self, first: int, count: int) -> DeviceGroup:
        """Return consecutive GPUs.

        Raises:
            GpusError: The cluster lacks some of them.
        """
        if (first, count) not in self._groups:
            self._groups[first, count] = DeviceGroup(self, first, count)
        return self._groups[first, count]

    @property
    def whole(self) -> DeviceGroup:
        """All of its GPUs."""
        return self.group(0, self.num_gpus)

    @cached_property
    def _groups(self) -> dict[tuple[int, int], DeviceGroup]:
        """Groups made before, with what they found out about their rings."""
        return {}


@dataclass(frozen=True)
class DeviceGroup:
    """Consecutive GPUs of a cluster, which run the same layers.

    Collectives are among `degree` of them that are `stride` apart, in a ring that goes through the members in
    one node before it goes on to the next. So each ring enters and leaves each of its nodes once. All rings
    of the group run at the same time and share what a node has: a ring with k members in a node of g GPUs of
    the group is one of g / k, and its bandwidth is ``min(link, node_bandwidth * k / g)``. A ring in one node
    has the link's. The module counts the rings that cross each node, so that groups which begin or end
    inside a node have what is really theirs; the slowest ring counts for all.

    Attributes:
        cluster: Cluster that the GPUs belong to.
        first: Index of the first, from 0.
        count: How many.

    Raises:
        GpusError: The cluster lacks some of them.
    """

    cluster: Cluster
    first: int
    count: int

    def __post_init__(self) -> None:
        """Check that the cluster has them."""
        _check_count("count", self.count)
        if self.first < 0 or self.first + self.count > self.cluster.num_gpus:
            raise GpusError(
                f"count: {self.count} GPUs from {self.first} on are not all in a cluster of "
                f"{self.cluster.num_gpus}; give fewer, or a larger cluster"
            )

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each of its GPUs."""
        return self.cluster.node_of[self.first : self.first + self.count]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Each of its GPUs."""
        kinds = [each.gpu for each in self.cluster.nodes for _ in range(each.num_nodes)]
        return tuple(kinds[node] for node in self.nodes)

    def fits_in_nodes(self, count: int) -> bool:
        """Return whether each so many of its GPUs, one after the other, are in one node."""
        nodes = self.nodes
        return all(
            nodes[first] == nodes[min(first + count, len(nodes)) - 1] for first in range(0, len(nodes), count)
        )

    @cached_property
    def gpu(self) -> Gpu:
        """The slowest kind of GPU in it, by its half-precision products."""
        return min(self._kinds, key=lambda gpu: gpu.peak_tflops)

    @property
    def memory_gib(self) -> float:
        """Memory of the GPU that has the least."""
        return min(gpu.memory_gib for gpu in self._kinds)

    @cached_property
    def pattern(self) -> tuple[tuple[str, int], ...]:
        """Its GPUs in each of its nodes: the kind and how many. Groups of equal patterns take equal times."""
        counts = Counter(zip((gpu.name for gpu in self.gpus), self.nodes, strict=True))
        return tuple((name, count) for (name, _), count in counts.items())

    def all_reduce_ms(self, num_bytes: float, degree: int, stride: int = 1) -> float:
        """Return the time of a ring all-reduce.

        Args:
            num_bytes: Bytes of the tensor that each GPU has.
            degree: GPUs of a ring, n. Each sends 2 (n - 1) / n of the bytes in 2 (n - 1) messages.
            stride: How far apart they are.

        Raises:
            GpusError: The group does not consist of such rings.
        """
        return 2 * self.all_gather_ms(num_bytes, degree, stride)

    def all_gather_ms(self, num_bytes: float, degree: int, stride: int = 1) -> float:
        """Return the time of a ring all-gather or reduce-scatter of a tensor of `num_bytes` in all."""
        return (degree - 1) * self.transfer_ms(num_bytes / degree, degree, stride)

    def transfer_ms(self, num_bytes: float, degree: int, stride: int = 1) -> float:
        """Return the time in which each GPU sends `num_bytes` to the next of its ring."""
        if degree == 1:
            return 0.0
        return self._seconds(num_bytes, self._ring_gb_s(degree, stride)) * 1e3

    def all_to_all_ms(
        self, num_bytes: float, degree: int, stride: int = 1, node_bytes: float | None = None
    ) -> float:
        """Return the time in which each GPU gives each other of its set an equal part of `num_bytes`.

        What stays in the node goes by its links and the rest by the node's bandwidth, at the same time.
        Messages begin side by side: 256 bytes take 6.5 us among two H100 and 7.4 among eight.

        Args:
            num_bytes: Bytes that each GPU gives to all GPUs, itself included.
            degree: GPUs of a set.
            stride: How far apart they are.
            node_bytes: Bytes that each GPU gives to all nodes, where one of the node hands them on by its
                links; None for all of `num_bytes`.
        """
        if degree == 1:
            return 0.0
        link_gb_s = self._link_gb_s(self._max_in_node(degree, stride) - 1)
        inside_ms = num_bytes * (degree - 1) / degree / (link_gb_s * 1e6)
        leaving_bytes = num_bytes if node_bytes is None else node_bytes
        outside_ms = (
            leaving_bytes * self._max_leaving(degree, stride) / (self.cluster.node_bandwidth_gb_s * 1e6)
        )
        ms = max(inside_ms, outside_ms) / self.cluster.link_efficiency
        return ms + self.cluster.latency_us / 1e3

    def next_transfer_ms(self, after: DeviceGroup, num_bytes: float) -> float:
        """Return the time in which the GPUs of another group receive something from those of this one.

        GPUs send to those at the same place of the other group, in proportion where their numbers differ.
        Those of a node share its bandwidth.

        Args:
            after: The other group.
            num_bytes: Bytes that each of its GPUs receives.
        """
        flows: Counter[tuple[str, int]] = Counter()
        nodes = self.cluster.node_of
        for place in range(after.count):
            source = nodes[self.first + place * self.count // after.count]
            target = nodes[after.first + place]
            if source != target:
                flows["out", source] += 1
                flows["in", target] += 1
        busiest = max(flows.values(), default=0)
        shared = self.cluster.node_bandwidth_gb_s / busiest if busiest else math.inf
        return self._seconds(num_bytes, min(self._link_gb_s(1), after._link_gb_s(1), shared)) * 1e3

    def hand_over_ms(
        self, after: DeviceGroup, num_bytes: float, tensor_parallel: int, *, is_scattered: bool
    ) -> float:
        """Return the time until the teams of another group have what those of this one made, each all of it.

        Args:
            after: The other group.
            num_bytes: Bytes of the tensor that a team hands to its like, the same on all its GPUs.
            tensor_parallel: GPUs of a team.
            is_scattered: Whether each GPU sends its part and the other team gathers them (Narayanan's
                dissertation, Sec. 4.4.1), rather than the whole.
        """
        if not is_scattered:
            return self.next_transfer_ms(after, num_bytes)
        part_ms = self.next_transfer_ms(after, num_bytes / tensor_parallel)
        return part_ms + after.all_gather_ms(num_bytes, tensor_parallel)

    @cached_property
    def _kinds(self) -> list[Gpu]:
        """Each kind of GPU in it."""
        ends = list(accumulate(each.num_nodes * each.gpus_per_node for each in self.cluster.nodes))
        return [
            each.gpu
            for each, begin, end in zip(self.cluster.nodes, [0, *ends], ends, strict=False)
            if begin < self.first + self.count and self.first < end
        ]

    def _link_gb_s(self, num_others: int) -> float:
        """Return the bandwidth from a GPU to so many others of its node together."""
        given = self.cluster.link_bandwidth_gb_s
        if given is not None:
            return given
        return min(gpu.link_gb_s(num_others) for gpu in self._kinds)

    @cached_property
    def _found(self) -> dict[tuple[str, int, int], float]:
        """Figures of rings computed before."""
        return {}

    def _ring_gb_s(self, degree: int, stride: int) -> float:
        """Return the bandwidth of the slowest ring."""
        key = ("ring", degree, stride)
        if key not in self._found:
            rings = [ring for ring in self._rings(degree, stride) if len(ring) > 1]
            crossing = max(Counter(node for ring in rings for node in ring).values(), default=0)
            shared = self.cluster.node_bandwidth_gb_s / crossing if crossing else math.inf
            link_gb_s = self._link_gb_s(self._max_in_node(degree, stride) - 1)
            self._found[key] = min(link_gb_s, shared)
        return self._found[key]

    def _max_in_node(self, degree: int, stride: int) -> int:
        """Return the most GPUs of a set that are in one node."""
        key = ("in node", degree, stride)
        if key not in self._found:
            self._found[key] = max(max(ring.values()) for ring in self._rings(degree, stride))
        return int(self._found[key])

    def num_nodes(self, degree: int, stride: int = 1) -> int:
        """Return the most nodes in which GPUs of a set are."""
        key = ("nodes", degree, stride)
        if key not in self._found:
            self._found[key] = max(len(ring) for ring in self._rings(degree, stride))
        return int(self._found[key])

    def _max_leaving(self, degree: int, stride: int) -> float:
        """Return the most that leaves a node in an all-to-all, as a multiple of what one GPU has."""
        key = ("leaving", degree, stride)
        if key not in self._found:
            leaving: Counter[int] = Counter()
            for ring in self._rings(degree, stride):
                for node, members in ring.items():
                    leaving[node] += members * (degree - members)
            self._found[key] = max(leaving.values()) / degree
        return self._found[key]

    def _rings(self, degree: int, stride: int) -> list[Counter[int]]:
        """Return how many members each ring has in each of its nodes."""
        _check_count("degree", degree)
        _check_count("stride", stride)
        if self.count % (degree * stride):
            raise GpusError(
                f"degree: {degree} GPUs that are {stride} apart do not divide a group of {self.count}; give "
                "degrees whose product divides it"
            )
        nodes = self.cluster.node_of
        return [
            Counter(nodes[begin + i * stride] for i in range(degree))
            for block in range(self.first, self.first + self.count, degree * stride)
            for begin in range(block, block + stride)
        ]

    def _seconds(self, num_bytes: float, bandwidth_gb_s: float) -> float:
        """Return the time of one message."""
        cluster = self.cluster
        return num_bytes / (bandwidth_gb_s * 1e9 * cluster.link_efficiency) + cluster.latency_us / 1e6


def read_cluster(
    text: str,
    *,
    gpus_per_node: int | None = None,
    node_bandwidth_gb_s: float | None = None,
    link_bandwidth_gb_s: float | None = None,
    latency_us: float | None = None,
) -> Cluster:
    """Return a cluster by its name: a GPU of `placements.gpus.GPUS`, ``_`` and how many.

    Args:
        text: Such as ``a100_32``; several kinds with ``+``, as in ``a100_16+v100_16``; one of `CLUSTERS`; or
            the path of a JSON file with the fields of `Cluster`, whose GPUs are names or have those of `Gpu`.
        gpus_per_node: GPUs of a node; by default the GPU's usual number, or all GPUs where there are fewer.
        node_bandwidth_gb_s: Bandwidth between nodes; by default the file's, else the least of the GPUs' own.
        link_bandwidth_gb_s: Bandwidth inside a node; by default the file's, else each GPU's own.
        latency_us: Time of each message; by default the file's, else `LATENCY_US`.

    Raises:
        GpusError: A name or a number is wrong, or a bandwidth is missing.

    >>> read_cluster("a100_32").nodes[0].num_nodes
    4
    >>> read_cluster("a100_16+v100_4").num_gpus
    20
    """
    if not isinstance(text, str):
        raise GpusError(f"cluster: {text!r} is not a name; give one such as a100_32")
    if text in CLUSTERS or text.lower().endswith(".json"):
        if gpus_per_node is not None:
            raise GpusError(
                f"gpus_per_node: {gpus_per_node} cannot change {text}; leave it out, or name a GPU"
            )
        cluster = CLUSTERS[text] if text in CLUSTERS else _of_file(text)
    else:
        nodes = tuple(_nodes(*_read_part(part, text), gpus_per_node) for part in text.split("+"))
        usual = {each.gpu.node_bandwidth_gb_s: each.gpu.network_source for each in nodes}
        if node_bandwidth_gb_s is None and None in usual and sum(each.num_nodes for each in nodes) > 1:
            raise GpusError(
                f"node_bandwidth_gb_s: is not known between nodes of {text}; give it, in GB/s per direction"
            )
        least = min((each for each in usual if each is not None), default=_UNUSED_GB_S)
        cluster = Cluster(nodes, least, source=usual.get(least, "one node"))
    given: dict[str, Any] = {
        "node_bandwidth_gb_s": node_bandwidth_gb_s,
        "link_bandwidth_gb_s": link_bandwidth_gb_s,
        "latency_us": latency_us,
        "source": None if node_bandwidth_gb_s is None else "given",
    }
    return replace(cluster, **{name: value for name, value in given.items() if value is not None})


def _of_file(path: str) -> Cluster:
    with json_file(path, "a file of a cluster", GpusError, "cluster") as data:
        return data.record(Cluster, named=NAMED_GPUS)


_UNUSED_GB_S = 1.0
"""Between nodes where there is but one."""


def _read_part(part: str, text: str) -> tuple[str, int]:
    name, _, count = part.strip().rpartition("_")
    is_number = count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MAX
    if name not in GPUS or not is_number:
        what, form = (name, "") if name and is_number else (part.strip(), ", _ and a number")
        inside = "" if part == text else f" in {text!r}"
        raise GpusError(f"cluster: {what!r}{inside} is not a known GPU{form}; {_remedy(part.strip(), name)}")
    return name, int(count)


def _remedy(part: str, name: str) -> str:
    """Return what to write instead: a number after a known GPU, or one of all, the nearest first."""
    if part in GPUS or name in GPUS:
        return f"say how many, as in {part if part in GPUS else name}_8"
    near = difflib.get_close_matches((name or part).lower(), GPUS, n=1)
    known = f"GPUs are {', '.join(GPUS)}, as in a100_32; others have a file, as cluster=mine.json"
    return f"did you mean {near[0]}? The {known}" if near else f"the {known}"


def _nodes(name: str, count: int, gpus_per_node: int | None) -> Nodes:
    if gpus_per_node is not None:
        _check_count("gpus_per_node", gpus_per_node)
    each = min(gpus_per_node or GPUS[name].gpus_per_node, count)
    if count % each:
        raise GpusError(
            f"cluster: {count} GPUs of {name}_{count} are not whole nodes of {each}; give a multiple, or "
            "another gpus_per_node"
        )
    return Nodes(GPUS[name], count // each, each)


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= _MAX:
        raise GpusError(f"{name}: {value!r} is not a whole number of at least 1 and at most {_MAX}; give one")


def _named(
    gpu: str, count: int, node_bandwidth_gb_s: float, source: str, link_bandwidth_gb_s: float | None = None
) -> Cluster:
    nodes = Nodes(GPUS[gpu], count // 8, 8)
    return Cluster((nodes,), node_bandwidth_gb_s, link_bandwidth_gb_s, source=source)


_TITAN_LINK_GB_S = 6.3
"""Bandwidth of PCIe in a node of eight TITAN RTX: rings reach 4.9 GB/s in the measurements that Galvatron
ships, which is this much over the share that is taken to be reached."""

CLUSTERS: Mapping[str, Cluster] = {
    "galvatron_titan_8": _named("rtx_titan", 8, 12.5, "Galvatron-BMW, Table II", _TITAN_LINK_GB_S),
    "galvatron_titan_16": _named(
        "rtx_titan", 16, 12.5, "Galvatron-BMW, Table III: 100 Gb/s InfiniBand", _TITAN_LINK_GB_S
    ),
    "galvatron_a100_16": _named("a100_40gb", 16, 12.5, "Galvatron-BMW, Table III: 100 Gb/s InfiniBand"),
    "galvatron_a100_64": _named("a100_40gb", 64, 12.5, "Galvatron-BMW, Table IV: 100 Gb/s InfiniBand"),
    "galvatron_a100_32": _named("a100", 32, 50.0, "Galvatron-BMW, Table VI: 400 Gb/s InfiniBand"),
    "tessel_v100_32": _named("v100", 32, 12.5, "Tessel, Sec. VI-A: 100 Gb/s InfiniBand"),
}
"""Clusters of papers, by name."""
