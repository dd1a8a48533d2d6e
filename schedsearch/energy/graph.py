"""The block instances of all micro-batches and the waits between them (Perseus, Sec. 3.1 and 4.3).

A block waits for the blocks it is after, and for the one before it on each of its devices. Nothing here
knows clocks or energy: times are given, for many plans at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from schedsearch.memory_order import no_sooner
from schedsearch.schedule import Instance, Schedule, dependencies
from schedsearch.schedule import instances as every_instance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class EnergyError(ValueError):
    """An energy question cannot be answered; the message names the field, the value and the remedy."""


@dataclass(frozen=True, eq=False)
class InstanceGraph:
    """The instances of a schedule, and the edges between them.

    Attributes:
        instances: (block, micro-batch) in topological order.
        tail: Index in `instances` of the predecessor of each edge; edges are in order of their heads.
        head: Index of the instance that waits for it.
        delay_ms: Least time from the end of the one to the start of the other.
        num_devices: Devices of the placement.
        runs: Of each instance the name under which a profile has its cost: its block, in its mode.
    """

    instances: tuple[Instance, ...]
    tail: Ints
    head: Ints
    delay_ms: Floats
    num_devices: int
    runs: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of instances."""
        return len(self.instances)

    @property
    def edges(self) -> Iterator[tuple[int, int, float]]:
        """Yield (from, to, milliseconds) of each edge."""
        return zip(self.tail.tolist(), self.head.tolist(), self.delay_ms.tolist(), strict=True)

    @cached_property
    def first(self) -> Ints:
        """Offset of the first edge of each instance as head; shape ``(size + 1,)``."""
        return np.searchsorted(self.head, np.arange(self.size + 1)).astype(np.int64)

    @cached_property
    def reversed(self) -> InstanceGraph:
        """The graph of the iteration run backwards: instance i is the i-th from the end."""
        head, tail = self.size - 1 - self.tail, self.size - 1 - self.head
        order = np.lexsort((tail, head))
        turned = tail[order], head[order], self.delay_ms[order]
        return InstanceGraph(self.instances[::-1], *turned, self.num_devices, self.runs[::-1])

    def earliest_start(self, time_ms: Floats, delay_ms: Floats | None = None) -> Floats:
        """Return when each instance starts if all start as soon as they can, in ms from the begin.

        How long each runs, for any number of plans, and the starts have the shape ``(size, plans)``; delays
        in place of `delay_ms` have ``(edges,)``.
        """
        delay = self.delay_ms if delay_ms is None else delay_ms
        if time_ms.shape[1] == 1 and "schedsearch.energy.kernels" not in sys.modules:
            took, start_ms = time_ms[:, 0].tolist(), [0.0] * self.size  # quicker than to load numba
            edges = zip(self.tail.tolist(), self.head.tolist(), delay.tolist(), strict=True)
            for tail, head, least in edges:
                start_ms[head] = max(start_ms[head], start_ms[tail] + took[tail] + least)
            return np.array(start_ms)[:, None]
        from schedsearch.energy.kernels import starts

        start: Floats = starts(self.first, self.tail, delay, np.ascontiguousarray(time_ms))
        return start

    def latest_end(self, time_ms: Floats, deadline_ms: Floats) -> Floats:
        """Return the time by which each instance must end for all later ones to keep their plan's deadline.

        Milliseconds from the begin of the iteration, and how long each runs, have the shape ``(size,
        plans)``.
        """
        return deadline_ms - self.reversed.earliest_start(time_ms[::-1])[::-1]

    def makespan(self, time_ms: Floats) -> Floats:
        """Return the length of the iteration of each plan; shape ``(plans,)``."""
        makespan: Floats = (self.earliest_start(time_ms) + time_ms).max(axis=0)
        return makespan


def instance_graph(schedule: Schedule) -> InstanceGraph:
    """Return the graph of a schedule that clocks are chosen for; see `check_clocks_of`, `waiting_graph`."""
    check_clocks_of(schedule.placement)
    return waiting_graph(schedule)


def check_clocks_of(placement: Placement) -> None:
    """Check that clocks can be chosen for a placement.

    Raises:
        EnergyError: Streams of its devices slow each other down.
    """
    if placement.slowdown:
        raise EnergyError(
            f"slowdown: streams of {placement.name} slow each other down, which no plan of clocks counts "
            "yet; use schedsearch search, or leave it out of the placement"
        )


def waiting_graph(schedule: Schedule) -> InstanceGraph:
    """Return the graph of a schedule: its data dependencies, and neighbors in each device's order.

    On a device with several streams each stream has its order, and a block that allocates shared memory
    waits for the block that releases it.

    Raises:
        EnergyError: The schedule is empty or incomplete, or its orders contradict its dependencies.
    """
    instances = list(schedule.start_of)
    placement, number = schedule.placement, schedule.num_micro_batches
    expected = sum(1 for _ in every_instance(placement, number, schedule.chosen))
    if not instances or len(instances) != expected or len(schedule.blocks) != expected:
        raise EnergyError(
            f"schedule: holds {len(schedule.blocks)} blocks where {number} micro-batches "
            f"of {placement.name} need {expected}; give every block of every micro-batch once"
        )
    delays = _delays(schedule)
    order = _topological(instances, delays)
    index = {instance: i for i, instance in enumerate(order)}
    edges = sorted((index[target], index[source], delay) for (source, target), delay in delays.items())
    head, tail, delay_ms = np.array(edges, dtype=np.float64).reshape(-1, 3).T
    runs = tuple(schedule.run_name(*instance) for instance in order)
    arcs = tail.astype(np.int64), head.astype(np.int64), np.ascontiguousarray(delay_ms)
    return InstanceGraph(tuple(order), *arcs, placement.num_devices, runs)


def device_orders(schedule: Schedule, graph: InstanceGraph) -> list[Ints]:
    """Return the indices of the instances that each device computes, in its order."""
    index = {instance: i for i, instance in enumerate(graph.instances)}
    computed = schedule.lane_orders[: graph.num_devices]  # of the stream compute of each
    return [np.array([index[instance] for instance in order], dtype=np.int64) for order in computed]


def _delays(schedule: Schedule) -> dict[tuple[Instance, Instance], float]:
    """Return the least delay in ms from the end of each instance to the start of each of its successors.

    A block that must start no sooner than another waits for all that the other waits for: then it does not,
    if all start as soon as they can.
    """
    placement = schedule.placement
    delays: dict[tuple[Instance, Instance], float] = {}
    for order in schedule.lane_orders:
        delays.update(dict.fromkeys(pairwise(order), 0.0))
    for earlier, later, ticks in dependencies(placement, schedule.num_micro_batches, schedule.chosen):
        delays[earlier, later] = ticks * placement.tick_ms
    waits = list(schedule.memory_waits)  # for memory that streams share
    for earlier, later, ticks in waits:
        if ticks:
            delays.setdefault((earlier, later), 0.0)
    before: dict[Instance, list[tuple[Instance, float]]] = {}
    for (source, target), delay in delays.items() if waits else ():
        before.setdefault(target, []).append((source, delay))
    for later, others in no_sooner(waits).items():
        for earlier in others - {later}:
            for source, delay in before.get(earlier, ()):
                delays[source, later] = max(delays.get((source, later), 0.0), delay)
    return delays


def _topological(instances: list[Instance], delays: dict[tuple[Instance, Instance], float]) -> list[Instance]:
    """Return the instances in topological order: each comes after its predecessors."""
    sorter = TopologicalSorter[Instance](dict.fromkeys(instances, ()))
    for source, target in delays:
        sorter.add(target, source)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        name, n = error.args[1][0]
        raise EnergyError(
            f"schedule: {name} of micro-batch {n} waits for itself, because a device's order contradicts "
            "the dependencies; give a schedule that passes validate"
        ) from None
