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
from schedsearch.energy.waiting import Waiting, best_after, best_until, undominated


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
        waiting: Of the schedule, where the blocking power depends on the clock.
        found: Time, effective energy, what is drawn above the least after the end, and choices of groups of
            plans.
    """

    graph: InstanceGraph
    table: OptionTable
    waiting: Waiting | None = None
    found: list[tuple[Floats, Floats, Floats, NDArray[np.int16]]] = field(default_factory=list)

    def add(self, choice: Ints) -> None:
        """Simulate plans and keep them; shape ``(instances, plans)``."""
        time_ms, energy = self.table.times(choice), self.table.energy(choice)
        after_w = np.zeros(len(energy))
        if self.waiting is None:
            time = self.graph.makespan(time_ms)
        else:
            start = self.graph.earliest_start(time_ms)
            time = (start + time_ms).max(axis=0)
            above_w = self.waiting.of_clocks(self.table.clock_mhz)[self.table.row[:, None], choice]
            above_mj, after_w = self.waiting.of_all(start, time_ms, above_w)
            energy = energy + above_mj
        self.found.append((time, energy, after_w, choice.astype(np.int16)))

    def add_all(self, choices: Iterable[Ints]) -> None:
        """Simulate and keep groups of plans."""
        for choice in choices:
            self.add(choice)

    def best(self, deadlines: Floats | None, bound: LowerBound) -> tuple[FrequencyPlan, ...]:
        """Return the plans that are best for some deadline, of those given or of any.

        A plan is best for a deadline if it has the least energy until then of those that keep it. The plans
        are by strictly increasing time and strictly decreasing effective energy; where the blocking power
        depends on the clock, by time, and with them are those that are best for deadlines after all of them.
        """
        time, energy, after_w, choice = self._all()
        order = undominated(time, energy, after_w)
        if deadlines is not None and self.waiting is None:
            kept = np.searchsorted(time[order], deadlines * (1 + TIME_TOLERANCE), side="right") - 1
            order = order[np.unique(kept)]
        elif deadlines is not None:
            these = time[order], energy[order], after_w[order]
            until = best_until(deadlines * (1 + TIME_TOLERANCE), *these)
            later = best_after(max(float(deadlines[-1]), float(these[0][-1])), *these)
            order = order[np.unique(np.concatenate([until, later]))]
        clocks = clocks_by_block(self.graph, self.table.clock_mhz[self.table.row[:, None], choice[:, order]])
        return tuple(
            FrequencyPlan(
                clock_mhz,
                float(time[i]),
                float(energy[i]) + bound.waiting_w * float(time[i]),
                bound.at(float(time[i])),
                None if self.waiting is None else bound.waiting_w + float(after_w[i]),
            )
            for i, clock_mhz in zip(order.tolist(), clocks, strict=True)
        )

    def best_choice(self, deadline_ms: float) -> Ints:
        """Return the plan of least energy that keeps a deadline that some plan keeps; ``(instances,)``."""
        time, energy, after_w, choice = self._all()
        until = energy + after_w * np.maximum(deadline_ms - time, 0.0)
        best = np.where(time <= deadline_ms * (1 + TIME_TOLERANCE), until, np.inf).argmin()
        return choice[:, best].astype(np.int64)

    def envelope(self) -> Envelope:
        """Return the plans on the lower convex hull of time and effective energy."""
        time, energy, _, choice = self._all()
        order = undominated(time, energy, np.zeros(len(time)))
        kept = order[lower_hull(time[order], energy[order])]
        return Envelope(time[kept], choice[:, kept].astype(np.int64))

    def _all(self) -> tuple[Floats, Floats, Floats, NDArray[np.int16]]:
        time, energy, after_w = (np.concatenate([group[i] for group in self.found]) for i in range(3))
        return time, energy, after_w, np.concatenate([group[3] for group in self.found], axis=1)


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
