"""What clocks do to an iteration whose devices wait for every change of clock.

Each device waits, at the blocking power (that of the old clock, where it depends on the clock), from the end
of a block until the clock of its next one is there.
Where iterations follow each other, the next one begins once this one has ended and every device can have its
first clock in time, so that the same starts hold in all of them; a job that starts everything as soon as it
can is never later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.simulation import ClockedIteration
from schedsearch.energy.switching.limits import SwitchingLimits


@dataclass(frozen=True, eq=False)
class SwitchState:
    """Clocks and what they do.

    Attributes:
        clock: MHz of each instance.
        start_ms: Start of each instance.
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
class ClockCosts:
    """Time and effective energy of every block, in each mode, at every clock; infinite where it has it not.

    Attributes:
        clock_mhz: Those of any block, ascending; shape ``(clocks,)``.
        row: Row of each instance's block in its mode; shape ``(instances,)``.
        time_ms: Shape ``(blocks in modes, clocks)``.
        energy_mj: Effective energy on all devices of a block.
    """

    clock_mhz: Ints
    row: Ints
    time_ms: Floats
    energy_mj: Floats

    @classmethod
    def of(cls, problem: ClockProblem) -> ClockCosts:
        """Return the costs of the instances of a problem."""
        placement, profile = problem.schedule.placement, problem.profile
        profile.require_one_config("limits")
        power = profile.min_blocking_power_w
        runs = placement.runs
        clocks = sorted({p.clock_mhz for name in runs for p in profile.points[name]})
        column = {mhz: k for k, mhz in enumerate(clocks)}
        time, energy = np.full((2, len(runs), len(clocks)), np.inf)
        for row, (name, block) in enumerate(runs.items()):
            for p in profile.points[name]:
                time[row, column[p.clock_mhz]] = p.time_ms
                energy[row, column[p.clock_mhz]] = placement.gpus_of(block) * (
                    p.energy_mj - power * p.time_ms
                )
        rows = {name: row for row, name in enumerate(runs)}
        return cls(
            np.array(clocks, dtype=np.int64),
            np.array([rows[name] for name in problem.graph.runs]),
            time,
            energy,
        )

    def column(self, clock: Ints) -> Ints:
        """Return the columns of clocks that some block has."""
        return np.searchsorted(self.clock_mhz, clock).astype(np.int64)


@dataclass(frozen=True, eq=False)
class EdgeArrays:
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
    def of(cls, problem: ClockProblem) -> EdgeArrays:
        """Return the edges of a problem's graph."""
        graph = problem.graph
        pairs = {pair for order in problem.orders for pair in pairwise(order.tolist())}
        edges = sorted(graph.edges, key=lambda edge: (edge[1], edge[0]))
        head = np.array([after for _, after, _ in edges], dtype=np.int64)
        return cls(
            np.array([before for before, _, _ in edges], dtype=np.int64),
            head,
            np.array([delay for _, _, delay in edges]),
            np.array([(before, after) in pairs for before, after, _ in edges], dtype=np.bool_),
            np.searchsorted(head, np.arange(graph.size + 1)).astype(np.int64),
        )

    def delays(self, column: Ints, latency_ms: Floats) -> Floats:
        """Return the least time that each edge asks for, with a change's latency where there is one.

        Args:
            column: Column of each instance's clock.
            latency_ms: Latency from the clock of each column to that of each other.
        """
        latency = latency_ms[column[self.tail], column[self.head]]
        delay: Floats = np.where(self.is_adjacent, np.maximum(self.delay_ms, latency), self.delay_ms)
        return delay


@dataclass(frozen=True, eq=False)
class SwitchingProblem(ClockProblem):
    """A clock problem under limits on changes of clock.

    Attributes:
        limits: Limits to be kept.
        latest_ms: For the length of the iteration.
        group: Clock group of each instance, from 0; shape ``(instances,)``. None: every one has its own.
    """

    limits: SwitchingLimits = field(default_factory=SwitchingLimits)
    latest_ms: float = np.inf
    group: Ints | None = None

    @cached_property
    def costs(self) -> ClockCosts:
        """Return what each block costs at each clock."""
        return ClockCosts.of(self)

    @cached_property
    def latency_ms(self) -> Floats:
        """Return what a change takes from each column of `costs` to each; shape ``(clocks, clocks)``."""
        clocks = self.costs.clock_mhz
        return self.limits.latencies_ms(clocks[:, None], clocks[None])

    @property
    def min_latency_ms(self) -> float:
        """Return what the quickest change takes."""
        others = ~np.eye(len(self.latency_ms), dtype=np.bool_)
        return float(self.latency_ms[others].min(initial=self.limits.latency_ms))

    @cached_property
    def waits(self) -> EdgeArrays:
        """Return who waits for whom."""
        return EdgeArrays.of(self)

    def clocks_of(self, clock_mhz: Clocks) -> Ints:
        """Return the clock of each instance, from those of each block by micro-batch."""
        schedule = self.schedule
        clock = {
            (name, n): mhz
            for name, clocks in clock_mhz.items()
            for n, mhz in zip(schedule.runs_of[name], clocks, strict=True)
        }
        return np.array([clock[instance] for instance in self.graph.instances], dtype=np.int64)

    def one_for_each_device(self) -> Ints:
        """Return one clock for all blocks of each device, or of devices that share blocks, in MHz.

        Each begins at the one at which its blocks are fastest together, and is lowered in turn as far as the
        limits allow. Where blocks have no clock in common, each has its own fastest.
        """
        costs = self.costs
        column = costs.time_ms.argmin(axis=1)[costs.row]
        ways = [(members, self._in_common(members)) for members in self._independent()]
        ways = [(members, columns) for members, columns in ways if len(columns)]
        for members, columns in ways:
            column[members] = columns[0]
        for members, columns in ways:
            kept, late = 0, len(columns)
            while late - kept > 1:
                middle = (kept + late) // 2
                column[members] = columns[middle]
                if self.keeps(self.state(costs.clock_mhz[column])):
                    kept = middle
                else:
                    late = middle
            column[members] = columns[kept]
        clocks: Ints = costs.clock_mhz[column]
        return clocks

    def _in_common(self, members: Ints) -> Ints:
        """Return the columns of the clocks that all of some instances have, fastest together first.

        Where several are equally fast, the highest is the first.
        """
        total_ms = self.costs.time_ms[self.costs.row[members]].sum(axis=0)
        order: Ints = np.lexsort((-self.costs.clock_mhz, total_ms))
        common: Ints = order[np.isfinite(total_ms[order])]
        return common

    def _independent(self) -> list[Ints]:
        """Return the instances of devices that share blocks, directly or not, together."""
        groups: list[set[int]] = []
        for block in self.schedule.placement.blocks:
            joined = [group for group in groups if group & set(block.devices)]
            groups = [group for group in groups if group not in joined]
            groups.append(set(block.devices).union(*joined))
        orders = self.orders
        return [np.unique(np.concatenate([orders[device] for device in group])) for group in groups]

    def times(self, clock: Ints) -> Floats:
        """Return how long each instance runs."""
        times: Floats = self.costs.time_ms[self.costs.row, self.costs.column(clock)]
        return times

    def state(self, clock: Ints) -> SwitchState:
        """Simulate clocks."""
        time = self.times(clock)
        delay = self.waits.delays(self.costs.column(clock), self.latency_ms).tolist()
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
        length = max([*end, *self._seams_ms(clock, starts, time)])
        effective = float(self.costs.energy_mj[self.costs.row, self.costs.column(clock)].sum())
        waiting = self.waiting
        if waiting is None:
            return SwitchState(clock, starts, length, effective)
        above_w = waiting.of_clocks(clock[:, None])
        above_mj = waiting.above_min_mj(
            starts[:, None], time[:, None], above_w, np.array([length], dtype=np.float64)
        )
        gpus = waiting.num_gpus
        after_w = float(gpus @ waiting.after_last_w(above_w)[:, 0])
        return SwitchState(clock, starts, length, effective + float(gpus @ above_mj[:, 0]), after_w)

    def _seams_ms(self, clock: Ints, start_ms: Floats, time_ms: Floats) -> Iterator[float]:
        """Yield how long the iteration is at least for each device to have its first clock again."""
        if not self.limits.back_to_back or self.limits.latency_ms == 0:
            return
        column = self.costs.column(clock)
        for order in self.orders:
            if len(order) and clock[order[-1]] != clock[order[0]]:
                first, last = order[0], order[-1]
                change_ms = float(self.latency_ms[column[last], column[first]])
                yield float(start_ms[last] + time_ms[last] - start_ms[first]) + change_ms

    def simulation(self, state: SwitchState) -> ClockedIteration:
        """Return a state as a simulation."""
        min_w = self.waiting_w
        return ClockedIteration(
            dict(zip(self.graph.instances, state.start_ms.tolist(), strict=True)),
            state.time_ms,
            state.effective_mj + min_w * state.time_ms,
            None if self.waiting is None else min_w + state.after_w,
        )

    def keeps(self, state: SwitchState) -> bool:
        """Tell whether a state keeps the deadline, and every stretch of one clock lasts as long as it must.

        A stretch lasts from the start of its first block to that of the next one; only between two changes it
        must last. Where iterations follow each other, the last change is before the first one.
        """
        if state.time_ms > self.latest_ms:
            return False
        min_ms = self.limits.dwell_ms * (1 - TIME_TOLERANCE)
        for order in self.orders if min_ms > 0 else ():
            clock, start = state.clock[order], state.start_ms[order]
            changes = start[1:][clock[1:] != clock[:-1]]
            if self.limits.back_to_back and len(order):
                again = start[:1] + state.time_ms if clock[0] != clock[-1] else changes[:1] + state.time_ms
                changes = np.concatenate(
                    [start[:1] if clock[0] != clock[-1] else changes[:0], changes, again]
                )
            if (np.diff(changes) < min_ms).any():
                return False
        return True
