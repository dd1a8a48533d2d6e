"""Times of gathers and transfers on measured links, for the GPUs of a stage.

All rings of a group run at the same time, so those that cross nodes share what a node reaches. The module
does not know what is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from placements.cluster import DeviceGroup
from placements.measured.link_fit import GpuGroup, Links
from placements.models.parallel import SharingLevel
from placements.planners.hybrid.profiled.measured_cluster import MeasuredCluster


@dataclass(frozen=True)
class MeasuredLinks:
    """The links between the GPUs of a cluster.

    Attributes:
        links: Links as measured.
        where: The GPUs, and what the profile calls them.
    """

    links: Links
    where: MeasuredCluster

    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time until each GPU of a ring has all bytes, of which it had an equal share.

        Args:
            group: The GPUs, all of them in such rings.
            num_bytes: Bytes of the whole tensor.
            level: GPUs of a ring and how far apart they are. Where they cross nodes, as many rings as that
                leave each node at once.

        Raises:
            NotProfiledError: A link was not measured.
        """
        degree, stride = level
        if degree == 1:
            return 0.0
        if all(count % (degree * stride) == 0 for _, count in group.pattern):
            rings = (self._named(kind, degree) for kind in self._kinds(group))
            return max(self.links.all_gather_ms(ring, num_bytes) for ring in rings)
        sent = stride * num_bytes / degree
        kinds = [self._named(kind, stride) for kind in self._kinds(group)]
        hops = zip(kinds, [*kinds[1:], kinds[0]], strict=True)
        return (degree - 1) * max(self.links.send_ms(a, b, sent) for a, b in hops)

    def transfer_ms(self, num_bytes: float, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send bytes from one group to another, of which each GPU receives an equal part.

        Raises:
            NotProfiledError: A link was not measured.
        """
        part = num_bytes / after.count
        return max(self._transfers(part, before, after))

    def _transfers(self, part: float, before: DeviceGroup, after: DeviceGroup) -> Iterator[float]:
        """Yield the time of each pair of nodes, all of whose GPUs send at once."""
        nodes = before.cluster.node_of
        pairs = [
            (before.first + place * before.count // after.count, after.first + place)
            for place in range(after.count)
        ]
        receivers = Counter((nodes[a], nodes[b]) for a, b in pairs)
        senders = Counter((nodes[a], node) for a, node in {(a, nodes[b]) for a, b in pairs})
        for (source, target), count in receivers.items():
            if source == target:
                yield self.links.all_gather_ms(self._named(self._kind_of_node[source], 2), 2 * part)
            else:
                sender = self._named(self._kind_of_node[source], senders[source, target])
                receiver = self._named(self._kind_of_node[target], count)
                yield self.links.send_ms(sender, receiver, count * part)

    def _named(self, kind: str, size: int) -> GpuGroup:
        return GpuGroup(self.where.names[kind], self.where.zone, size)

    def _kinds(self, group: DeviceGroup) -> list[str]:
        """Return the kinds of GPU in a group, in order."""
        return list(dict.fromkeys(kind for kind, _ in group.pattern))

    @cached_property
    def _kind_of_node(self) -> list[str]:
        nodes = self.where.cluster.nodes
        return [each.gpu.name for each in nodes for _ in range(each.num_nodes)]
