"""Plans of real clocks with the time and energy that their simulation gives, and the best of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.bound import LowerBound
from schedsearch.energy.cost import lower_hull
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan
from schedsearch.energy.generators.rounding import Generated
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.waiting import best_after, best_until, undominated


@dataclass(frozen=True, eq=False)
class Envelope:
    """Plans of which no two others, in turns, use less in the same time.

    Attributes:
        time_ms: Time of each plan, ascending; shape ``(plans,)``.
        choice: Modes; shape ``(instances, plans)``.
    """

    time_ms: Floats
    choice: Ints


@dataclass(frozen=True, eq=False)
class _Group:
    """Plans that one generator made.

    Attributes:
        made_by: Name of the generator.
        time_ms: When each plan ends; shape ``(plans,)``.
        energy_mj: Effective energy until then.
        after_w: Power of all devices after the end, above the least blocking power.
        choice: Modes; shape ``(instances, plans)``.
    """

    made_by: str
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
        groups: The plans.
    """

    problem: ClockProblem
    without: Collection[str] = ()
    groups: list[_Group] = field(default_factory=list)

    def add(self, made_by: str, choice: Ints) -> None:
        """Simulate plans and keep them, unless their generator is left out; shape ``(instances, plans)``."""
        if made_by in self.without:
            return
        table, graph, waiting = self.problem.table, self.problem.graph, self.problem.waiting
        time_ms, energy = table.times(choice), table.energy(choice)
        after_w = np.zeros(len(energy))
        if waiting is None:
            time = graph.makespan(time_ms)
        else:
            start = graph.earliest_start(time_ms)
            time = (start + time_ms).max(axis=0)
            above_w = waiting.of_clocks(table.clock_mhz)[table.row[:, None], choice]
            above_mj, after_w = waiting.of_all(start, time_ms, above_w)
            energy = energy + above_mj
        self.groups.append(_Group(made_by, time, energy, after_w, choice.astype(np.int16)))

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
        time, energy, after_w, choice = self._all()
        order = self._best(deadlines)
        is_even = self.problem.waiting is None
        made_by = [group.made_by for group in self.groups for _ in group.time_ms]
        return tuple(
            FrequencyPlan(
                clock_mhz,
                float(time[i]),
                float(energy[i]) + bound.waiting_w * float(time[i]),
                bound.at(float(time[i])),
                None if is_even else bound.waiting_w + float(after_w[i]),
                made_by[i],
            )
            for i, clock_mhz in zip(
                order.tolist(), self.problem.clocks(choice[:, order].astype(np.int64)), strict=True
            )
        )

    def times_of_best(self, deadlines: Floats) -> Floats:
        """Return the times of the plans that are best for some of the deadlines."""
        time, _, _, _ = self._all()
        return time[self._best(deadlines)]

    def _best(self, deadlines: Floats | None) -> Ints:
        """Return the numbers of the plans of `best`, in its order."""
        time, energy, after_w, _ = self._all()
        order = undominated(time, energy, after_w)
        if deadlines is None:
            return order
        if self.problem.waiting is None:
            kept = np.searchsorted(time[order], deadlines * (1 + TIME_TOLERANCE), side="right") - 1
            return order[np.unique(kept)]
        these = time[order], energy[order], after_w[order]
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

    def envelope(self) -> Envelope:
        """Return the plans on the lower convex hull of time and effective energy."""
        time, energy, _, choice = self._all()
        order = undominated(time, energy, np.zeros(len(time)))
        kept = order[lower_hull(time[order], energy[order])]
        return Envelope(time[kept], choice[:, kept].astype(np.int64))

    def _all(self) -> tuple[Floats, Floats, Floats, NDArray[np.int16]]:
        return (
            np.concatenate([group.time_ms for group in self.groups]),
            np.concatenate([group.energy_mj for group in self.groups]),
            np.concatenate([group.after_w for group in self.groups]),
            np.concatenate([group.choice for group in self.groups], axis=1),
        )
