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
    missing = {each: len(waits.get(each, ())) for each in blocks}
    ready = {each: not_before.get(each, 0) for each in blocks}
    followers: dict[tuple[Instance, bool], list[tuple[Instance, int]]] = {}
    for later, before in waits.items():
        for earlier, ticks, from_end in before:
            followers.setdefault((earlier, from_end), []).append((later, ticks))
    coming = [(ready[each], each) for each, number in missing.items() if not number]
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
        following = min((now + math.ceil(left[each] * slowed[each]) for each in left), default=None)
        if coming and (following is None or coming[0][0] < following):
            following = coming[0][0]
        assert following is not None
        for each in left:
            left[each] -= (following - now) / slowed[each]
        now = following
        for each in [each for each, work in left.items() if work <= 0]:
            ends[each] = now
            del left[each]
            tell((each, True))
        while coming and coming[0][0] <= now:
            _, each = heapq.heappop(coming)
            starts[each] = now
            left[each] = Fraction(blocks[each].time)
            tell((each, False))
        streams = _running(placement, blocks, left)
        slowed = {each: _slowed(placement, blocks[each], streams) for each in left}
    return starts, ends


def _running(
    placement: Placement, blocks: Mapping[Instance, Block], running: Iterable[Instance]
) -> list[set[str]]:
    """Return the streams of each device that run a block."""
    streams: list[set[str]] = [set() for _ in range(placement.num_devices)]
    for each in running:
        for device in blocks[each].devices:
            streams[device].add(blocks[each].stream)
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
