"""Plans of real clocks with the time and energy that their simulation gives, and the best of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.bound import LowerBound
from schedsearch.energy.cost import lower_hull
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan
from schedsearch.energy.graph import Floats, InstanceGraph, Ints
from schedsearch.energy.rounding import OptionTable


@dataclass(frozen=True, eq=False)
class Envelope:
    """Plans of which no two others, in turns, use less in the same time.

    Attributes:
        time_ms: Of each plan, ascending; shape ``(plans,)``.
        choice: Columns of the table of options; shape ``(instances, plans)``.
    """

    time_ms: Floats
    choice: Ints


@dataclass(frozen=True, eq=False)
class Candidates:
    """Every plan that was made for a schedule, with the time and effective energy that its simulation gives.

    Attributes:
        graph: Who waits for whom.
        table: Options of the graph's instances.
        found: Time, effective energy and choices of groups of plans.
    """

    graph: InstanceGraph
    table: OptionTable
    found: list[tuple[Floats, Floats, NDArray[np.int16]]] = field(default_factory=list)

    def add(self, choice: Ints) -> None:
        """Simulate plans and keep them; shape ``(instances, plans)``."""
        time = self.graph.makespan(self.table.times(choice))
        self.found.append((time, self.table.energy(choice), choice.astype(np.int16)))

    def add_all(self, choices: Iterable[Ints]) -> None:
        """Simulate and keep groups of plans."""
        for choice in choices:
            self.add(choice)

    def best(self, deadlines: Floats | None, bound: LowerBound) -> tuple[FrequencyPlan, ...]:
        """Return the plans that are best for some deadline, of those given or of any.

        A plan is best for a deadline if it has the least energy of those that keep it. The plans are by
        strictly increasing time and strictly decreasing effective energy.
        """
        time, energy, choice = self._all()
        order = _pareto(time, energy)
        if deadlines is not None:
            kept = np.searchsorted(time[order], deadlines * (1 + TIME_TOLERANCE), side="right") - 1
            order = order[np.unique(kept)]
        clocks = clocks_by_block(self.graph, self.table.clock_mhz[self.table.row[:, None], choice[:, order]])
        return tuple(
            FrequencyPlan(
                clock_mhz,
                float(time[i]),
                float(energy[i]) + bound.waiting_w * float(time[i]),
                bound.at(float(time[i])),
            )
            for i, clock_mhz in zip(order.tolist(), clocks, strict=True)
        )

    def best_choice(self, deadline_ms: float) -> Ints:
        """Return the plan of least energy that keeps a deadline that some plan keeps; ``(instances,)``."""
        time, energy, choice = self._all()
        best = np.where(time <= deadline_ms * (1 + TIME_TOLERANCE), energy, np.inf).argmin()
        return choice[:, best].astype(np.int64)

    def envelope(self) -> Envelope:
        """Return the plans on the lower convex hull of time and effective energy."""
        time, energy, choice = self._all()
        order = _pareto(time, energy)
        kept = order[lower_hull(time[order], energy[order])]
        return Envelope(time[kept], choice[:, kept].astype(np.int64))

    def _all(self) -> tuple[Floats, Floats, NDArray[np.int16]]:
        time, energy = (np.concatenate([group[i] for group in self.found]) for i in range(2))
        return time, energy, np.concatenate([group[2] for group in self.found], axis=1)


def _pareto(time: Floats, energy: Floats) -> Ints:
    """Return the indices of the plans that no other beats in both, by increasing time."""
    order = np.lexsort((energy, time))
    least = np.minimum.accumulate(energy[order])
    return order[energy[order] < np.concatenate([[np.inf], least[:-1]])]


def clocks_by_block(graph: InstanceGraph, clock_mhz: Ints) -> list[dict[str, tuple[int, ...]]]:
    """Return for each plan the clocks of each block, by micro-batch.

    Args:
        graph: Whose instances the clocks are of.
        clock_mhz: Shape ``(instances, plans)``.
    """
    members: dict[str, list[tuple[int, int]]] = {}
    for i, (name, n) in enumerate(graph.instances):
        members.setdefault(name, []).append((n, i))
    rows = {name: clock_mhz[[i for _, i in sorted(pairs)]].T.tolist() for name, pairs in members.items()}
    return [{name: tuple(rows[name][plan]) for name in rows} for plan in range(clock_mhz.shape[1])]
