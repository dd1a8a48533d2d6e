"""Streams of a device that run side by side, and what that costs each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placements.block import COMPUTE, PlacementError

Lane = tuple[int, str]
"""A device, and one of its streams."""


def in_rows(lanes: Sequence[Lane]) -> tuple[int, ...]:
    """Return the numbers of lanes in the order in which they are drawn: device by device, compute first.

    >>> in_rows([(0, "compute"), (1, "compute"), (0, "copy_in")])
    (0, 2, 1)
    """
    return tuple(sorted(range(len(lanes)), key=lambda number: (lanes[number][0], number)))


def lane_name(lane: Lane) -> str:
    """Return what stands beside a lane's row: its device, and its stream where that is not ``compute``.

    >>> lane_name((0, "compute")), lane_name((0, "communication"))
    ('0', '0 communication')
    """
    device, stream = lane
    return f"{device}" if stream == COMPUTE else f"{device} {stream}"


@dataclass(frozen=True)
class Slowdown:
    """Two streams that slow each other down while both run a block on a device.

    Attributes:
        streams: Their names.
        factors: How many times as long each of the two then takes for its work, at least 1.
    """

    streams: tuple[str, str]
    factors: tuple[float, float]


@dataclass(frozen=True)
class SharedStream:
    """A stream that several devices have together, such as a link to their host: one block at a time of all.

    Attributes:
        stream: Its name, not ``compute``.
        devices: The devices, at least two.
    """

    stream: str
    devices: tuple[int, ...]


def check_shared_streams(shared: tuple[SharedStream, ...], num_devices: int) -> None:
    """Check the rules of streams that devices share.

    Raises:
        PlacementError: One is broken; the message names the entry.
    """
    seen: set[Lane] = set()
    for i, each in enumerate(shared):
        where = f"shared_streams[{i}]"
        if each.stream == COMPUTE:
            raise PlacementError(f"{where}.stream: 'compute' is each device's own; name another stream")
        if len(each.devices) < 2:
            raise PlacementError(
                f"{where}.devices: {list(each.devices)} are not two or more; give all of them"
            )
        for device in each.devices:
            if not 0 <= device < num_devices:
                raise PlacementError(f"{where}.devices: {device} is out of range; use 0 to {num_devices - 1}")
            if (device, each.stream) in seen:
                raise PlacementError(
                    f"{where}.devices: {device} shares its stream {each.stream} twice; name it once"
                )
            seen.add((device, each.stream))


def check_slowdown(slowdown: tuple[Slowdown, ...]) -> None:
    """Check the rules of side-by-side streams.

    Raises:
        PlacementError: One is broken; the message names the entry.
    """
    seen: set[frozenset[str]] = set()
    for i, each in enumerate(slowdown):
        pair = frozenset(each.streams)
        if len(pair) < 2:
            raise PlacementError(f"slowdown[{i}].streams: {list(each.streams)} names one stream; give two")
        if pair in seen:
            raise PlacementError(f"slowdown[{i}].streams: {list(each.streams)} are there twice; give one")
        seen.add(pair)
        for factor in each.factors:
            if not 1 <= factor < 1000:
                raise PlacementError(f"slowdown[{i}].factors: {factor} is not at least 1 and below 1000")
