"""From times that are no clock's times to clocks, for many deadlines at once (Perseus, Sec. 4.3).

Perseus gives each instance its slowest clock that is not slower than planned. What that leaves unused is
lost on the critical path, so we also round in the order of the graph and hand the rest on to whoever comes
next, forward or backward, and at the end let every instance use the slack it finds. Which of these is
best differs from deadline to deadline, so all are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from schedsearch.energy.graph import Floats, Ints, due_at, ready_at
from schedsearch.energy.problem import ClockProblem

TOLERANCE = 1e-10
"""Share of the deadline by which rounding errors may make an instance late."""


Generated = Iterator[tuple[str, Ints]]
"""Choices of modes, shape ``(instances, plans)``, each with the name of what made them."""


def rounded(problem: ClockProblem, planned_ms: Floats, deadline_ms: Floats) -> Generated:
    """Yield choices of modes that keep the deadlines, one for each way to round.

    Args:
        problem: Problem whose modes are chosen.
        planned_ms: Time of each instance for each deadline, with which the deadline is kept; shape
            ``(instances, deadlines)``.
        deadline_ms: Shape ``(deadlines,)``.
    """
    rounding = _Rounding(problem, planned_ms, deadline_ms, TOLERANCE * deadline_ms)
    floor = rounding.floor()
    either = rounding.either_neighbor(floor)
    yield "floor", rounding.reclaim_backward(floor)
    for name, choice in (("forward", rounding.forward(either)), ("backward", rounding.backward(either))):
        yield name, rounding.reclaim_backward(choice)
        yield name, rounding.reclaim_forward(choice)


def rounded_at_seams(problem: ClockProblem, planned_ms: Floats, deadline_ms: Floats) -> Iterator[Ints]:
    """Yield choices of modes that keep the deadlines where nearly all planned times are those of modes.

    The arguments are those of `rounded`.
    """
    rounding = _Rounding(problem, planned_ms, deadline_ms, TOLERANCE * deadline_ms)
    floor = rounding.floor()
    yield rounding.reclaim_backward(floor)
    yield rounding.reclaim_forward(floor)


Chooser = Callable[[Ints, Floats], Ints]
"""Picks the modes of some instances (indices), given the milliseconds each may take in each plan."""


@dataclass(frozen=True, eq=False)
class _Rounding:
    """One rounding problem; the attributes are the arguments of `rounded`."""

    problem: ClockProblem
    planned_ms: Floats
    deadline_ms: Floats
    tolerance_ms: Floats

    def floor(self) -> Ints:
        """Choose the slowest mode that is not slower than planned, as Perseus does."""
        choice = np.zeros(self.planned_ms.shape, dtype=np.int64)
        for level in self.problem.graph.forward_levels:
            allowed = self.planned_ms[level.members] + self.tolerance_ms
            choice[level.members] = self.problem.table.slowest_within(level.members, allowed)
        return choice

    def either_neighbor(self, floor: Ints) -> Chooser:
        """Return a chooser between the two hull modes next to the planned time."""
        row = self.problem.table.row[:, None]
        faster, slower = (
            self.problem.table.last_on_hull[row, floor],
            self.problem.table.next_on_hull[row, floor],
        )
        slower_ms = self.problem.table.times(slower)

        def choose(members: Ints, allowed_ms: Floats) -> Ints:
            return np.where(slower_ms[members] <= allowed_ms, slower[members], faster[members])

        return choose

    def forward(self, choose: Chooser) -> Ints:
        """Round in topological order: each may end when the plan lets it end, whenever it really starts."""
        return self._from_the_begin(choose, self.planned_ms)

    def backward(self, choose: Chooser) -> Ints:
        """Round from the end: each may start when the plan lets it start, whenever it really must end."""
        return self._from_the_end(choose, self.planned_ms)

    def reclaim_forward(self, choice: Ints) -> Ints:
        """Give every instance, first ones first, the slowest mode that its slack allows."""
        return self._from_the_begin(self.problem.table.slowest_within, self.problem.table.times(choice))

    def reclaim_backward(self, choice: Ints) -> Ints:
        """Give every instance, last ones first, the slowest mode that its slack allows."""
        return self._from_the_end(self.problem.table.slowest_within, self.problem.table.times(choice))

    def _from_the_begin(self, choose: Chooser, time_ms: Floats) -> Ints:
        """Choose in topological order, leaving all later instances at least the given times."""
        latest_end = self.problem.graph.latest_end(time_ms, self.deadline_ms) + self.tolerance_ms
        choice = np.zeros(time_ms.shape, dtype=np.int64)
        end = np.zeros((self.problem.graph.size + 1, len(self.deadline_ms)))
        for level in self.problem.graph.forward_levels:
            members, start = level.members, ready_at(level, end)
            choice[members] = choose(members, latest_end[members] - start)
            end[members] = start + self._time(members, choice)
        return choice

    def _from_the_end(self, choose: Chooser, time_ms: Floats) -> Ints:
        """Choose in reverse order, leaving all earlier instances at least the given times."""
        earliest = self.problem.graph.earliest_start(time_ms) - self.tolerance_ms
        choice = np.zeros(time_ms.shape, dtype=np.int64)
        start = np.vstack([np.zeros_like(time_ms), self.deadline_ms])
        for level in self.problem.graph.backward_levels:
            members, end = level.members, due_at(level, start)
            choice[members] = choose(members, end - earliest[members])
            start[members] = end - self._time(members, choice)
        return choice

    def _time(self, members: Ints, choice: Ints) -> Floats:
        time: Floats = self.problem.table.time_ms[self.problem.table.row[members][:, None], choice[members]]
        return time
