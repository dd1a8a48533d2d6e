"""Times of blocks on streams of one device that slow each other down, tick by tick.

In each tick a block does the work of a tick, or a share of it where a stream that slows its own down runs a
block on one of its devices. It ends with the tick in which the last of its work is done.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from placements import Block, Placement

Instance = tuple[str, int]


class Wait(NamedTuple):
    """A wait of an instance for another one.

    Attributes:
        earlier: The other instance.
        ticks: Ticks after the other's end, or after its start.
        from_end: Whether ticks count from the end; else from the start.
    """

    earlier: Instance
    ticks: int
    from_end: bool = True


def run(
    placement: Placement,
    blocks: Mapping[Instance, Block],
    waits: Mapping[Instance, Sequence[Wait]],
    not_before: Mapping[Instance, int],
) -> tuple[dict[Instance, int], dict[Instance, int]]:
    """Run every instance as soon as its waits are over; return starts and ends in ticks.

    No instance starts before its tick in `not_before`. Instances that wait for each other in a cycle are
    missing in the result.
    """
    missing = {instance: len(waits.get(instance, ())) for instance in blocks}
    ready = {instance: not_before.get(instance, 0) for instance in blocks}
    followers: dict[tuple[Instance, bool], list[tuple[Instance, int]]] = {}
    for later, before in waits.items():
        for earlier, ticks, from_end in before:
            followers.setdefault((earlier, from_end), []).append((later, ticks))
    coming = [(ready[instance], instance) for instance, number in missing.items() if not number]
    heapq.heapify(coming)
    starts: dict[Instance, int] = {}
    ends: dict[Instance, int] = {}
    left: dict[Instance, Fraction] = {}
    slowed: dict[Instance, Fraction] = {}
    now = 0

    def tell(event: tuple[Instance, bool]) -> None:
        for later, ticks in followers.get(event, ()):
            ready[later] = max(ready[later], now + ticks)
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(coming, (ready[later], later))

    while coming or left:
        following = min((now + math.ceil(left[i] * slowed[i]) for i in left), default=None)
        if coming and (following is None or coming[0][0] < following):
            following = coming[0][0]
        assert following is not None
        for instance in left:
            left[instance] -= (following - now) / slowed[instance]
        now = following
        for instance in [instance for instance, work in left.items() if work <= 0]:
            ends[instance] = now
            del left[instance]
            tell((instance, True))
        while coming and coming[0][0] <= now:
            _, instance = heapq.heappop(coming)
            starts[instance] = now
            left[instance] = Fraction(blocks[instance].time)
            tell((instance, False))
        streams = _running(placement, blocks, left)
        slowed = {instance: _slowed(placement, blocks[instance], streams) for instance in left}
    return starts, ends


def _running(
    placement: Placement, blocks: Mapping[Instance, Block], running: Iterable[Instance]
) -> list[set[str]]:
    """Return the streams of each device that run a block."""
    streams: list[set[str]] = [set() for _ in range(placement.num_devices)]
    for instance in running:
        for device in blocks[instance].devices:
            streams[device].add(blocks[instance].stream)
    return streams


def _slowed(placement: Placement, block: Block, streams: Sequence[set[str]]) -> Fraction:
    """Return the ticks that a block takes for one tick's work, beside the running streams of its devices."""
    return max(
        math.prod(
            (placement.slowdown_of(block.stream, other) for other in streams[device] - {block.stream}),
            start=Fraction(1),
        )
        for device in block.devices
    )
