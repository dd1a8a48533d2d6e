"""Releases that a block has to wait for before it allocates, on devices with several streams.

A device with one stream runs one block at a time, so the order of its blocks determines its memory. Streams
run side by side: even if each keeps its own order, blocks of two streams can move against each other, and the
device could then hold more than before. Knows no solver.

Why these waits are enough. Let every block that allocates wait for all that was released before it. At any
time, of the blocks that have allocated take the one that did so last in the known schedule: those it waited
for have released, and no other has allocated than had in the known schedule by then. So no more is held than
there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from placements import Block, Placement
from schedsearch.graph import Edge

Instance = tuple[str, int]


class Run(NamedTuple):
    """A block of a micro-batch as it runs, from its start on."""

    instance: Instance
    block: Block
    start: int


def memory_edges(
    placement: Placement, runs: Iterable[Run], period: int | None = None
) -> Iterator[Edge[Instance]]:
    """Yield waits of each block that allocates memory for the last release before it on each stream.

    A block releases at its start, or at its end if it needs extra memory only while it runs. In a steady
    state, which has a period, the runs are one round's.
    """
    runs = list(runs)
    for device, streams in enumerate(placement.memory_streams):
        if len(streams) < 2:
            continue
        here = [run for run in runs if device in run.block.devices]
        for on_host in (False, True):
            allocates: list[Run] = []
            releases: list[tuple[Run, int]] = []
            for run in here:
                transient = 0 if on_host else run.block.transient
                units = transient + (run.block.host_memory if on_host else run.block.memory_on(device))
                allocates += [run] * (units > 0)
                releases += [(run, 0)] * (units < 0) + [(run, run.block.time)] * (transient != 0)
            starts = [run.start for run in allocates] or [0]
            by_stream: dict[str, list[tuple[int, Instance, int, int]]] = {}
            for released, ticks in releases:
                tick, rounds = released.start + ticks, range(1)
                if period is not None:
                    rounds = range((min(starts) - tick) // period, (max(starts) - tick) // period + 1)
                by_stream.setdefault(released.block.stream, []).extend(
                    (tick + k * (period or 0), released.instance, ticks, -k) for k in rounds
                )
            for waits in by_stream.values():
                waits.sort()
            for run in allocates:
                for waits in by_stream.values():
                    place = bisect_right(waits, run.start, key=itemgetter(0))
                    while place and waits[place - 1][1::2] == (run.instance, 0):
                        place -= 1
                    for _, name, ticks, k in waits[max(place - 1, 0) : place]:
                        yield Edge(name, run.instance, ticks, k)


def no_sooner(waits: Iterable[tuple[Instance, Instance, int]]) -> dict[Instance, set[Instance]]:
    """Map each instance to all instances that must start no later, through any number of zero-tick waits.

    Waits are (source, target, ticks); a wait with ticks is for an end, and is ignored.
    """
    direct: dict[Instance, list[Instance]] = {}
    for earlier, later, ticks in waits:
        if not ticks:
            direct.setdefault(later, []).append(earlier)
    before: dict[Instance, set[Instance]] = {}
    for later in direct:
        reached, new = set[Instance](), [later]
        while new:
            new = [earlier for one in new for earlier in direct.get(one, ()) if earlier not in reached]
            reached.update(new)
        before[later] = reached
    return before
