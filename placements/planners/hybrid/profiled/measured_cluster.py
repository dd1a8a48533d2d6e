"""Clusters of GPUs with measured times, by the profile's names of GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from placements.cluster import Cluster, GpusError, Nodes, read_cluster
from placements.gpus import GPUS
from placements.measured.profile_folder import ProfiledModel

_TOLERANCE = 0.1
"""Relative tolerance between the memory of a GPU and the number in its name."""


class MeasuredCluster(NamedTuple):
    """A cluster, with the profile's names of its GPUs.

    Attributes:
        cluster: The GPUs, with the figures of their data sheets.
        names: The profile's name of each kind, by the name of its `placements.hardware.Gpu`.
        zone: Zone that all GPUs are assumed to be in.
    """

    cluster: Cluster
    names: Mapping[str, str]
    zone: str


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
    names, nodes = dict[str, str](), list[Nodes]()
    degrees = {name: [t for _, t in profile.layers] for name, profile in known.profiles.items()}
    kinds = {name: hardware_of(name) for name in sorted(degrees) if degrees[name]}
    for part in text.split("+"):
        match = re.fullmatch(r"(.+)_([1-9][0-9]{0,5})", part.strip())
        wanted = match[1] if match else ""
        name = wanted if wanted in kinds else next((kind for kind in kinds if kinds[kind] == wanted), "")
        if match is None or not name:
            fault = f"{part!r} in {text!r} is not a GPU that {known.name} was measured on, _ and a number"
            raise GpusError(f"cluster: {fault}; the GPUs are {', '.join(kinds)}, as in {min(kinds)}_8")
        kind = kinds[name]
        if kind is None or names.setdefault(GPUS[kind].name, name) != name:
            raise GpusError(
                f"cluster: {name!r} is not known hardware, or the same as another; name the profile's file "
                f"after one of {', '.join(GPUS)}, or after a family and its GiB, as A100-40"
            )
        size = gpus_per_node or max(degrees[name])
        nodes += read_cluster(f"{kind}_{match[2]}", gpus_per_node=size, node_bandwidth_gb_s=1.0).nodes
    links, first = known.links.between, next(iter(names.values()))
    # The zone in which the GPU's links to its like were measured; else any with it.
    zones = sorted((ends[2:] != ends[:2], ends[0]) for ends in links if ends[1] == first)
    zone = zones[0][1] if zones else ""
    reached = [
        max(fit.max_bytes_per_s for fit in fits.values()) / 1e9
        for (zone1, gpu1, zone2, gpu2), fits in links.items()
        if zone1 == zone2 == zone and {gpu1, gpu2} <= set(names.values())
    ]
    source = "the most that was measured" if reached else "not measured"
    return MeasuredCluster(Cluster(tuple(nodes), min(reached, default=1.0), source=source), names, zone)


def hardware_of(name: str) -> str | None:
    """Return the key in `placements.gpus.GPUS` of a profile's GPU; None if no GPU matches.

    A name of a family and a memory size matches the GPU of the family with that memory.

    >>> [hardware_of(name) for name in ("GH-96", "A100-40", "V100-16", "a100", "H100-80", "fast")]
    ['gh200', 'a100_40gb', 'v100_16gb', 'a100', 'h100', None]
    """
    key = name.lower().replace("-", "_")
    if key in GPUS:
        return key
    family, _, memory = key.partition("_")
    gib = float(memory.removesuffix("gb")) if memory.removesuffix("gb").isdecimal() else 0.0
    near = (key for key, gpu in GPUS.items() if abs(gpu.memory_gib - gib) <= _TOLERANCE * gib)
    return next((key for key in near if key.startswith(family)), None)
