"""Generators of plans with real clocks, and the pool of plans that keeps the best.

- `PlanPool`: all plans that were made, simulated, and the best of them.
- `rounded`: from relaxed times to modes, for many deadlines at once (Perseus, Sec. 4.3). Perseus gives each
  instance its slowest clock that is not slower than planned. The time left unused is lost on the critical
  path, so we also round in the order of the graph and hand the rest on to whoever comes next, forward or
  backward, and at the end let every instance use the slack it finds. Which of these is best differs from
  deadline to deadline, so all are made.
- `spliced`: two good plans joined in time, to plan for the deadlines between theirs.
- `fixed`: one device's clocks fixed, the rest relaxed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.cost import lower_hull, undominated
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, LowerBound
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.problem import ClockProblem, ModeTable
from schedsearch.energy.programs import free_timing, min_energy
from schedsearch.energy.relaxation import RelaxedPlan

TOLERANCE = 1e-10
"""Share of the deadline by which rounding errors may make an instance late."""


@dataclass(frozen=True, eq=False)
class PlanPool:
    """Every plan that was made for a problem, with its simulated time and energy.

    The figures of each plan are its end in ms, its effective energy until then in mJ, and the power of all
    devices after the end in W, above the least blocking power; shape ``(3, plans)``.
    """

    problem: ClockProblem
    _figures: list[Floats] = field(default_factory=list)
    _choices: list[NDArray[np.int16]] = field(default_factory=list)

    def add(self, *choices: Ints) -> None:
        """Simulate plans and keep them; shape ``(instances, plans)`` each."""
        table, graph, waiting = self.problem.table, self.problem.graph, self.problem.waiting
        for choice in choices:
            time_ms, energy_mj = table.times(choice), table.energy(choice)
            start = graph.earliest_start(time_ms)
            clock = choice if waiting.is_even else table.clock_mhz[table.row[:, None], choice]
            above_mj, after_w = waiting.of_all(start, time_ms, clock)
            end_ms = (start + time_ms).max(axis=0)
            self._figures.append(np.array([end_ms, energy_mj + above_mj, after_w]))
            self._choices.append(choice.astype(np.int16))

    def best(self, deadlines: Floats | None, bound: LowerBound) -> tuple[FrequencyPlan, ...]:
        """Return the plans that are best for one of the given deadlines, or, without these, for any deadline.

        A plan is best for a deadline if no other plan that keeps it uses less energy until then. The plans
        are by strictly increasing time and strictly decreasing effective energy; where the blocking power
        depends on the clock, by time, and of them are all that no other beats at every deadline.
        """
        (time, energy, after_w), choice = self._all()
        is_even, order = self.problem.waiting.is_even, undominated(time, energy, after_w)
        if deadlines is not None and is_even:
            until_ms = deadlines * (1 + TIME_TOLERANCE)
            order = order[np.unique(np.searchsorted(time[order], until_ms, side="right") - 1)]
        clocks = self.problem.clocks(choice[:, order].astype(np.int64))
        return tuple(
            FrequencyPlan(
                clock_mhz,
                time_ms := float(time[i]),
                float(energy[i]) + bound.waiting_w * time_ms,
                bound.at(time_ms),
                None if is_even else bound.waiting_w + float(after_w[i]),
            )
            for i, clock_mhz in zip(order.tolist(), clocks, strict=True)
        )

    def best_for(self, deadline_ms: float) -> tuple[Ints, float]:
        """Return modes and effective energy until the deadline of the best plan that keeps this deadline."""
        (time, energy, after_w), choice = self._all()
        until = energy + after_w * np.maximum(deadline_ms - time, 0.0)
        until = np.where(time <= deadline_ms * (1 + TIME_TOLERANCE), until, np.inf)
        best = int(until.argmin())
        return choice[:, best].astype(np.int64), float(until[best])

    def envelope(self) -> tuple[Floats, Ints]:
        """Return time and modes of the plans on the lower convex hull of time and effective energy."""
        (time, energy, _), choice = self._all()
        order = undominated(time, energy)
        kept = order[lower_hull(time[order], energy[order])]
        return time[kept], choice[:, kept].astype(np.int64)

    def _all(self) -> tuple[Floats, NDArray[np.int16]]:
        """Return the figures and modes of all plans; the modes have the shape ``(instances, plans)``."""
        if len(self._choices) > 1:
            self._figures[:], self._choices[:] = [np.hstack(self._figures)], [np.hstack(self._choices)]
        return self._figures[0], self._choices[0]


def rounded(
    problem: ClockProblem, planned_ms: Floats, deadline_ms: Floats, *, is_seam: bool = False
) -> Iterator[Ints]:
    """Yield choices of modes that keep the deadlines, shape ``(instances, deadlines)``, one a way to round.

    Args:
        problem: Problem whose modes are chosen.
        planned_ms: Times with which the deadlines are kept; in that shape.
        deadline_ms: Shape ``(deadlines,)``.
        is_seam: Whether nearly all planned times are times of modes, so that it suffices to take the slowest
            mode that is not slower than planned, and give back slack.
    """
    from schedsearch.energy.kernels import chosen_in_turn  # loads numba, which is slow

    table, hulls, graph = problem.table, problem.hulls, problem.graph

    def in_turn(modes: ModeTable, time_ms: Floats, most: Ints, is_backward: bool) -> Ints:
        """Choose modes in the order of the graph, or backwards, leaving all others at least given times."""
        of, order = (graph.reversed, slice(None, None, -1)) if is_backward else (graph, slice(None))
        until = of.latest_end(time_ms[order], deadline_ms) + TOLERANCE * deadline_ms
        arcs = of.first, of.tail, of.delay_ms, modes.time_ms, modes.row[order].copy()
        choice: Ints = chosen_in_turn(*arcs, until, most[order].copy())
        return choice[order]

    def reclaimed(time_ms: Floats, is_backward: bool) -> Ints:
        """Give every instance, first or last ones first, the slowest mode that its slack allows."""
        last = np.repeat(table.last[:, None], len(deadline_ms), axis=1)
        return in_turn(table, time_ms, last, is_backward)

    allowed_ms = planned_ms + TOLERANCE * deadline_ms
    floor_ms = table.times(table.slowest_within(allowed_ms))
    yield reclaimed(floor_ms, True)
    if is_seam:
        yield reclaimed(floor_ms, False)
        return
    # on the hull each takes the mode before or after its planned time, with what others leave unused
    most = np.minimum(hulls.slowest_within(allowed_ms) + 1, hulls.last[:, None])
    for is_backward in (False, True):
        time_ms = hulls.times(in_turn(hulls, planned_ms, most, is_backward))
        yield reclaimed(time_ms, True)
        yield reclaimed(time_ms, False)


def spliced(problem: ClockProblem, envelope: tuple[Floats, Ints], deadline_ms: Floats) -> Iterator[Ints]:
    """Yield plans for the deadlines, each joined from the next faster and next slower plan of an envelope.

    Where neighbouring options of a block are far apart, the relaxed plan has times in between for every
    micro-batch, and rounding them loses much. Real plans on either side of the deadline do not: run the first
    part of one and the rest of the other. Let the faster plan run as early as it can, and the slower one as
    late as the deadline allows. With every event at the later of its two times, the waits of both plans are
    kept; likewise at the earlier of its two times, with the faster plan late and the slower one early. Either
    way nearly all instances keep a time of one of the plans, and only those that run at the seam are rounded.

    `envelope` is as of `PlanPool.envelope`; no deadline, shape ``(deadlines,)``, is below the shortest plan's
    time.
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
        yield from rounded(problem, planned_ms, deadline_ms, is_seam=True)


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
"""Labels that are kept, evenly among all."""


def fixed(problem: ClockProblem, relaxed: RelaxedPlan) -> Iterator[Ints]:
    """Yield plans with the clocks of one device fixed, for a relaxed plan's deadline: others rounded anew.

    Where one device is busy all the time, a neighbour has just as long for each micro-batch: it cannot save
    up what rounding leaves unused. Its clocks must then fit a row of windows in time as well as they can, and
    the devices further off can use what is left over, if they know of it before they are rounded. So we take
    the device that the relaxed plan slows down least, of those whose planned times are not modes' times
    already, choose the best clocks for it within the windows that the others leave, solve the relaxed problem
    of the rest again, and round it.
    """
    deadline_ms, planned_ms = relaxed.time_ms, relaxed.planned_ms
    table, slip_ms = problem.table, TOLERANCE * deadline_ms
    floor = table.slowest_within(planned_ms[:, None] + slip_ms)
    is_open = planned_ms - table.times(floor)[:, 0] > slip_ms
    slowdown = planned_ms - table.time_ms[table.row, 0]
    open_orders = [order for order in problem.waiting.orders if is_open[order].any()]
    if not open_orders:
        return
    members = min(open_orders, key=lambda order: float(slowdown[order].sum()))
    time_ms = planned_ms - YIELDING * slowdown
    time_ms[members] = planned_ms[members]
    rows = table.row[members]
    paid_mj = PAID * relaxed.price_w[members, None] * np.nan_to_num(table.time_ms[rows], posinf=0.0)
    windows = windows_of(problem, members, time_ms, deadline_ms)
    best = best_within(*windows, table.time_ms[rows], table.energy_mj[rows] + paid_mj)
    if best is None:
        return
    mode = np.full(problem.graph.size, -1)
    mode[members] = best
    timing = free_timing(problem.graph, problem.curves).fixed(mode)
    rest = min_energy(timing, deadline_ms * (1 + TOLERANCE))
    if rest is not None:  # otherwise the other plans are all there are
        yield from rounded(problem, rest.planned_ms[:, None], np.array([deadline_ms]))


def windows_of(
    problem: ClockProblem, members: Ints, time_ms: Floats, latest_ms: float
) -> tuple[Floats, Floats]:
    """Return when the instances of a device may start and must end if all others run as early as they can.

    A transfer between blocks of the device keeps its place in time. The members are indices of the device's
    instances, in its order; `time_ms` has the shape ``(instances,)``, and the iteration ends at `latest_ms`.
    """
    graph = problem.graph
    start_ms = graph.earliest_start(time_ms[:, None])[:, 0]
    is_member = np.zeros(graph.size, dtype=bool)
    is_member[members] = True
    is_between = ~(is_member[graph.tail] & is_member[graph.head]) | (graph.delay_ms > 0)
    tail, head, delay_ms = graph.tail[is_between], graph.head[is_between], graph.delay_ms[is_between]
    release, due = np.zeros(graph.size), np.full(graph.size, latest_ms)
    np.maximum.at(release, head, (start_ms + time_ms)[tail] + delay_ms)
    np.minimum.at(due, tail, start_ms[head] - delay_ms)
    slip_ms = TOLERANCE * latest_ms
    return release[members] - slip_ms, due[members] + slip_ms


def best_within(release_ms: Floats, due_ms: Floats, time_ms: Floats, cost_mj: Floats) -> Ints | None:
    """Return the modes of least cost with which a device keeps its windows, or None if no modes do.

    Goes through the device's order and keeps the choices so far, called labels, that no other beats in both
    end and cost; of more than `MAX_LABELS`, this number of them (a label-setting program).

    Args:
        release_ms: None of the device's instances, in its order, starts before; shape ``(members,)``.
        due_ms: None ends later.
        time_ms: Time of each member in each mode; infinite where it has fewer; shape ``(members, modes)``.
        cost_mj: Likewise.
    """
    end, cost = np.zeros(1), np.zeros(1)
    steps: list[tuple[Ints, Ints]] = []
    for release, due, times, costs in zip(release_ms, due_ms, time_ms, cost_mj, strict=True):
        ends = np.maximum(end, release)[:, None] + times
        label, mode = np.nonzero(ends <= due)
        if not len(label):
            return None
        ends, sums = ends[label, mode], cost[label] + costs[mode]
        order = undominated(ends, sums)
        order = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), MAX_LABELS)).astype(np.int64))]
        end, cost = ends[order], sums[order]
        steps.append((label[order], mode[order]))
    best, choice = int(cost.argmin()), []
    for label, mode in reversed(steps):
        choice.append(int(mode[best]))
        best = int(label[best])
    return np.array(choice[::-1])
