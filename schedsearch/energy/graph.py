"""The blocks of all micro-batches as a graph of who waits for whom (Perseus, Sec. 3.1 and 4.3).

A block waits for the blocks it is after, and for the one before it on each of its devices. Nothing here
knows clocks or energy: times are given, for many plans at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from schedsearch.memory_order import no_sooner
from schedsearch.schedule import Instance, Schedule, dependencies
from schedsearch.schedule import instances as every_instance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


ArcsByHead = list[list[tuple[int, float]]]
"""For each instance others, each with the least time between the two in milliseconds."""


class EnergyError(ValueError):
    """An energy question cannot be answered; the message names the field, the value and the remedy."""


@dataclass(frozen=True)
class GraphLevel:
    """Instances that wait for none of each other, with those they wait for, padded to equal numbers.

    Attributes:
        members: Indices of the instances; shape ``(width,)``.
        neighbors: For each member the instances it waits for (or that wait for it, in a backward level),
            padded with the number of instances; shape ``(width, most)``.
        delay_ms: The least time between the two, in the shape of `neighbors`.
    """

    members: Ints
    neighbors: Ints
    delay_ms: Floats


@dataclass(frozen=True)
class InstanceGraph:
    """The instances of a schedule, and the edges between them.

    Attributes:
        instances: (block, micro-batch) in topological order.
        edges: Triples (from, to, milliseconds) of indices into `instances`, without duplicates.
        num_devices: Devices of the placement.
        runs: Of each instance the name under which a profile has its cost: its block, in its mode.
    """

    instances: tuple[Instance, ...]
    edges: tuple[tuple[int, int, float], ...]
    num_devices: int
    runs: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of instances."""
        return len(self.instances)

    @cached_property
    def edge_arrays(self) -> tuple[Ints, Ints, Floats]:
        """The edges as arrays: who is waited for, who waits, and the milliseconds between the two."""
        tail, head, delay_ms = np.array(self.edges, dtype=np.float64).reshape(-1, 3).T
        return tail.astype(np.int64), head.astype(np.int64), delay_ms

    @cached_property
    def neighbors(self) -> tuple[ArcsByHead, ArcsByHead]:
        """For each instance those that it waits for, and those that wait for it, with the time between."""
        before: ArcsByHead = [[] for _ in self.instances]
        after: ArcsByHead = [[] for _ in self.instances]
        for source, target, delay in self.edges:
            before[target].append((source, delay))
            after[source].append((target, delay))
        return before, after

    @cached_property
    def forward_levels(self) -> tuple[GraphLevel, ...]:
        """Group the instances so that each waits only for members of earlier levels."""
        return tuple(_levels(self.neighbors[0], range(self.size)))

    @cached_property
    def backward_levels(self) -> tuple[GraphLevel, ...]:
        """Group the instances so that only members of earlier levels wait for each."""
        return tuple(_levels(self.neighbors[1], range(self.size - 1, -1, -1)))

    def earliest_start(self, time_ms: Floats) -> Floats:
        """Return when each instance starts if all start as soon as they can.

        Args:
            time_ms: How long each instance runs, for any number of plans; shape ``(size, plans)``.

        Returns:
            Milliseconds from the begin of the iteration, in the same shape.
        """
        start = np.zeros_like(time_ms)
        end = np.zeros((self.size + 1, time_ms.shape[1]))
        for level in self.forward_levels:
            start[level.members] = ready_at(level, end)
            end[level.members] = start[level.members] + time_ms[level.members]
        return start

    def latest_end(self, time_ms: Floats, deadline_ms: Floats) -> Floats:
        """Return when each instance must end for every later one to end by the deadline.

        Args:
            time_ms: How long each instance runs; shape ``(size, plans)``.
            deadline_ms: One for each plan; shape ``(plans,)``.

        Returns:
            Milliseconds from the begin of the iteration; shape ``(size, plans)``.
        """
        end = np.zeros_like(time_ms)
        start = np.vstack([np.zeros_like(time_ms), deadline_ms])
        for level in self.backward_levels:
            end[level.members] = due_at(level, start)
            start[level.members] = end[level.members] - time_ms[level.members]
        return end

    def makespan(self, time_ms: Floats) -> Floats:
        """Return the length of the iteration of each plan; shape ``(plans,)``."""
        makespan: Floats = (self.earliest_start(time_ms) + time_ms).max(axis=0)
        return makespan


def ready_at(level: GraphLevel, end_ms: Floats) -> Floats:
    """Return when the members' inputs are there; `end_ms` has a last row of zeros for the padding."""
    ready: Floats = (end_ms[level.neighbors] + level.delay_ms[:, :, None]).max(axis=1)
    return ready


def due_at(level: GraphLevel, start_ms: Floats) -> Floats:
    """Return when the members' followers start; `start_ms` has a last row of deadlines for the padding."""
    due: Floats = (start_ms[level.neighbors] - level.delay_ms[:, :, None]).min(axis=1)
    return due


def instance_graph(schedule: Schedule) -> InstanceGraph:
    """Return the graph of a schedule that clocks are chosen for; see `waiting_graph`.

    Raises:
        EnergyError: The schedule is empty or incomplete, or its orders contradict its dependencies.
            Or see `check_clocks_of`.
    """
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

    Of a device with several streams that is the order of each; and what releases memory that they share is
    waited for by what allocates it.

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
    edges = sorted((index[source], index[target], delay) for (source, target), delay in delays.items())
    runs = tuple(schedule.run_name(*instance) for instance in order)
    return InstanceGraph(tuple(order), tuple(edges), placement.num_devices, runs)


def device_orders(schedule: Schedule, graph: InstanceGraph) -> list[Ints]:
    """Return the indices of the instances that each device computes, in its order."""
    index = {instance: i for i, instance in enumerate(graph.instances)}
    computed = schedule.lane_orders[: graph.num_devices]  # of the stream compute of each
    return [np.array([index[each] for each in order], dtype=np.int64) for order in computed]


def _delays(schedule: Schedule) -> dict[tuple[Instance, Instance], float]:
    """Return the least time between the end of an instance and the start of each that waits for it."""
    placement = schedule.placement
    delays: dict[tuple[Instance, Instance], float] = {}
    for order in schedule.lane_orders:
        delays.update(dict.fromkeys(pairwise(order), 0.0))
    for earlier, later, ticks in dependencies(placement, schedule.num_micro_batches, schedule.chosen):
        delays[earlier, later] = ticks * placement.tick_ms
    _add_memory_waits(schedule, delays)
    return delays


def _add_memory_waits(schedule: Schedule, delays: dict[tuple[Instance, Instance], float]) -> None:
    """Add the waits for memory that streams share.

    A block that must start no sooner than another waits for all that the other waits for: then it does not,
    if all start as soon as they can.
    """
    waits = list(schedule.memory_waits)
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


def _topological(instances: list[Instance], delays: dict[tuple[Instance, Instance], float]) -> list[Instance]:
    """Return the instances, each later than those it waits for."""
    followers: dict[Instance, list[Instance]] = {instance: [] for instance in instances}
    missing = dict.fromkeys(instances, 0)
    for source, target in delays:
        followers[source].append(target)
        missing[target] += 1
    order = [instance for instance in instances if missing[instance] == 0]
    for instance in order:
        for follower in followers[instance]:
            missing[follower] -= 1
            if missing[follower] == 0:
                order.append(follower)
    if len(order) < len(instances):
        name, n = next(instance for instance in instances if missing[instance] > 0)
        raise EnergyError(
            f"schedule: {name} of micro-batch {n} waits for itself, because a device's order contradicts "
            "the dependencies; give a schedule that passes validate"
        )
    return order


def _levels(neighbors: ArcsByHead, order: range) -> Iterator[GraphLevel]:
    depth = [0] * len(neighbors)
    for i in order:
        depth[i] = 1 + max((depth[j] for j, _ in neighbors[i]), default=-1)
    members: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for i, level in enumerate(depth):
        members[level].append(i)
    for indices in members:
        most = max(1, max(len(neighbors[i]) for i in indices))
        padded = np.full((len(indices), most), len(neighbors), dtype=np.int64)
        delay = np.zeros((len(indices), most))
        for row, i in enumerate(indices):
            for column, (j, milliseconds) in enumerate(neighbors[i]):
                padded[row, column], delay[row, column] = j, milliseconds
        yield GraphLevel(np.array(indices), padded, delay)
