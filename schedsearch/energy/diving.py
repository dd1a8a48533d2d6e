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

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints
from schedsearch.energy.highs import SolverError
from schedsearch.energy.rounding import TOLERANCE, OptionTable, rounded
from schedsearch.energy.timing_program import free_timing, least_energy
from schedsearch.energy.windows import SHARES_OF_SLACK, best_within, windows_of

YIELDING = 0.5
"""Share of their planned slowdown that the free devices give up for the one whose clocks are chosen.

They get it back, elsewhere, when the rest is planned anew. With none, cuts between the blocks of a
micro-batch would stay where the relaxed plan happened to put them.
"""

PAID = 0.7
"""Share of the price of time that a device pays while it is chosen."""

_MOST_SWEEPS = 4
"""Times that all devices are chosen again."""

_WORTHWHILE = 1e-5
"""Share of the energy that a sweep must save for another one."""


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
        self.waits = graph.edge_arrays

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
                left[i] = self.curves[i].only(option)
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
            np.add.at(price_w, self.waits[0], rest.edge_price)
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
        rows = self.table.row[members]
        option_ms = self.table.time_ms[rows]
        with np.errstate(invalid="ignore"):
            cost_mj = self.table.energy_mj[rows] + price_w[:, None] * option_ms
        cost_mj = np.where(np.isfinite(option_ms), cost_mj, np.inf)
        found = []
        for share in SHARES_OF_SLACK:
            begin = start + share * slack
            windows = windows_of(members, begin, begin + time_ms, self.deadline_ms, self.waits)
            found.append(best_within(windows, option_ms, cost_mj))
        each = np.arange(len(members))
        return min(
            (choice for choice in found if choice is not None),
            key=lambda choice: float(cost_mj[each, choice].sum()),
            default=None,
        )
