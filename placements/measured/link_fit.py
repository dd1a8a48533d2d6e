"""Bandwidth between and within nodes, as quadratics fitted to measurements, and times of transfers.

The module does not know the content of messages. Latency is in the fits: small messages have less bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from placements.forms.meaning import Meaning
from placements.forms.reading import json_file
from placements.measured.layer_profile import LayerProfileError, NotProfiledError

_FIT_UNIT_BYTES = 1e6
"""The fits are of the logarithm of the message's size in MB; below 1 MB they bend to zero and less."""


class GpuGroup(NamedTuple):
    """GPUs of one type and zone that share layers (tensor parallel), and their number."""

    gpu: str
    zone: str
    size: int


class LinkFit(NamedTuple):
    """Bandwidth by the size of a message, of all GPUs together that send at once.

    With coefficients c2, c1, c0 it is c2 l^2 + c1 l + c0 in GB/s, where l = log2(bytes / 1e6).
    """

    coefficients: tuple[float, float, Annotated[float, Meaning("bandwidth of 1 MB", "GB/s", above=0)]]
    max_bytes_per_s: Annotated[float, Meaning("the highest that was measured", "bytes/s", min=1)]

    def bytes_per_s(self, message_bytes: float) -> float:
        """Return the bandwidth if each GPU sends `message_bytes`.

        A larger message is never slower per byte: the fit is followed up to its highest point, and from 1 MB
        on. Its tails are no measurements.

        >>> fit = LinkFit((-1.0, 4.0, 2.0), 5.5e9)
        >>> [fit.bytes_per_s(mb * 1e6) / 1e9 for mb in (0.01, 1, 2, 4, 64)]
        [2.0, 2.0, 5.0, 5.5, 5.5]
        """
        second, first, constant = self.coefficients
        most = math.log2(max(message_bytes / _FIT_UNIT_BYTES, 1.0))
        top = min(max(-first / (2 * second), 0.0), most) if second < 0 else most
        fitted = max(second * size * size + first * size + constant for size in (0.0, top, most))
        return min(fitted * 1e9, self.max_bytes_per_s)


@dataclass(frozen=True)
class Links:
    """All links that were measured; `NotProfiledError` is raised for others.

    Where as many GPUs were not measured, it is the most that are not more, else the fewest.

    Attributes:
        between: Between nodes, by zone and GPU of the sender, then of the receiver, and then by how many GPUs
            send and receive at once.
        within: Bandwidth of each GPU within a node, by the name and number of its GPUs.
    """

    between: Mapping[tuple[str, str, str, str], Mapping[tuple[int, int], LinkFit]]
    within: Mapping[str, Mapping[int, LinkFit]]

    def send_ms(self, sender: GpuGroup, receiver: GpuGroup, num_bytes: float) -> float:
        """Return the time from one group to another in a different node.

        Each GPU of the smaller group sends or receives an equal share, all at once. A link that was measured
        only in the other direction is taken as that.
        """
        for a, b in ((sender, receiver), (receiver, sender)):
            if fits := self.between.get((a.zone, a.gpu, b.zone, b.gpu)):
                below = (pair for pair in fits if pair[0] <= a.size and pair[1] <= b.size)
                nearest = max(below, key=lambda pair: (min(pair), sum(pair)), default=min(fits))
                return 1000 * num_bytes / fits[nearest].bytes_per_s(num_bytes / min(a.size, b.size))
        raise NotProfiledError(
            f"no bandwidth from {sender.gpu} in {sender.zone} to {receiver.gpu} in {receiver.zone}"
        )

    def all_gather_ms(self, group: GpuGroup, num_bytes: float) -> float:
        """Return the time of an all-gather in one node; each GPU begins with an equal share of the bytes."""
        if group.size == 1:
            return 0.0
        if group.gpu not in self.within:
            raise NotProfiledError(f"no bandwidth between the {group.gpu} of a node")
        fits, share = self.within[group.gpu], num_bytes / group.size
        nearest = max((size for size in fits if size <= group.size), default=min(fits))
        return 1000 * (group.size - 1) * share / fits[nearest].bytes_per_s(share)

    def all_reduce_ms(self, groups: Sequence[GpuGroup], num_bytes: float) -> float:
        """Return the time of an all-reduce of `num_bytes` per group, in a ring through all groups.

        Of d groups, each sends a d-th to the next 2 (d - 1) times, at the pace of the slowest link.
        """
        count = len(groups)
        if count == 1:
            return 0.0
        neighbours = set(pairwise([*groups, groups[0]]))
        return 2 * (count - 1) * max(self.send_ms(a, b, num_bytes / count) for a, b in neighbours)


_Count = Annotated[int, Meaning("number of GPUs that send or receive", min=1)]
_Inner = TypeVar("_Inner")
_ByGroup = Mapping[str, Mapping[str, Mapping[_Count, _Inner]]]
"""Mapping by zone, GPU and number."""


def read_links(folder: Path) -> Links:
    """Read the measured bandwidths of links from a folder.

    Args:
        folder: With ``inter_node.json``, ``{zone: {gpu: {n: {zone: {gpu: {n: fit}}}}}}`` with the sender
            first, and ``intra_node.json``, ``{gpu: {n: fit}}``. A fit is ``[[c2, c1, c0], most bytes per
            second]``; see `LinkFit`.

    Raises:
        LayerProfileError: A file cannot be read or is wrong.
    """
    between: dict[tuple[str, str, str, str], dict[tuple[int, int], LinkFit]] = {}
    with json_file(folder / "inter_node.json", "bandwidths between nodes", LayerProfileError) as data:
        for *sender, sending, far in _by_group(data.typed(_ByGroup[_ByGroup[LinkFit]])):
            for *receiver, receiving, fit in _by_group(far):
                between.setdefault((*sender, *receiver), {})[sending, receiving] = fit
    with json_file(folder / "intra_node.json", "bandwidths within nodes", LayerProfileError) as data:
        inside = data.typed(Mapping[str, Mapping[_Count, LinkFit]])
    return Links(between, {gpu: fits for gpu, fits in inside.items() if fits})


def _by_group(data: Any) -> Iterator[tuple[Any, ...]]:
    return (
        (zone, gpu, n, inner) for zone, x in data.items() for gpu, y in x.items() for n, inner in y.items()
    )
