"""Bandwidth between and within nodes, as quadratics fitted to measurements, and what transfers take on it.

The module does not know what is sent. Latency is in the fits: small messages have less bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from placements.meaning import Meaning
from placements.measured.layer_profile import NotProfiledError
from placements.plain_data import json_file

_FIT_UNIT_BYTES = 1e6
"""The fits are of the logarithm of the message's size in MB; below 1 MB they bend to zero and less."""


class LinkError(ValueError):
    """A file of bandwidths is wrong; the message names the field, the value and the remedy in one line."""


@dataclass(frozen=True)
class GpuGroup:
    """GPUs of one type and zone that share layers (tensor parallel), and how many."""

    gpu: str
    zone: str
    size: int


class Coefficients(NamedTuple):
    """Coefficients of GB/s = c2 l^2 + c1 l + c0, where l = log2(bytes / 1e6)."""

    c2: Annotated[float, Meaning("of the square")]
    c1: Annotated[float, Meaning("of the logarithm")]
    c0: Annotated[float, Meaning("bandwidth of 1 MB", "GB/s", above=0)]


class LinkFit(NamedTuple):
    """Bandwidth by the size of a message, of all GPUs together that send at once."""

    coefficients: Annotated[Coefficients, Meaning("the fit")]
    max_bytes_per_s: Annotated[float, Meaning("the highest that was measured", "bytes/s", min=1)]

    def bytes_per_s(self, message_bytes: float) -> float:
        """Return the bandwidth where each GPU sends so much.

        A larger message is never slower per byte: the fit is followed up to its highest point, and from 1 MB
        on. Its tails are no measurements.

        >>> fit = LinkFit(Coefficients(-1.0, 4.0, 2.0), 5.5e9)
        >>> [fit.bytes_per_s(mb * 1e6) / 1e9 for mb in (0.01, 1, 2, 4, 64)]
        [2.0, 2.0, 5.0, 5.5, 5.5]
        """
        second, first, constant = self.coefficients
        most = math.log2(max(message_bytes, _FIT_UNIT_BYTES) / _FIT_UNIT_BYTES)
        top = -first / (2 * second) if second < 0 else most
        sizes = (0.0, most, min(max(top, 0.0), most))
        fitted = max(second * size * size + first * size + constant for size in sizes)
        return min(fitted * 1e9, self.max_bytes_per_s)


_Ends = tuple[str, str, str, str]
"""Zone and GPU of the sender, then of the receiver."""


@dataclass(frozen=True)
class Links:
    """All links that were measured; `NotProfiledError` is raised for others.

    Attributes:
        between: Between nodes, by both ends and then by how many GPUs send and receive at once.
        within: Within a node, by the name and number of its GPUs: what each of them reaches.
    """

    between: Mapping[_Ends, Mapping[tuple[int, int], LinkFit]]
    within: Mapping[str, Mapping[int, LinkFit]]

    def send_ms(self, sender: GpuGroup, receiver: GpuGroup, num_bytes: float) -> float:
        """Return the time from one group to another in a different node.

        Each GPU of the smaller group sends or receives an equal share, all at once. A link that was measured
        only in the other direction is taken as that; within a zone where it was not measured, as in another.
        """
        there, back = (sender.zone, sender.gpu), (receiver.zone, receiver.gpu)
        sizes = sender.size, receiver.size
        fits = self.between.get(there + back)
        if fits is None and (fits := self.between.get(back + there)) is not None:
            sizes = sizes[::-1]
        if fits is None and sender.zone == receiver.zone:
            gpus = sender.gpu, receiver.gpu
            alike = (ends for ends in self.between if ends[0] == ends[2] and (ends[1], ends[3]) == gpus)
            fits = self.between.get(min(alike, default=there + back))
        if fits is None:
            raise NotProfiledError(
                f"no bandwidth from {sender.gpu} in {sender.zone} to {receiver.gpu} in {receiver.zone}"
            )
        return 1000 * num_bytes / fits[_nearest(fits, sizes)].bytes_per_s(num_bytes / min(sizes))

    def all_gather_ms(self, group: GpuGroup, num_bytes: float) -> float:
        """Return the time until each GPU of a group in one node has all, of which it had an equal share."""
        if group.size == 1:
            return 0.0
        if group.gpu not in self.within:
            raise NotProfiledError(f"no bandwidth between the {group.gpu} of a node")
        fits, share = self.within[group.gpu], num_bytes / group.size
        size, _ = _nearest([(each, each) for each in fits], (group.size, group.size))
        return 1000 * (group.size - 1) * share / fits[size].bytes_per_s(share)

    def all_reduce_ms(self, groups: Sequence[GpuGroup], num_bytes: float) -> float:
        """Return the time to sum what each group holds once, in a ring through all groups.

        Of d groups, each sends a d-th to the next 2 (d - 1) times, at the pace of the slowest link.
        """
        count = len(groups)
        if count == 1:
            return 0.0
        neighbours = set(pairwise([*groups, groups[0]]))
        return 2 * (count - 1) * max(self.send_ms(a, b, num_bytes / count) for a, b in neighbours)


def _nearest(known: Iterable[tuple[int, int]], wanted: tuple[int, int]) -> tuple[int, int]:
    """Return the most GPUs at both ends that are not more than wanted; else the fewest.

    More GPUs than were measured share what the most of them reached.
    """
    below = [pair for pair in known if pair[0] <= wanted[0] and pair[1] <= wanted[1]]
    return max(below, key=lambda pair: (min(pair), sum(pair))) if below else min(known)


_Count = Annotated[int, Meaning("number of GPUs that send or receive", min=1)]
_Inner = TypeVar("_Inner")
_ByGroup = Mapping[str, Mapping[str, Mapping[_Count, _Inner]]]
"""Mapping by zone, GPU and number."""


def read_links(between: str | Path, within: str | Path) -> Links:
    """Read what was measured of links.

    Args:
        between: A file of ``{zone: {gpu: {n: {zone: {gpu: {n: fit}}}}}}``, the sender first, where a fit is
            ``[[c2, c1, c0], most bytes per second]``; see `LinkFit`.
        within: A file of ``{gpu: {n: fit}}``.

    Raises:
        LinkError: A file cannot be read or is wrong.
    """
    found: dict[_Ends, dict[tuple[int, int], LinkFit]] = {}
    with json_file(between, "bandwidths between nodes", LinkError) as data:
        for zone, gpu, sending, far in _by_group(data.typed(_ByGroup[_ByGroup[LinkFit]])):
            for other_zone, other_gpu, receiving, fit in _by_group(far):
                found.setdefault((zone, gpu, other_zone, other_gpu), {})[sending, receiving] = fit
    with json_file(within, "bandwidths within nodes", LinkError) as data:
        inside = data.typed(Mapping[str, Mapping[_Count, LinkFit]])
    return Links(found, {gpu: fits for gpu, fits in inside.items() if fits})


def _by_group(data: _ByGroup[_Inner]) -> Iterator[tuple[str, str, int, _Inner]]:
    for zone, gpus in data.items():
        for gpu, counts in gpus.items():
            for count, inner in counts.items():
                yield zone, gpu, count, inner
