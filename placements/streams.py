"""Streams of a device that run side by side, and their slowdown of each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from placements.block import COMPUTE
from placements.forms.meaning import Meaning

Lane = tuple[int, str]
"""A device, and one of its streams."""


def in_rows(lanes: Sequence[Lane]) -> tuple[int, ...]:
    """Return the numbers of lanes in the order in which they are drawn: device by device, compute first.

    >>> in_rows([(0, "compute"), (1, "compute"), (0, "copy_in")])
    (0, 2, 1)
    """
    return tuple(sorted(range(len(lanes)), key=lambda number: (lanes[number][0], number)))


def lane_name(lane: Lane) -> str:
    """Return the label of a lane's row: its device, and its stream unless the stream is ``compute``.

    >>> lane_name((0, "compute")), lane_name((0, "communication"))
    ('0', '0 communication')
    """
    device, stream = lane
    return f"{device}" if stream == COMPUTE else f"{device} {stream}"


@dataclass(frozen=True)
class Slowdown:
    """Two streams that slow each other down while both run a block on a device."""

    streams: Annotated[tuple[str, str], Meaning("the two streams, such as `[compute, communication]`")]
    factors: Annotated[tuple[float, float], Meaning("factor on the time of each stream", min=1, below=1000)]


@dataclass(frozen=True)
class SharedStream:
    """A stream that several devices have together, as a link to their host: one block at a time of all."""

    stream: Annotated[str, Meaning("name, such as `copy_out`")]
    devices: Annotated[tuple[int, ...], Meaning("two or more devices")]


def mistakes_of_streams(
    slowdown: tuple[Slowdown, ...], shared: tuple[SharedStream, ...], num_devices: int
) -> Iterator[str]:
    """Yield the mistakes in slowdowns of streams, and in streams that devices share."""
    for i, slowed in enumerate(slowdown):
        where = f"slowdown[{i}].streams: {list(slowed.streams)}"
        if len(set(slowed.streams)) < 2:
            yield f"{where} names one stream; give two"
        if any(set(slowed.streams) == set(other.streams) for other in slowdown[:i]):
            yield f"{where} are there twice; give one"
    times = Counter((device, entry.stream) for entry in shared for device in entry.devices)
    for i, entry in enumerate(shared):
        where = f"shared_streams[{i}]"
        if entry.stream == COMPUTE:
            yield f"{where}.stream: 'compute' is each device's own; name another stream"
        if len(entry.devices) < 2:
            yield f"{where}.devices: {list(entry.devices)} are not two or more; give all of them"
        for device in entry.devices:
            if not 0 <= device < num_devices:
                yield f"{where}.devices: {device} is out of range; use 0 to {num_devices - 1}"
            if times[device, entry.stream] > 1:
                yield f"{where}.devices: {device} shares its stream {entry.stream} twice; name it once"
