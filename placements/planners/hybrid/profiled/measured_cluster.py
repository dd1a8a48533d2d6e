"""Clusters of GPUs that a profile has times of, by the names that it has for them, and their measured links.

All rings of a group run at the same time, so those that cross nodes share what a node reaches. The module
does not know what a layer takes, or what is sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from placements.cluster import Cluster, DeviceGroup, GpusError, read_cluster
from placements.gpus import GPUS
from placements.measured.link_fit import GpuGroup, Links
from placements.measured.profile_folder import ProfiledModel
from placements.models.parallel import SharingLevel

_TOLERANCE = 0.1
"""Relative tolerance between the memory of a GPU and the number in its name."""

_NAMED = re.compile(r"([A-Za-z]+[0-9]*)[-_]([0-9]{1,4})(?:[Gg][Bb])?")


@dataclass(frozen=True)
class MeasuredCluster:
    """A cluster, and what a profile calls its GPUs.

    Attributes:
        cluster: The GPUs, with the figures of their data sheets.
        names: The profile's name of each kind, by the name of its `placements.hardware.Gpu`.
        zone: Zone that all of them are taken to be in.
        links: Links as measured.
    """

    cluster: Cluster
    names: Mapping[str, str]
    zone: str
    links: Links

    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time until each GPU of a ring has all bytes, of which it had an equal share.

        Raises:
            NotProfiledError: A link was not measured, as of `transfer_ms`.
        """
        degree, stride = level
        if degree == 1:
            return 0.0
        kinds = list(dict.fromkeys(kind for kind, _ in group.pattern))
        if all(count % (degree * stride) == 0 for _, count in group.pattern):
            return max(self.links.all_gather_ms(self._named(kind, degree), num_bytes) for kind in kinds)
        ends = [self._named(kind, stride) for kind in kinds]
        hops = zip(ends, [*ends[1:], ends[0]], strict=True)
        return (degree - 1) * max(self.links.send_ms(a, b, stride * num_bytes / degree) for a, b in hops)

    def transfer_ms(self, num_bytes: float, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send bytes to another group, each GPU of which receives an equal part."""
        part, nodes, times_ms = num_bytes / after.count, self.cluster.node_of, list[float]()
        kinds = [each.gpu.name for each in self.cluster.nodes for _ in range(each.num_nodes)]
        pairs = [
            (before.first + place * before.count // after.count, after.first + place)
            for place in range(after.count)
        ]
        senders = Counter((nodes[a], node) for a, node in {(a, nodes[b]) for a, b in pairs})
        for (source, target), count in Counter((nodes[a], nodes[b]) for a, b in pairs).items():
            if source == target:
                times_ms.append(self.links.all_gather_ms(self._named(kinds[source], 2), 2 * part))
                continue
            ends = self._named(kinds[source], senders[source, target]), self._named(kinds[target], count)
            times_ms.append(self.links.send_ms(*ends, count * part))
        return max(times_ms)

    def _named(self, kind: str, size: int) -> GpuGroup:
        return GpuGroup(self.names[kind], self.zone, size)


def read_measured_cluster(
    text: str, known: ProfiledModel, *, gpus_per_node: int | None = None
) -> MeasuredCluster:
    """Return a cluster of GPUs that a profile has times of.

    Args:
        text: A GPU by the profile's name or that of `placements.gpus.GPUS`, ``_`` and how many GPUs, as
            ``GH-96_64``; several kinds with ``+``.
        known: The profile.
        gpus_per_node: GPUs of a node. By default as many as the most that share a layer in the profile of the
            GPU, since these are of one node; or all where there are fewer.

    Raises:
        GpusError: A name or a number is wrong, or the profile has no times of the GPU.
    """
    names: dict[str, str] = {}
    nodes = []
    for part in text.split("+"):
        name, count = _read_part(part, text, known)
        key = hardware_of(name)
        if names.setdefault(GPUS[key].name, name) != name:
            raise GpusError(
                f"cluster: {names[GPUS[key].name]} and {name} in {text!r} are both {key}; use one of them"
            )
        most = max((shared for _, shared in known.profiles[name].layers), default=1)
        each = read_cluster(f"{key}_{count}", gpus_per_node=gpus_per_node or most, node_bandwidth_gb_s=1.0)
        nodes += list(each.nodes)
    zone = _zone(known.links, next(iter(names.values())))
    reached = [
        max(fit.max_bytes_per_s for fit in fits.values()) / 1e9
        for (zone1, gpu1, zone2, gpu2), fits in known.links.between.items()
        if zone1 == zone2 == zone and {gpu1, gpu2} <= set(names.values())
    ]
    source = "the most that was measured" if reached else "not measured"
    cluster = Cluster(tuple(nodes), min(reached, default=1.0), source=source)
    return MeasuredCluster(cluster, names, zone, known.links)


def hardware_of(name: str) -> str:
    """Return the key of `placements.gpus.GPUS` that a profile's GPU is.

    A name of a family and its memory is the GPU of that family with such memory.

    Raises:
        GpusError: There is none.

    >>> [hardware_of(name) for name in ("GH-96", "A100-40", "V100-16", "a100", "H100-80")]
    ['gh200', 'a100_40gb', 'v100_16gb', 'a100', 'h100']
    """
    if (key := _hardware(name)) is None:
        raise GpusError(
            f"cluster: {name!r} is not known hardware; name the profile's file after one of "
            f"{', '.join(GPUS)}, or after a family and its GiB, as A100-40"
        )
    return key


def _hardware(name: str) -> str | None:
    key = name.lower().replace("-", "_")
    found = _NAMED.fullmatch(name)
    if key in GPUS or found is None:
        return key if key in GPUS else None
    family, gib = found[1].lower(), float(found[2])
    near = (
        each
        for each, gpu in GPUS.items()
        if each.startswith(family) and abs(gpu.memory_gib - gib) <= _TOLERANCE * gib
    )
    return next(near, None)


def _read_part(part: str, text: str, known: ProfiledModel) -> tuple[str, int]:
    """Return the profile's name of a GPU and how many there are."""
    name, _, count = part.strip().rpartition("_")
    measured = {each for each, profile in known.profiles.items() if profile.layers}
    if name not in measured and name in GPUS:
        name = next((each for each in sorted(measured) if _hardware(each) == name), name)
    if name not in measured or not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= 10**6):
        raise GpusError(
            f"cluster: {part!r} in {text!r} is not a GPU that {known.name} was measured on, _ and a number; "
            f"the GPUs are {', '.join(sorted(measured))}, as in {min(measured)}_8"
        )
    return name, int(count)


def _zone(links: Links, gpu: str) -> str:
    """Return the first zone in which the GPU's links to its like were measured; else any with it."""
    own = sorted(ends[0] for ends in links.between if ends == (ends[0], gpu, ends[0], gpu))
    others = sorted(ends[0] for ends in links.between if ends[1] == gpu)
    return next(iter((*own, *others)), "")
