"""What clocks do to an iteration whose devices wait for every change of clock.

Each device waits, at the blocking power (that of the old clock, where it depends on the clock), from the end
of a block until the clock of its next one is there.
Where iterations follow each other, the next one begins once this one has ended and every device can have its
first clock in time, so that the same starts hold in all of them; a job that starts everything as soon as it
can is never later.

Instances can be tied to one clock, and a loop can stand for more rounds than the schedule has; see `tied`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placements import Profile
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import Floats, InstanceGraph, Ints, device_orders, instance_graph
from schedsearch.energy.simulation import Simulation
from schedsearch.energy.switching.limits import SwitchingLimits
from schedsearch.energy.waiting import Waiting, waiting_w
from schedsearch.schedule import Schedule, micro_batches_of


@dataclass(frozen=True, eq=False)
class State:
    """Clocks and what they do.

    Attributes:
        clock: MHz of each instance.
        start_ms: Of each instance.
        time_ms: Length of the iteration.
        effective_mj: Energy above the blocking power, the least of any clock.
        after_w: Power after the end above that; 0 where the blocking power does not depend on the clock.
    """

    clock: Ints
    start_ms: Floats
    time_ms: float
    effective_mj: float
    after_w: float = 0.0


@dataclass(frozen=True, eq=False)
class Run:
    """Blocks that a device runs one after another at one clock.

    Attributes:
        members: Indices of instances, in order.
        mhz: Their clock.
        begin: Where the first is in the device's order.
    """

    members: list[int]
    mhz: int
    begin: int


class Loop(Protocol):
    """Rounds that are not in the schedule but in the iteration."""

    def more_ms(self, time_ms: Floats, clock: Ints) -> float:
        """Return how much longer they make the iteration.

        Args:
            time_ms: Of each instance of the schedule.
            clock: MHz of each.
        """


@dataclass(frozen=True, eq=False)
class ClockCosts:
    """Time and effective energy of every block at every clock of any block; infinite where it has it not.

    Attributes:
        clock_mhz: Ascending; shape ``(clocks,)``.
        row: Row of each instance's block; shape ``(instances,)``.
        time_ms: Shape ``(blocks, clocks)``.
        energy_mj: Effective energy on all devices of a block.
    """

    clock_mhz: Ints
    row: Ints
    time_ms: Floats
    energy_mj: Floats

    @classmethod
    def of(cls, schedule: Schedule, profile: Profile, graph: InstanceGraph) -> ClockCosts:
        """Return the costs of the instances of a graph."""
        placement, power = schedule.placement, profile.min_blocking_power_w
        blocks = placement.blocks
        clocks = sorted({p.clock_mhz for block in blocks for p in profile.points[block.name]})
        column = {mhz: k for k, mhz in enumerate(clocks)}
        time, energy = np.full((2, len(blocks), len(clocks)), np.inf)
        for row, block in enumerate(blocks):
            for p in profile.points[block.name]:
                time[row, column[p.clock_mhz]] = p.time_ms
                energy[row, column[p.clock_mhz]] = placement.gpus_of(block) * (
                    p.energy_mj - power * p.time_ms
                )
        rows = {block.name: row for row, block in enumerate(blocks)}
        return cls(
            np.array(clocks, dtype=np.int64),
            np.array([rows[name] for name, _ in graph.instances]),
            time,
            energy,
        )

    @cached_property
    def is_uneven(self) -> bool:
        """Return whether some block takes no less time at a higher clock, as measured ones may."""
        each = (row[np.isfinite(row)] for row in self.time_ms)
        return any((np.diff(times) >= 0).any() for times in each)

    def column(self, clock: Ints) -> Ints:
        """Return the columns of clocks that some block has."""
        return np.searchsorted(self.clock_mhz, clock).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Waits:
    """The edges of a graph as arrays, in order of their heads, which are in topological order.

    Attributes:
        tail: Who is waited for.
        head: Who waits.
        delay_ms: Least time from the tail's end to the head's start.
        is_adjacent: Whether some device runs the head just after the tail.
        first: Where the edges of each instance as head begin; shape ``(instances + 1,)``.
    """

    tail: Ints
    head: Ints
    delay_ms: Floats
    is_adjacent: NDArray[np.bool_]
    first: Ints

    @classmethod
    def of(cls, graph: InstanceGraph, orders: Sequence[Sequence[int]]) -> Waits:
        """Return the edges of a graph."""
        pairs = {pair for order in orders for pair in pairwise(order)}
        edges = sorted(graph.edges, key=lambda edge: (edge[1], edge[0]))
        head = np.array([after for _, after, _ in edges], dtype=np.int64)
        return cls(
            np.array([before for before, _, _ in edges], dtype=np.int64),
            head,
            np.array([delay for _, _, delay in edges]),
            np.array([(before, after) in pairs for before, after, _ in edges], dtype=np.bool_),
            np.searchsorted(head, np.arange(graph.size + 1)).astype(np.int64),
        )

    def delays(self, clock: Ints, latency_ms: float) -> Floats:
        """Return the least time that each edge asks for, with a change's latency where there is one."""
        changes = self.is_adjacent & (clock[self.tail] != clock[self.head])
        delay: Floats = np.where(changes, np.maximum(self.delay_ms, latency_ms), self.delay_ms)
        return delay


@dataclass(frozen=True, eq=False)
class SwitchingModel:
    """A schedule under limits.

    Attributes:
        schedule: Its orders are used.
        profile: Cost of each of its blocks at each clock.
        limits: To be kept.
        latest_ms: For the length of the iteration.
        group: Instances of one number have one clock; shape ``(instances,)``. None: every one has its own.
        weight: How often the energy of each instance counts. None: once.
        loop: Rounds besides.
    """

    schedule: Schedule
    profile: Profile
    limits: SwitchingLimits
    latest_ms: float
    group: Ints | None = None
    weight: Floats | None = None
    loop: Loop | None = None
    graph: InstanceGraph = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", instance_graph(self.schedule))

    @cached_property
    def orders(self) -> list[list[int]]:
        """Return the instances of each device, in order."""
        return [order.tolist() for order in device_orders(self.schedule, self.graph)]

    @cached_property
    def costs(self) -> ClockCosts:
        """Return what each block costs at each clock."""
        return ClockCosts.of(self.schedule, self.profile, self.graph)

    @cached_property
    def waiting(self) -> Waiting | None:
        """Return who waits at which power, where the blocking power depends on the clock."""
        return Waiting.of(self.schedule, self.profile, self.graph)

    @cached_property
    def waits(self) -> Waits:
        """Return who waits for whom."""
        return Waits.of(self.graph, self.orders)

    @cached_property
    def _tied(self) -> list[Ints]:
        assert self.group is not None, "asked for only where there are groups"
        return [np.flatnonzero(self.group == number) for number in range(int(self.group.max()) + 1)]

    def tied_to(self, members: Sequence[int]) -> Ints:
        """Return the instances whose clocks change with those of some, themselves included."""
        if self.group is None:
            return np.array(members, dtype=np.int64)
        return np.concatenate([self._tied[number] for number in np.unique(self.group[list(members)])])

    def clocks_of(self, clock_mhz: Mapping[str, Sequence[int]]) -> Ints:
        """Return the clock of each instance, from those of each block by micro-batch."""
        number = self.schedule.num_micro_batches
        clock = {
            (name, n): mhz
            for name, clocks in clock_mhz.items()
            for n, mhz in zip(micro_batches_of(self.schedule.placement, name, number), clocks, strict=True)
        }
        return np.array([clock[instance] for instance in self.graph.instances], dtype=np.int64)

    def faster_than(self, maximum: Ints) -> Iterator[Ints]:
        """Yield the fastest clock of each instance, if some are faster than the highest ones."""
        fastest = self.costs.clock_mhz[self.costs.time_ms.argmin(axis=1)][self.costs.row]
        if (self.times(fastest) < self.times(maximum)).any():
            yield fastest

    def times(self, clock: Ints) -> Floats:
        """Return how long each instance runs."""
        times: Floats = self.costs.time_ms[self.costs.row, self.costs.column(clock)]
        return times

    def effective(self, members: Sequence[int] | Ints, clock: Ints | int) -> float:
        """Return the effective energy of instances at clocks, infinite where one lacks its clock."""
        columns = self.costs.column(np.asarray(clock))
        energy = self.costs.energy_mj[self.costs.row[members], columns]
        return float((energy if self.weight is None else energy * self.weight[members]).sum())

    def state(self, clock: Ints) -> State:
        """Simulate clocks."""
        time = self.times(clock)
        delay = self.waits.delays(clock, self.limits.latency_ms).tolist()
        tail, first, took = self.waits.tail.tolist(), self.waits.first.tolist(), time.tolist()
        start: list[float] = []
        end: list[float] = []
        for i, ms in enumerate(took):
            ready = 0.0
            for edge in range(first[i], first[i + 1]):
                after = end[tail[edge]] + delay[edge]
                if after > ready:
                    ready = after
            start.append(ready)
            end.append(ready + ms)
        starts = np.array(start)
        length = max(end, default=0.0)
        if self.loop is not None:
            length += self.loop.more_ms(time, clock)
        length = max(length, self._seam_ms(clock, starts, length - max(end, default=0.0)))
        effective = self.effective(np.arange(len(clock)), clock)
        if self.waiting is None:
            return State(clock, starts, length, effective)
        above_w = self.waiting.of_clocks(clock[:, None])
        above_mj = self.waiting.above_least_mj(
            starts[:, None], time[:, None], above_w, np.array([length], dtype=np.float64)
        )
        gpus = self.waiting.num_gpus
        after_w = float(gpus @ self.waiting.after_last_w(above_w)[:, 0])
        return State(clock, starts, length, effective + float(gpus @ above_mj[:, 0]), after_w)

    def _seam_ms(self, clock: Ints, start_ms: Floats, more_ms: float) -> float:
        """Return how long the iteration is at least for all devices to have their first clocks again."""
        if not self.limits.back_to_back or self.limits.latency_ms == 0:
            return 0.0
        time = self.times(clock)
        return max(
            (
                float(start_ms[order[-1]] + time[order[-1]] - start_ms[order[0]])
                + more_ms
                + self.limits.latency_ms
                for order in self.orders
                if order and clock[order[-1]] != clock[order[0]]
            ),
            default=0.0,
        )

    def simulation(self, state: State) -> Simulation:
        """Return a state as a simulation."""
        starts = dict(zip(self.graph.instances, state.start_ms.tolist(), strict=True))
        least_w = waiting_w(self.schedule.placement, self.profile)
        return Simulation(
            starts,
            state.time_ms,
            state.effective_mj + least_w * state.time_ms,
            None if self.waiting is None else least_w + state.after_w,
        )

    def runs(self, device: int, clock: Ints) -> list[Run]:
        """Return the stretches of equal clocks of a device.

        Where iterations follow each other, a last one of the first one's clock is part of that.
        """
        order = self.orders[device]
        mhz = clock[order]
        begins = [0, *(np.flatnonzero(mhz[1:] != mhz[:-1]) + 1).tolist(), len(order)]
        found = [
            Run(order[begin:end], int(mhz[begin]), begin) for begin, end in pairwise(begins) if begin < end
        ]
        if self.limits.back_to_back and len(found) > 1 and found[0].mhz == found[-1].mhz:
            last = found.pop()
            found[0] = Run([*last.members, *found[0].members], last.mhz, last.begin)
        return found

    def too_short(self, state: State) -> Iterator[tuple[list[Run], int]]:
        """Yield a device's stretches, and which one between two changes is shorter than the dwell.

        The neighbors of the first and the last are each other where iterations follow each other.
        """
        least = self.limits.dwell_ms * (1 - TIME_TOLERANCE)
        if least <= 0:
            return
        for device in range(self.graph.num_devices):
            runs = self.runs(device, state.clock)
            if len(runs) == 1:
                continue
            begin = [state.start_ms[run.members[0]] for run in runs]
            ends = [*begin[1:], begin[0]] if runs else []
            between = range(len(runs)) if self.limits.back_to_back else range(1, len(runs) - 1)
            for i in between:
                if (ends[i] - begin[i]) + (state.time_ms if ends[i] <= begin[i] else 0.0) < least:
                    yield runs, i

    def keeps(self, state: State) -> bool:
        """Tell whether a state keeps all limits."""
        return state.time_ms <= self.latest_ms and not any(True for _ in self.too_short(state))
