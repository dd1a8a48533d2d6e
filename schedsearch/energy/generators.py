"""What makes plans of real clocks, each by a name that its plans carry.

- `PlanPool`: all plans that were made, simulated, and the best of them.
- `rounded`: from relaxed times to modes, for many deadlines at once (Perseus, Sec. 4.3). Perseus gives each
  instance its slowest clock that is not slower than planned. What that leaves unused is lost on the critical
  path, so we also round in the order of the graph and hand the rest on to whoever comes next, forward or
  backward, and at the end let every instance use the slack it finds. Which of these is best differs from
  deadline to deadline, so all are made.
- `spliced`: two good plans joined in time, to plan for the deadlines between theirs.
- `fixed`: one device's clocks fixed, the rest relaxed again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.cost import lower_hull
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, LowerBound
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.programs import SolverError, free_timing, min_energy
from schedsearch.energy.simulation import best_after, best_until, undominated

TOLERANCE = 1e-10
"""Share of the deadline by which rounding errors may make an instance late."""

Generated = Iterator[tuple[str, Ints]]
"""Choices of modes, shape ``(instances, plans)``, each with the name of what made them."""


class _Simulated(NamedTuple):
    """Plans and what they do.

    Attributes:
        time_ms: When each plan ends; shape ``(plans,)``.
        energy_mj: Effective energy until then.
        after_w: Power of all devices after the end, above the least blocking power.
        choice: Modes; shape ``(instances, plans)``.
    """

    time_ms: Floats
    energy_mj: Floats
    after_w: Floats
    choice: NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class PlanPool:
    """Every plan that was made for a problem, with the time and effective energy that its simulation gives.

    Attributes:
        problem: Problem whose modes are chosen.
        without: Names of generators whose plans are left out.
    """

    problem: ClockProblem
    without: Collection[str] = ()
    _made_by: list[str] = field(default_factory=list)
    _parts: list[_Simulated] = field(default_factory=list)

    def add(self, made_by: str, choice: Ints) -> tuple[float, float, float] | None:
        """Simulate plans and keep them, unless their generator is left out; shape ``(instances, plans)``.

        Returns:
            End in ms, effective energy in mJ and power after the end in W, of the first.
        """
        if made_by in self.without:
            return None
        table, graph, waiting = self.problem.table, self.problem.graph, self.problem.waiting
        time_ms, energy = table.times(choice), table.energy(choice)
        start = graph.earliest_start(time_ms)
        clock = choice if waiting.is_even else table.clock_mhz[table.row[:, None], choice]
        above_mj, after_w = waiting.of_all(start, time_ms, clock)
        each = _Simulated((start + time_ms).max(axis=0), energy + above_mj, after_w, choice.astype(np.int16))
        self._parts.append(each)
        self._made_by.extend([made_by] * choice.shape[1])
        return float(each.time_ms[0]), float(each.energy_mj[0]), float(after_w[0])

    def add_all(self, generated: Generated) -> None:
        """Simulate and keep groups of plans."""
        for made_by, choice in generated:
            self.add(made_by, choice)

    def best(self, deadlines: Floats | None, bound: LowerBound) -> tuple[FrequencyPlan, ...]:
        """Return the plans that are best for some deadline, of those given or of any.

        A plan is best for a deadline if it has the least energy until then of those that keep it. The plans
        are by strictly increasing time and strictly decreasing effective energy; where the blocking power
        depends on the clock, by time, and with them are those that are best for deadlines after all of them.
        """
        every, order = self._all(), self._best(deadlines)
        is_even = self.problem.waiting.is_even
        clocks = self.problem.clocks(every.choice[:, order].astype(np.int64))
        return tuple(
            FrequencyPlan(
                clock_mhz,
                time_ms := float(every.time_ms[i]),
                float(every.energy_mj[i]) + bound.waiting_w * time_ms,
                bound.at(time_ms),
                None if is_even else bound.waiting_w + float(every.after_w[i]),
                self._made_by[i],
            )
            for i, clock_mhz in zip(order.tolist(), clocks, strict=True)
        )

    def times_of_best(self, deadlines: Floats) -> Floats:
        """Return the times of the plans that are best for some of the deadlines."""
        return self._all().time_ms[self._best(deadlines)]

    def _best(self, deadlines: Floats | None) -> Ints:
        time, energy, after_w, _ = self._all()
        order = undominated(time, energy, after_w)
        if deadlines is None:
            return order
        these = time[order], energy[order], after_w[order]
        if self.problem.waiting.is_even:
            kept = np.searchsorted(these[0], deadlines * (1 + TIME_TOLERANCE), side="right") - 1
            return order[np.unique(kept)]
        until = best_until(deadlines * (1 + TIME_TOLERANCE), *these)
        later = best_after(max(float(deadlines[-1]), float(these[0][-1])), *these)
        found: Ints = order[np.unique(np.concatenate([until, later]))]
        return found

    def best_for(self, deadline_ms: float) -> tuple[Ints, float]:
        """Return the plan of least energy that keeps a deadline, and its effective energy until then.

        Args:
            deadline_ms: A deadline that some plan keeps.

        Returns:
            Modes, shape ``(instances,)``, and mJ.
        """
        time, energy, after_w, choice = self._all()
        until = energy + after_w * np.maximum(deadline_ms - time, 0.0)
        until = np.where(time <= deadline_ms * (1 + TIME_TOLERANCE), until, np.inf)
        best = int(until.argmin())
        return choice[:, best].astype(np.int64), float(until[best])

    def envelope(self) -> tuple[Floats, Ints]:
        """Return time and modes of the plans of which no two others, in turns, use less in the same time."""
        time, energy, _, choice = self._all()
        order = undominated(time, energy, np.zeros(len(time)))
        kept = order[lower_hull(time[order], energy[order])]
        return time[kept], choice[:, kept].astype(np.int64)

    def _all(self) -> _Simulated:
        if len(self._parts) > 1:
            time, energy, after, choice = zip(*self._parts, strict=True)
            joined = np.concatenate(time), np.concatenate(energy), np.concatenate(after)
            self._parts[:] = [_Simulated(*joined, choice=np.concatenate(choice, axis=1))]
        return self._parts[0]


def rounded(
    problem: ClockProblem, planned_ms: Floats, deadline_ms: Floats, *, is_seam: bool = False
) -> Generated:
    """Yield choices of modes that keep the deadlines, one for each way to round.

    Args:
        problem: Problem whose modes are chosen.
        planned_ms: Time of each instance for each deadline, with which the deadline is kept; shape
            ``(instances, deadlines)``.
        deadline_ms: Shape ``(deadlines,)``.
        is_seam: Whether nearly all planned times are those of modes, so that it suffices to take the slowest
            mode that is not slower than planned, and give back slack.
    """
    table, row = problem.table, problem.table.row[:, None]
    none = np.empty((0, 0), dtype=np.int64)

    def in_turn(time_ms: Floats, is_backward: bool, faster: Ints = none, slower: Ints = none) -> Ints:
        """Choose modes in the order of the graph, or backwards, leaving all others at least given times."""
        from schedsearch.energy.kernels import chosen_in_turn  # loads numba, which is slow

        graph, order = problem.graph, slice(None)
        if is_backward:  # in the graph of the iteration run backwards
            until = deadline_ms - graph.earliest_start(time_ms)[::-1]
            graph, order = graph.reversed, slice(None, None, -1)
        else:
            until = graph.latest_end(time_ms, deadline_ms)
        choice: Ints = chosen_in_turn(
            graph.first,
            graph.tail,
            graph.delay_ms[:, None],
            table.time_ms,
            table.row[order].copy(),
            np.ascontiguousarray(until + TOLERANCE * deadline_ms),
            np.ascontiguousarray(faster[order]),
            np.ascontiguousarray(slower[order]),
        )
        return choice[order]

    def reclaimed(choice: Ints, is_backward: bool) -> Ints:
        """Give every instance, first or last ones first, the slowest mode that its slack allows."""
        return in_turn(table.times(choice), is_backward)

    floor = table.slowest_within(planned_ms + TOLERANCE * deadline_ms)
    yield "floor", reclaimed(floor, True)
    if is_seam:
        yield "floor", reclaimed(floor, False)
        return
    neighbours = table.last_on_hull[row, floor], table.next_on_hull[row, floor]
    for name, is_backward in (("forward", False), ("backward", True)):
        choice = in_turn(planned_ms, is_backward, *neighbours)
        yield name, reclaimed(choice, True)
        yield name, reclaimed(choice, False)


def spliced(problem: ClockProblem, envelope: tuple[Floats, Ints], deadline_ms: Floats) -> Generated:
    """Yield plans for the deadlines that are each joined from the two best ones around it.

    Where neighbouring options of a block are far apart, the relaxed plan has times in between for every
    micro-batch, and rounding them loses much. Real plans on either side of the deadline do not: run the
    first part of one and the rest of the other. Let the faster plan run as early as it can, and the slower
    one as late as the deadline allows. With every event at the later of its two times, the waits of both
    plans are kept; likewise at the earlier of its two times, with the faster plan late and the slower one
    early. Either way nearly all instances keep a time of one of the plans, and only those that run at the
    seam are rounded.

    Args:
        problem: Problem whose modes are chosen.
        envelope: What to join, as of `PlanPool.envelope`.
        deadline_ms: None below the shortest of these plans; shape ``(deadlines,)``.
    """
    graph, table = problem.graph, problem.table
    time_ms, choice = envelope
    slower = np.minimum(np.searchsorted(time_ms, deadline_ms, side="right"), len(time_ms) - 1)
    faster = np.maximum(slower - 1, 0)
    fast_ms, slow_ms = table.times(choice[:, faster]), table.times(choice[:, slower])
    fast_start, slow_start = graph.earliest_start(fast_ms), graph.earliest_start(slow_ms)
    fast_end, slow_end = graph.latest_end(fast_ms, deadline_ms), graph.latest_end(slow_ms, deadline_ms)
    for planned_ms in (
        np.maximum(fast_start + fast_ms, slow_end) - np.maximum(fast_start, slow_end - slow_ms),
        np.minimum(slow_start + slow_ms, fast_end) - np.minimum(slow_start, fast_end - fast_ms),
    ):
        for _, joined in rounded(problem, planned_ms, deadline_ms, is_seam=True):
            yield "spliced", joined


YIELDING = 0.5
"""Share of their planned slowdown that the other devices give up for the one whose clocks are chosen.

They get it back, elsewhere, when the rest is planned anew. With none, cuts between the blocks of a
micro-batch would stay where the relaxed plan happened to put them.
"""

PAID = 0.7
"""Share of the shadow price of time that a device pays while it is chosen.

A device that paid nothing for time would take all it can, one that paid the full price would leave its
windows empty, since at that price the modes on either side of its planned time cost the same.
"""

MAX_LABELS = 64
"""Labels that are kept, evenly over time."""


def fixed(problem: ClockProblem, planned_ms: Floats, price_w: Floats, deadline_ms: float) -> Generated:
    """Yield plans for a deadline with the clocks of one device fixed: the others rounded from new times.

    Where one device is busy all the time, a neighbour has just as long for each micro-batch: it cannot save
    up what rounding leaves unused. Its clocks must then fit a row of windows in time as well as they can, and
    the devices further off can use what is left over, if they know of it before they are rounded. So we take
    the device that the relaxed plan slows down least, choose the best clocks for it within the windows that
    the others leave, solve the relaxed problem of the rest again, and round it. Devices before it, whose
    planned times are already modes' times, are fixed beside it.

    Args:
        problem: Problem whose modes are chosen.
        planned_ms: Time of each instance in the relaxed plan; shape ``(instances,)``.
        price_w: The shadow price of each instance's time in that plan: mJ per ms.
        deadline_ms: Deadline to be kept.
    """
    table = problem.table
    fastest = table.time_ms[table.row, 0]
    mode = np.full(problem.graph.size, -1)
    slowdown = [float((planned_ms - fastest)[order].sum()) for order in problem.orders]
    for device in np.argsort(slowdown, kind="stable"):
        members = problem.orders[device][mode[problem.orders[device]] < 0]
        yielding = np.where(mode >= 0, planned_ms, planned_ms - YIELDING * (planned_ms - fastest))
        yielding[members] = planned_ms[members]
        rows, windows = table.row[members], windows_of(problem, members, yielding, deadline_ms)
        paid_mj = PAID * price_w[members, None] * np.nan_to_num(table.time_ms[rows], posinf=0.0)
        best = best_within(windows, table.time_ms[rows], table.energy_mj[rows] + paid_mj)
        if best is None:
            return
        mode[members] = best
        chosen_ms = table.time_ms[rows, best]
        if not np.allclose(chosen_ms, planned_ms[members], rtol=0, atol=TOLERANCE * deadline_ms):
            break
    else:
        return
    with contextlib.suppress(SolverError):  # the other plans are all there are then
        timing = free_timing(problem.graph, problem.curves).fixed(mode)
        rest = min_energy(timing, deadline_ms * (1 + TOLERANCE))
        if rest is not None:
            for _, choice in rounded(problem, rest.planned_ms[:, None], np.array([deadline_ms])):
                yield "fixed", choice


class Windows(NamedTuple):
    """When the instances of one device may run, in the device's order.

    Attributes:
        release_ms: None starts before; shape ``(members,)``.
        due_ms: None ends later.
        gap_ms: Least time between the end of the one before and the start of each.
    """

    release_ms: Floats
    due_ms: Floats
    gap_ms: Floats


def windows_of(problem: ClockProblem, members: Ints, time_ms: Floats, latest_ms: float) -> Windows:
    """Return when the instances of a device may run if all others run as early as they can.

    A transfer between blocks of the device that are not neighbours keeps its place in time.

    Args:
        problem: Problem whose graph counts.
        members: Indices of the device's instances, in its order.
        time_ms: How long each instance runs; shape ``(instances,)``.
        latest_ms: End of the iteration.
    """
    graph = problem.graph
    start_ms = graph.earliest_start(time_ms[:, None])[:, 0]
    end_ms = start_ms + time_ms
    place = np.full(graph.size, -2)
    place[members] = np.arange(len(members))
    at_head, at_tail = place[graph.head], place[graph.tail]
    is_next = (at_head >= 0) & (at_head == at_tail + 1)
    release, due, gap = np.zeros(graph.size), np.full(graph.size, latest_ms), np.zeros(graph.size)
    np.maximum.at(gap, graph.head[is_next], graph.delay_ms[is_next])
    beyond = ~((at_head >= 0) & (at_tail >= 0)) | (~is_next & (graph.delay_ms > 0))
    entering, leaving = (at_head >= 0) & beyond, (at_tail >= 0) & beyond
    np.maximum.at(release, graph.head[entering], (end_ms[graph.tail] + graph.delay_ms)[entering])
    np.minimum.at(due, graph.tail[leaving], (start_ms[graph.head] - graph.delay_ms)[leaving])
    slip_ms = TOLERANCE * latest_ms
    return Windows(release[members] - slip_ms, due[members] + slip_ms, gap[members])


def best_within(windows: Windows, time_ms: Floats, cost_mj: Floats) -> Ints | None:
    """Return the modes of least cost with which a device keeps its windows, or None without any.

    Goes through the device's order and keeps the choices so far, called labels, that no other beats in both
    end and cost; of those that end at nearly the same time, only the first, so that there are at most
    `MAX_LABELS` (a label-setting program).

    Args:
        windows: Windows of the device.
        time_ms: Time of each member in each mode; infinite where it has fewer; shape ``(members, modes)``.
        cost_mj: Likewise.
    """
    end, cost = np.zeros(1), np.zeros(1)
    steps: list[tuple[Ints, Ints]] = []
    for k, (release, due, gap) in enumerate(zip(*windows, strict=True)):
        ends = np.maximum(end + gap, release)[:, None] + time_ms[k]
        label, mode = np.nonzero(ends <= due)
        if not len(label):
            return None
        ends, costs = ends[label, mode], cost[label] + cost_mj[k][mode]
        order = undominated(ends, costs, np.zeros(len(ends)))
        if len(order) > MAX_LABELS:
            first, last = ends[order[0]], ends[order[-1]]
            cell = ((ends[order] - first) * ((MAX_LABELS - 1) / (last - first))).astype(np.int64)
            order = order[np.unique(cell, return_index=True)[1]]
        end, cost = ends[order], costs[order]
        steps.append((label[order], mode[order]))
    best = int(cost.argmin())
    choice = np.empty(len(steps), dtype=np.int64)
    for k in range(len(steps) - 1, -1, -1):
        label, mode = steps[k]
        choice[k], best = mode[best], int(label[best])
    return choice
