"""Plans of real clocks with the time and energy that their simulation gives, and the best of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.bound import LowerBound
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan
from schedsearch.energy.graph import Floats, InstanceGraph, Ints
from schedsearch.energy.rounding import OptionTable


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

    def best(self, deadlines: Floats | None, bound: LowerBound) -> tuple[FrequencyPlan, ...]:
        """Return the plans that are best for some deadline, of those given or of any.

        A plan is best for a deadline if it has the least energy of those that keep it. The plans are by
        strictly increasing time and strictly decreasing effective energy.
        """
        time, energy = (np.concatenate([group[i] for group in self.found]) for i in range(2))
        choice = np.concatenate([group[2] for group in self.found], axis=1)
        order = np.lexsort((energy, time))
        least = np.minimum.accumulate(energy[order])
        order = order[energy[order] < np.concatenate([[np.inf], least[:-1]])]
        if deadlines is not None:
            kept = np.searchsorted(time[order], deadlines * (1 + TIME_TOLERANCE), side="right") - 1
            order = order[np.unique(kept)]
        return tuple(
            FrequencyPlan(
                clocks_by_block(self.graph, self.table.clock_mhz[self.table.row, choice[:, i]]),
                float(time[i]),
                float(energy[i]) + bound.waiting_w * float(time[i]),
                bound.at(float(time[i])),
            )
            for i in order.tolist()
        )


def clocks_by_block(graph: InstanceGraph, clock_mhz: Ints) -> dict[str, tuple[int, ...]]:
    """Return a clock of each instance as the clocks of each block, by micro-batch."""
    by_block: dict[str, dict[int, int]] = {}
    for (name, n), mhz in zip(graph.instances, clock_mhz.tolist(), strict=True):
        by_block.setdefault(name, {})[n] = mhz
    return {name: tuple(clocks[n] for n in sorted(clocks)) for name, clocks in by_block.items()}
