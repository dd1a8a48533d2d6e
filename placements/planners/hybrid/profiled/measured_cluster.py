"""Clusters of GPUs that a profile has times of, by the names that it has for them.

The module does not know what a layer takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from placements.cluster import Cluster, GpusError, read_cluster
from placements.gpus import GPUS
from placements.measured.link_fit import Links
from placements.measured.profile_folder import ProfiledModel

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
    parts = [_read_part(part, text, known) for part in text.split("+")]
    names: dict[str, str] = {}
    nodes = []
    for name, count in parts:
        key = hardware_of(name)
        if names.setdefault(GPUS[key].name, name) != name:
            raise GpusError(
                f"cluster: {names[GPUS[key].name]} and {name} in {text!r} are both {key}; use one of them"
            )
        most = max((shared for _, shared in known.profiles[name].layers), default=1)
        each = read_cluster(f"{key}_{count}", gpus_per_node=gpus_per_node or most, node_bandwidth_gb_s=1.0)
        nodes += list(each.nodes)
    zone = _zone(known.links, parts[0][0])
    bandwidth_gb_s, source = _between_nodes(known.links, [name for name, _ in parts], zone)
    return MeasuredCluster(Cluster(tuple(nodes), bandwidth_gb_s, source=source), names, zone)


def hardware_of(name: str) -> str:
    """Return the key of `placements.gpus.GPUS` that a profile's GPU is.

    A name of a family and its memory is the GPU of that family with such memory.

    Raises:
        GpusError: There is none.

    >>> [hardware_of(name) for name in ("GH-96", "A100-40", "V100-16", "a100", "H100-80")]
    ['gh200', 'a100_40gb', 'v100_16gb', 'a100', 'h100']
    """
    key = name.lower().replace("-", "_")
    if key in GPUS:
        return key
    found = _NAMED.fullmatch(name)
    if found is not None:
        family, gib = found[1].lower(), float(found[2])
        near = [
            each
            for each, gpu in GPUS.items()
            if each.startswith(family) and abs(gpu.memory_gib - gib) <= _TOLERANCE * gib
        ]
        if near:
            return near[0]
    raise GpusError(
        f"cluster: {name!r} is not known hardware; name the profile's file after one of "
        f"{', '.join(GPUS)}, or after a family and its GiB, as A100-40"
    )


def _read_part(part: str, text: str, known: ProfiledModel) -> tuple[str, int]:
    """Return the profile's name of a GPU and how many there are."""
    name, _, count = part.strip().rpartition("_")
    measured = {each for each, profile in known.profiles.items() if profile.layers}
    if name not in measured and name in GPUS:
        name = next((each for each in sorted(measured) if _is_hardware(each, name)), name)
    if name not in measured or not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= 10**6):
        raise GpusError(
            f"cluster: {part!r} in {text!r} is not a GPU that {known.name} was measured on, _ and a number; "
            f"the GPUs are {', '.join(sorted(measured))}, as in {min(measured)}_8"
        )
    return name, int(count)


def _is_hardware(name: str, key: str) -> bool:
    try:
        return hardware_of(name) == key
    except GpusError:
        return False


def _zone(links: Links, gpu: str) -> str:
    """Return the first zone in which the GPU's links to its like were measured; else any with it."""
    own = sorted(ends[0] for ends in links.between if ends == (ends[0], gpu, ends[0], gpu))
    others = sorted(ends[0] for ends in links.between if ends[1] == gpu)
    return next(iter((*own, *others)), "")


def _between_nodes(links: Links, gpus: list[str], zone: str) -> tuple[float, str]:
    """Return the most that GPUs reached between nodes, in GB/s, and where it is from."""
    found = [
        max(fit.max_bytes_per_s for fit in fits.values()) / 1e9
        for (zone1, gpu1, zone2, gpu2), fits in links.between.items()
        if zone1 == zone2 == zone and gpu1 in gpus and gpu2 in gpus
    ]
    return (min(found), "the most that was measured") if found else (1.0, "not measured")
