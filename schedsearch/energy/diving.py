"""Clocks chosen for one device at a time, while all that is still free is planned anew around them.

Where one device is busy all the time, a neighbor has just as long for each micro-batch: it cannot save up
what rounding leaves unused. Its clocks must then fit a row of windows in time as well as they can, and the
devices further off can use what is left over, if they know of it before they are rounded. So we begin at
the device that the relaxed plan slows down least, choose the best clocks for it within the windows that the
others leave, hold these, solve the relaxed problem of the rest again, and go on with the next device.

What time is worth to the others is the flow of the relaxed problem. A device that paid nothing for time
would take all it can, one that paid the full price would leave its windows empty, since at that price the
options on either side of its planned time cost the same. It pays a part of the price.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints
from schedsearch.energy.highs import SolverError
from schedsearch.energy.rounding import TOLERANCE, OptionTable, rounded
from schedsearch.energy.timing_program import free_timing, least_energy

SHARES_OF_SLACK = (0.5, 0.0, 1.0)
"""When the other devices run within their slack: in the middle, as early as they can, or as late."""

YIELDING = 0.5
"""Share of their planned slowdown that the free devices give up for the one whose clocks are chosen.

They get it back, elsewhere, when the rest is planned anew. With none, cuts between the blocks of a
micro-batch would stay where the relaxed plan happened to put them.
"""

PAID = 0.7
"""Share of the price of time that a device pays while it is chosen."""

_MOST_LABELS = 64
"""Partial choices kept along the order of a device."""

_MOST_SWEEPS = 4
"""Times that all devices are chosen again."""

_WORTHWHILE = 1e-5
"""Share of the energy that a sweep must save for another one."""


@dataclass(frozen=True, eq=False)
class Windows:
    """When the instances of one device may run, in the device's order.

    Attributes:
        members: Indices of the instances; shape ``(members,)``.
        release_ms: None starts before.
        due_ms: None ends later.
        gap_ms: Least time between the end of the one before and the start of each.
    """

    members: Ints
    release_ms: Floats
    due_ms: Floats
    gap_ms: Floats


def best_within(table: OptionTable, windows: Windows, price_w: Floats) -> Ints | None:
    """Return the options of least cost with which a device keeps its windows, or None without any.

    The cost is the energy and a price for time. Goes through the device's order and keeps the choices so far
    that no other beats in both end and cost; of those that end at nearly the same time, only the first, so
    that there are at most `_MOST_LABELS`.

    Args:
        table: Options of all instances.
        windows: Of the device.
        price_w: For each member the millijoules that it pays for a millisecond.
    """
    rows = table.row[windows.members]
    time_ms = table.time_ms[rows]
    with np.errstate(invalid="ignore"):
        cost_mj = np.where(np.isfinite(time_ms), table.energy_mj[rows] + price_w[:, None] * time_ms, np.inf)
    end, cost = np.zeros(1), np.zeros(1)
    steps: list[tuple[Ints, Ints]] = []
    limits = zip(windows.release_ms, windows.due_ms, windows.gap_ms, strict=True)
    for k, (release, due, gap) in enumerate(limits):
        ends = np.maximum(end + gap, release)[:, None] + time_ms[k]
        label, option = np.nonzero(ends <= due)
        if not len(label):
            return None
        ends, costs = ends[label, option], cost[label] + cost_mj[k][option]
        order = np.lexsort((costs, ends))
        least = np.minimum.accumulate(costs[order])
        order = order[costs[order] < np.concatenate([[np.inf], least[:-1]])]
        if len(order) > _MOST_LABELS:
            first, last = ends[order[0]], ends[order[-1]]
            cell = ((ends[order] - first) * ((_MOST_LABELS - 1) / (last - first))).astype(np.int64)
            order = order[np.unique(cell, return_index=True)[1]]
        end, cost = ends[order], costs[order]
        steps.append((label[order], option[order]))
    best = int(cost.argmin())
    choice = np.empty(len(steps), dtype=np.int64)
    for k in range(len(steps) - 1, -1, -1):
        label, option = steps[k]
        choice[k], best = option[best], int(label[best])
    return choice


class Dive:
    """Plans for one deadline, device by device."""

    def __init__(
        self,
        graph: InstanceGraph,
        table: OptionTable,
        curves: Mapping[str, CostCurve],
        device_orders: Sequence[Ints],
        deadline_ms: float,
    ) -> None:
        """Get ready.

        Args:
            graph: Who waits for whom.
            table: Options of the graph's instances.
            curves: Cost curve of each block.
            device_orders: For each device the indices of its instances, in its order.
            deadline_ms: Not below the shortest iteration.
        """
        self.graph, self.table, self.deadline_ms = graph, table, deadline_ms
        self.curves = [curves[name] for name, _ in graph.instances]
        self.orders = device_orders
        self.tolerance_ms = TOLERANCE * deadline_ms
        tail, head, delay = np.array(graph.edges, dtype=np.float64).reshape(-1, 3).T
        self.tail, self.head, self.delay_ms = tail.astype(np.int64), head.astype(np.int64), delay

    def planned(self, planned_ms: Floats, price_w: Floats, most_held: int) -> Iterator[Ints]:
        """Yield plans after each device whose clocks are held: the others rounded from their new times.

        Args:
            planned_ms: Time of each instance in the relaxed plan; shape ``(instances,)``.
            price_w: What a millisecond of each is worth in that plan, in millijoules.
            most_held: Devices that are held, beside those whose planned times are already clocks' times.

        Yields:
            Columns of `table`; shape ``(instances, plans)``.
        """
        table, deadline = self.table, np.array([self.deadline_ms])
        fastest = table.time_ms[table.row, 0]
        left = list(self.curves)
        held = np.zeros(self.graph.size, dtype=bool)
        slowdown = [float((planned_ms - fastest)[order].sum()) for order in self.orders]
        for device in np.argsort(slowdown, kind="stable"):
            members = self.orders[device][~held[self.orders[device]]]
            yielding = np.where(held, planned_ms, planned_ms - YIELDING * (planned_ms - fastest))
            yielding[members] = planned_ms[members]
            best = self._best(members, yielding, PAID * price_w[members])
            if best is None or most_held == 0:
                return
            held[members] = True
            for i, option in zip(members.tolist(), best.tolist(), strict=True):
                left[i] = _only(self.curves[i], option)
            chosen_ms = table.time_ms[table.row[members], best]
            if np.allclose(chosen_ms, planned_ms[members], rtol=0, atol=self.tolerance_ms):
                continue
            rest = None
            with contextlib.suppress(SolverError):  # the plans so far are all there are then
                rest = least_energy(free_timing(self.graph, left), self.deadline_ms * (1 + TOLERANCE))
            if rest is None:
                return
            most_held -= 1
            planned_ms = rest.planned_ms
            price_w = np.zeros(self.graph.size)
            np.add.at(price_w, self.tail, rest.edge_price)
            yield np.hstack(list(rounded(self.graph, table, planned_ms[:, None], deadline)))

    def refined(self, choice: Ints) -> Iterator[Ints]:
        """Yield plans after each of some sweeps: every device chosen again, and the whole rounded again.

        Args:
            choice: A plan that keeps the deadline; shape ``(instances,)``.

        Yields:
            Columns of `table`; shape ``(instances, plans)``.
        """
        table, deadline = self.table, np.array([self.deadline_ms])
        least = float(table.energy(choice[:, None])[0])
        for _ in range(_MOST_SWEEPS):
            for members in self.orders:
                choice = self._chosen_again(choice, members)
            around = np.hstack(
                [choice[:, None], *rounded(self.graph, table, table.times(choice[:, None]), deadline)]
            )
            yield around
            energy = table.energy(around)
            if energy.min() >= least * (1 - _WORTHWHILE):
                return
            least, choice = float(energy.min()), around[:, energy.argmin()]

    def _chosen_again(self, choice: Ints, members: Ints) -> Ints:
        """Return the plan with the best options of a device in it, within the windows of the others."""
        table, rows = self.table, self.table.row[members]
        best = self._best(members, table.times(choice[:, None])[:, 0], np.zeros(len(members)))
        if best is not None and (
            table.energy_mj[rows, best].sum() < table.energy_mj[rows, choice[members]].sum()
        ):
            choice = choice.copy()
            choice[members] = best
        return choice

    def _best(self, members: Ints, time_ms: Floats, price_w: Floats) -> Ints | None:
        """Return the best options of a device within the windows that other times leave, or None."""
        start = self.graph.earliest_start(time_ms[:, None])[:, 0]
        latest_end = self.graph.latest_end(time_ms[:, None], np.array([self.deadline_ms]))[:, 0]
        slack = latest_end - time_ms - start
        found = [
            best_within(self.table, self._windows(members, start + share * slack, time_ms), price_w)
            for share in SHARES_OF_SLACK
        ]
        rows = self.table.row[members]

        def cost(choice: Ints) -> float:
            spent = self.table.energy_mj[rows, choice] + price_w * self.table.time_ms[rows, choice]
            return float(spent.sum())

        return min((choice for choice in found if choice is not None), key=cost, default=None)

    def _windows(self, members: Ints, start: Floats, time_ms: Floats) -> Windows:
        """Return when the members may run if all others start at given times."""
        size, end = self.graph.size, start + time_ms
        place = np.full(size, -2)
        place[members] = np.arange(len(members))
        is_next = place[self.head] == place[self.tail] + 1
        gap = np.zeros(size)
        np.maximum.at(gap, self.head[is_next], self.delay_ms[is_next])
        # What the order of the device does not see to: transfers between its blocks, and all other devices.
        own_head, own_tail = place[self.head] >= 0, place[self.tail] >= 0
        beyond_order = ~(own_head & own_tail) | (~is_next & (self.delay_ms > 0))
        entering, leaving = own_head & beyond_order, own_tail & beyond_order
        release, due = np.zeros(size), np.full(size, self.deadline_ms)
        np.maximum.at(release, self.head[entering], (end[self.tail] + self.delay_ms)[entering])
        np.minimum.at(due, self.tail[leaving], (start[self.head] - self.delay_ms)[leaving])
        return Windows(
            members, release[members] - self.tolerance_ms, due[members] + self.tolerance_ms, gap[members]
        )


def _only(curve: CostCurve, option: int) -> CostCurve:
    """Return the curve with a single option left."""
    kept = slice(option, option + 1)
    return CostCurve(curve.clock_mhz[kept], curve.time_ms[kept], curve.energy_mj[kept])
