"""Differences from a placement's times: blocks that vary, slow devices and links, links that are shared.

The module does not know schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real

from placements import Placement

DevicePair = tuple[int, int]
"""Sending device and receiving device."""

MIB_PER_MS_OF_GB_S = 1e6 / 2**20
"""MiB that 1 GB/s carries in a millisecond."""


class ConditionsError(ValueError):
    """Conditions are wrong, or do not fit a placement; the message names the field in one line."""


class Jitter(StrEnum):
    """Distribution of a block's times, with the placement's time as mean; the normal one is cut off at 0."""

    LOGNORMAL = "lognormal"
    NORMAL = "normal"


@dataclass(frozen=True)
class Link:
    """A link between devices, which carries one message at a time, in the order in which they are ready.

    A message occupies the link for its size over the bandwidth, or for the placement's transfer time if the
    link has no bandwidth; it arrives a latency later.

    Attributes:
        pairs: Pairs of devices, sender first. Several may share a link, such as all pairs that use one
            server's network card.
        latency_ms: Time from the end of the occupation to the arrival.
        bandwidth_gb_s: Bandwidth in GB/s; None for the placement's transfer times.
        message_mib: Size of each message; not used without a bandwidth.
    """

    pairs: tuple[DevicePair, ...]
    latency_ms: float = 0.0
    bandwidth_gb_s: float | None = None
    message_mib: float = 0.0

    def __post_init__(self) -> None:
        """Check each figure."""
        object.__setattr__(self, "pairs", tuple(tuple(pair) for pair in self.pairs))
        if not self.pairs:
            raise ConditionsError("links.pairs: is empty; give pairs of devices")
        for pair in self.pairs:
            _check_pair("links.pairs", pair)
        _check("links.latency_ms", self.latency_ms, "0 or more ms")
        _check("links.message_mib", self.message_mib, "0 or more MiB")
        if self.bandwidth_gb_s is not None:
            _check("links.bandwidth_gb_s", self.bandwidth_gb_s, "a number of GB/s above 0", above=True)


@dataclass(frozen=True)
class Conditions:
    """Conditions of iterations that differ from a placement's times; by default none differs.

    Attributes:
        jitter: Standard deviation of each block's time, as a part of it; each block of each micro-batch
            varies on its own.
        distribution: Distribution of the jitter.
        measured_ms: Measured repeats of blocks by name, in a mode as ``B0@recompute``; such a block takes one
            of them each time, drawn with replacement, and has no other jitter.
        slow_devices: Factors on the times of blocks by device; of a block on several the largest counts.
        slow_pairs: Factors on the times of messages, by pair of devices, sender first.
        links: Links that carry one message at a time. All other messages take the placement's transfer time
            and do not wait for each other.
    """

    jitter: float = 0.0
    distribution: str = Jitter.LOGNORMAL
    measured_ms: Mapping[str, Sequence[float]] = field(default_factory=dict)
    slow_devices: Mapping[int, float] = field(default_factory=dict)
    slow_pairs: Mapping[DevicePair, float] = field(default_factory=dict)
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        """Check each figure on its own."""
        object.__setattr__(self, "links", tuple(self.links))
        _check("jitter", self.jitter, "0 or more, as 0.05")
        check_known("distribution", self.distribution, Jitter)
        for name, repeats in self.measured_ms.items():
            if len(repeats) == 0:
                raise ConditionsError(f"measured_ms[{name!r}]: is empty; give at least one time")
            for time_ms in repeats:
                _check(f"measured_ms[{name!r}]", time_ms, "0 or more ms")
        for device, factor in self.slow_devices.items():
            _check(f"slow_devices[{device!r}]", factor, "a factor above 0", above=True)
        for pair, factor in self.slow_pairs.items():
            _check_pair("slow_pairs", pair)
            _check(f"slow_pairs[{pair!r}]", factor, "a factor above 0", above=True)
        carried = [pair for link in self.links for pair in link.pairs]
        for pair in carried:
            if carried.count(pair) > 1:
                raise ConditionsError(f"links: {pair} is there twice; let one link carry it")

    def check(self, placement: Placement) -> None:
        """Check that a placement has all blocks and devices named here.

        Raises:
            ConditionsError: A block or a device is not in the placement.
        """
        for name in self.measured_ms:
            if name not in placement.runs:
                names = ", ".join(sorted(placement.runs)[:8])
                raise ConditionsError(f"measured_ms: there is no block {name!r}; the blocks are {names}, ...")
        used = {
            "slow_devices": self.slow_devices.keys(),
            "slow_pairs": _devices(self.slow_pairs),
            "links.pairs": _devices(pair for link in self.links for pair in link.pairs),
        }
        for where, devices in used.items():
            for device in devices:
                if device not in range(placement.num_devices):
                    raise ConditionsError(
                        f"{where}: there is no device {device!r}; use 0 to {placement.num_devices - 1}"
                    )


def _devices(pairs: Iterable[DevicePair]) -> set[int]:
    return {device for pair in pairs for device in pair}


def _check(where: str, value: object, wanted: str, *, above: bool = False) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < 0 or (above and value == 0):  # type: ignore[operator]
        raise ConditionsError(f"{where}: {value!r} is not {wanted}; give such a number")


def check_known(where: str, value: object, names: type[StrEnum]) -> None:
    """Ensure that a value is one of some names."""
    if value not in list(names):
        raise ConditionsError(f"{where}: {value!r} is not known; use {' or '.join(names)}")


def _check_pair(where: str, pair: object) -> None:
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(type(device) is int for device in pair)):
        raise ConditionsError(f"{where}: {pair!r} is not a pair of devices; give one, as in (0, 1)")
    if pair[0] == pair[1]:
        raise ConditionsError(f"{where}: {pair!r} is one device; give two, the sender first")
