"""What must have been released when a block allocates, where several streams share a device's memory.

A device with one stream runs one block at a time, so that the order of its blocks says what it holds. Streams
run side by side: blocks that keep the order of each may still move against those of another, and then a
device could hold more than before. Knows no solver.

Why these waits are enough. Let every block that allocates wait for all that was released before it. At any
time, of the blocks that have allocated take the one that did so last in the known schedule: those it waited
for have released, and no other has allocated than had in the known schedule by then. So no more is held than
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from placements import Block, Placement
from schedsearch.graph import Edge

Instance = tuple[str, int]


class Run(NamedTuple):
    """A block of a micro-batch as it runs, from its start on."""

    instance: Instance
    block: Block
    start: int


def memory_waits(placement: Placement, runs: Iterable[Run]) -> Iterator[tuple[Instance, Instance, int]]:
    """Yield who waits for whom from start to start: what released, what allocates later, and the ticks."""
    for allocates, releases in _moves(placement, list(runs)):
        for instance, start, _ in allocates:
            last: dict[str, tuple[int, Instance, int]] = {}
            for released, tick, ticks, stream in releases:
                if tick <= start and released != instance:
                    last[stream] = max(last.get(stream, (tick, released, ticks)), (tick, released, ticks))
            yield from ((released, instance, ticks) for _, released, ticks in last.values())


def no_sooner(waits: Iterable[tuple[Instance, Instance, int]]) -> dict[Instance, set[Instance]]:
    """Map what waits for the start of others, at once or through others, to all of these.

    Args:
        waits: As of `memory_waits`; those for an end are passed over.
    """
    direct: dict[Instance, list[Instance]] = {}
    for earlier, later, ticks in waits:
        if not ticks:
            direct.setdefault(later, []).append(earlier)
    found: dict[Instance, set[Instance]] = {}
    for later in direct:
        reached, new = set[Instance](), [later]
        while new:
            new = [each for one in new for each in direct.get(one, ()) if each not in reached]
            reached.update(new)
        found[later] = reached
    return found


def memory_edges(placement: Placement, runs: Iterable[Run], period: int) -> Iterator[Edge[Instance]]:
    """Yield likewise who waits for whom in a steady state, given the runs of one round."""
    for allocates, releases in _moves(placement, list(runs)):
        for instance, start, _ in allocates:
            last: dict[str, tuple[int, Instance, int, int]] = {}
            for released, tick, ticks, stream in releases:
                rounds = (start - tick) // period
                if released != instance or rounds:
                    found = tick + rounds * period, released, ticks, -rounds
                    last[stream] = max(last.get(stream, found), found)
            for _, released, ticks, rounds in last.values():
                yield Edge(released, instance, ticks, rounds)


_Allocates = list[tuple[Instance, int, str]]
_Releases = list[tuple[Instance, int, int, str]]


def _moves(placement: Placement, runs: list[Run]) -> Iterator[tuple[_Allocates, _Releases]]:
    """Yield for each memory that streams share what allocates and what releases.

    Those are instances with their ticks and streams, of releases also how long after the start.
    """
    for device, streams in enumerate(placement.memory_streams):
        if len(streams) < 2:
            continue
        here = [run for run in runs if device in run.block.devices]
        for on_host in (False, True):
            allocates: _Allocates = []
            releases: _Releases = []
            for instance, block, start in here:
                units = block.host_memory if on_host else block.memory_on(device)
                transient = 0 if on_host else block.transient
                if units + transient > 0:
                    allocates.append((instance, start, block.stream))
                if units + transient < 0:
                    releases.append((instance, start, 0, block.stream))
                if transient:
                    releases.append((instance, start + block.time, block.time, block.stream))
            yield allocates, releases
