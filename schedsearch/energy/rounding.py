"""From times that are no clock's times to clocks, for many deadlines at once (Perseus, Sec. 4.3).

Perseus gives each instance its slowest clock that is not slower than planned. What that leaves unused is
lost on the critical path, so we also round in the order of the graph and hand the rest on to whoever comes
next, forward or backward, and at the end let every instance use the slack it finds. Which of these is
best differs from deadline to deadline, so all are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints, due_at, ready_at

FEW_INSTANCES = 128
"""Up to so many it pays to let the first ones, or the last ones, take all that the deadline leaves."""

TOLERANCE = 1e-10
"""Share of the deadline by which rounding errors may make an instance late."""


@dataclass(frozen=True, eq=False)
class OptionTable:
    """The options of all instances in one array, padded with infinite times.

    Attributes:
        row: Row of each instance's block in the other fields; shape ``(instances,)``.
        clock_mhz: Shape ``(blocks, most options)``; the padding is 0.
        time_ms: Ascending in each row.
        energy_mj: Effective energy on all devices of the block; the padding is infinite.
        next_on_hull: For each option the first slower one on the lower convex hull, or the last option.
        last_on_hull: For each option itself or the first faster one, whichever is on the hull.
    """

    row: Ints
    clock_mhz: Ints
    time_ms: Floats
    energy_mj: Floats
    next_on_hull: Ints
    last_on_hull: Ints

    def times(self, choice: Ints) -> Floats:
        """Return how long each instance takes with the chosen options; shape ``(instances, plans)``."""
        times: Floats = self.time_ms[self.row[:, None], choice]
        return times

    def energy(self, choice: Ints) -> Floats:
        """Return the effective energy of all instances together; shape ``(plans,)``."""
        energy: Floats = self.energy_mj[self.row[:, None], choice].sum(axis=0)
        return energy

    def slowest_within(self, members: Ints, allowed_ms: Floats) -> Ints:
        """Return each member's slowest option that takes no longer than allowed, or its fastest.

        Args:
            members: Indices of instances.
            allowed_ms: Shape ``(members, plans)``.
        """
        choice = np.empty(allowed_ms.shape, dtype=np.int64)
        for i, row in enumerate(self.row[members].tolist()):
            choice[i] = self.time_ms[row].searchsorted(allowed_ms[i], side="right")
        return np.maximum(choice - 1, 0)


def option_table(graph: InstanceGraph, curves: Mapping[str, CostCurve]) -> OptionTable:
    """Return the options of all instances of a graph."""
    names = list(curves)
    shape = (len(names), max(len(curve.time_ms) for curve in curves.values()))
    table = OptionTable(
        row=np.array([names.index(name) for name, _ in graph.instances]),
        clock_mhz=np.zeros(shape, dtype=np.int64),
        time_ms=np.full(shape, np.inf),
        energy_mj=np.full(shape, np.inf),
        next_on_hull=np.zeros(shape, dtype=np.int64),
        last_on_hull=np.zeros(shape, dtype=np.int64),
    )
    for row, curve in enumerate(curves.values()):
        count = len(curve.time_ms)
        after = np.searchsorted(curve.hull, np.arange(count), side="right")
        table.clock_mhz[row, :count] = curve.clock_mhz
        table.time_ms[row, :count] = curve.time_ms
        table.energy_mj[row, :count] = curve.energy_mj
        table.next_on_hull[row, :count] = curve.hull[np.minimum(after, len(curve.hull) - 1)]
        table.last_on_hull[row, :count] = curve.hull[after - 1]
    return table


def rounded(
    graph: InstanceGraph, table: OptionTable, planned_ms: Floats, deadline_ms: Floats
) -> Iterator[Ints]:
    """Yield choices of options that keep the deadlines, one for each way to round.

    Args:
        graph: Who waits for whom.
        table: Options of the graph's instances.
        planned_ms: Time of each instance for each deadline, with which the deadline is kept; shape
            ``(instances, deadlines)``.
        deadline_ms: Shape ``(deadlines,)``.

    Yields:
        Columns of `table` in the shape of `planned_ms`.
    """
    rounding = _Rounding(graph, table, planned_ms, deadline_ms, TOLERANCE * deadline_ms)
    floor = rounding.floor()
    either = rounding.either_neighbor(floor)
    yield rounding.reclaim_backward(floor)
    if graph.size <= FEW_INSTANCES:
        yield rounding.reclaim_backward(rounding.forward(table.slowest_within))
        yield rounding.reclaim_backward(rounding.backward(table.slowest_within))
        yield rounding.reclaim_backward(rounding.greedy_forward(floor))
        yield rounding.reclaim_backward(rounding.greedy_backward(floor))
    for choice in (rounding.forward(either), rounding.backward(either)):
        yield rounding.reclaim_backward(choice)
        yield rounding.reclaim_forward(choice)


def rounded_at_seams(
    graph: InstanceGraph, table: OptionTable, planned_ms: Floats, deadline_ms: Floats
) -> Iterator[Ints]:
    """Yield choices of options that keep the deadlines where nearly all planned times are those of options.

    The arguments and what is yielded are those of `rounded`.
    """
    rounding = _Rounding(graph, table, planned_ms, deadline_ms, TOLERANCE * deadline_ms)
    floor = rounding.floor()
    yield rounding.reclaim_backward(floor)
    yield rounding.reclaim_forward(floor)


Chooser = Callable[[Ints, Floats], Ints]
"""Picks the options of some instances (indices), given the milliseconds each may take in each plan."""


@dataclass(frozen=True, eq=False)
class _Rounding:
    """One rounding problem; the attributes are the arguments of `rounded`."""

    graph: InstanceGraph
    table: OptionTable
    planned_ms: Floats
    deadline_ms: Floats
    tolerance_ms: Floats

    def floor(self) -> Ints:
        """Choose the slowest option that is not slower than planned, as Perseus does."""
        choice = np.zeros(self.planned_ms.shape, dtype=np.int64)
        for level in self.graph.forward_levels:
            allowed = self.planned_ms[level.members] + self.tolerance_ms
            choice[level.members] = self.table.slowest_within(level.members, allowed)
        return choice

    def either_neighbor(self, floor: Ints) -> Chooser:
        """Return a chooser between the two hull options next to the planned time."""
        row = self.table.row[:, None]
        faster, slower = self.table.last_on_hull[row, floor], self.table.next_on_hull[row, floor]
        slower_ms = self.table.times(slower)

        def choose(members: Ints, allowed_ms: Floats) -> Ints:
            return np.where(slower_ms[members] <= allowed_ms, slower[members], faster[members])

        return choose

    def forward(self, choose: Chooser) -> Ints:
        """Round in topological order: each may end when the plan lets it end, whenever it really starts."""
        return self._from_the_begin(choose, self.planned_ms)

    def backward(self, choose: Chooser) -> Ints:
        """Round from the end: each may start when the plan lets it start, whenever it really must end."""
        return self._from_the_end(choose, self.planned_ms)

    def greedy_forward(self, floor: Ints) -> Ints:
        """Round up in topological order as long as the rest keeps the deadline at its fastest.

        Pays where few instances with few clocks leave no way to share what rounding leaves unused.
        """
        return self._from_the_begin(self._up_to_neighbor(floor), self._fastest())

    def greedy_backward(self, floor: Ints) -> Ints:
        """Round up from the end as long as the rest keeps the deadline at its fastest."""
        return self._from_the_end(self._up_to_neighbor(floor), self._fastest())

    def _up_to_neighbor(self, floor: Ints) -> Chooser:
        """Return a chooser of the slowest option up to the hull option above the planned time."""
        slower_ms = self.table.times(self.table.next_on_hull[self.table.row[:, None], floor])

        def choose(members: Ints, allowed_ms: Floats) -> Ints:
            return self.table.slowest_within(members, np.minimum(allowed_ms, slower_ms[members]))

        return choose

    def _fastest(self) -> Floats:
        return self.table.times(np.zeros(self.planned_ms.shape, dtype=np.int64))

    def reclaim_forward(self, choice: Ints) -> Ints:
        """Give every instance, first ones first, the slowest option that its slack allows."""
        return self._from_the_begin(self.table.slowest_within, self.table.times(choice))

    def reclaim_backward(self, choice: Ints) -> Ints:
        """Give every instance, last ones first, the slowest option that its slack allows."""
        return self._from_the_end(self.table.slowest_within, self.table.times(choice))

    def _from_the_begin(self, choose: Chooser, time_ms: Floats) -> Ints:
        """Choose in topological order, leaving all later instances at least the given times."""
        latest_end = self.graph.latest_end(time_ms, self.deadline_ms) + self.tolerance_ms
        choice = np.zeros(time_ms.shape, dtype=np.int64)
        end = np.zeros((self.graph.size + 1, len(self.deadline_ms)))
        for level in self.graph.forward_levels:
            members, start = level.members, ready_at(level, end)
            choice[members] = choose(members, latest_end[members] - start)
            end[members] = start + self._time(members, choice)
        return choice

    def _from_the_end(self, choose: Chooser, time_ms: Floats) -> Ints:
        """Choose in reverse order, leaving all earlier instances at least the given times."""
        earliest = self.graph.earliest_start(time_ms) - self.tolerance_ms
        choice = np.zeros(time_ms.shape, dtype=np.int64)
        start = np.vstack([np.zeros_like(time_ms), self.deadline_ms])
        for level in self.graph.backward_levels:
            members, end = level.members, due_at(level, start)
            choice[members] = choose(members, end - earliest[members])
            start[members] = end - self._time(members, choice)
        return choice

    def _time(self, members: Ints, choice: Ints) -> Floats:
        time: Floats = self.table.time_ms[self.table.row[members][:, None], choice[members]]
        return time
