"""Results of the steps of a frontier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from experiments.report.html_report import Fact
from experiments.search.profile_reading import CostSource
from placements import Profile
from schedsearch.energy import ClockedIteration, FrequencyPlan, Frontier, PeriodicPlan
from schedsearch.energy.frontier import TIME_TOLERANCE, clocks_to_dict

CONSTRAINED_PLANS_SCHEMA_VERSION = 1
"""Version of the forms of ``periodic.json``, ``switched.json``, ``periodic_switched.json`` and
``capped.json``."""

_SHOWN_SHARE = 5e-4
"""From which on it is said how much more time than the highest clocks a plan is given."""


class ConstrainedPlan(NamedTuple):
    """A plan under limits that was asked for.

    Attributes:
        name: Name of its file, without ``.json``.
        title: Its limits in a few words.
        plan: Clocks, time and energy.
        note: How it stands to the plan without limits.
        data: Content of the file besides the plan.
    """

    name: str
    title: str
    plan: FrequencyPlan
    note: str
    data: Mapping[str, Any]

    @property
    def fact(self) -> Fact:
        """Time and energy, for the report and the log."""
        return Fact(self.title, time_and_energy(self.plan), self.note)

    def to_dict(self, costs: CostSource) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "schema_version": CONSTRAINED_PLANS_SCHEMA_VERSION,
            **self.data,
            "plan": {
                "time_ms": self.plan.time_ms,
                "energy_mj": self.plan.energy_mj,
                **clocks_to_dict(self.plan.clock_mhz),
            },
            **costs.to_dict(),
        }


def time_and_energy(plan: FrequencyPlan) -> str:
    """Return time and energy of an iteration in words."""
    return f"{plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J"


@dataclass(frozen=True)
class EnergyResult:
    """Result of the energy step.

    Attributes:
        profile: Profile of every block of the placement.
        costs: Where it comes from.
        frontier: Frontier of the schedule.
        deadline_ms: Deadline that was asked for.
        plan: The point of the frontier for the deadline.
        simulation: When each block of the plan starts.
        baselines: Plans of each baseline by name, by increasing time.
        constrained: The plans for a real job that were asked for.
        periodic: The plan whose clocks repeat, and change seldom if that was asked for too; if it was asked
            for, the scripts are of it.
        switched: The plan whose clocks change seldom, if it was asked for; then the scripts are of it,
            unless there is a periodic one.
        method: How the frontier was made, in words.
    """

    profile: Profile
    costs: CostSource
    frontier: Frontier
    deadline_ms: float
    plan: FrequencyPlan
    simulation: ClockedIteration
    baselines: Mapping[str, tuple[FrequencyPlan, ...]] = field(default_factory=dict)
    constrained: tuple[ConstrainedPlan, ...] = ()
    periodic: PeriodicPlan | None = None
    switched: FrequencyPlan | None = None
    method: str = ""

    @property
    def figures(self) -> dict[str, float | str]:
        """The figures that stand for it in a table of runs; the energy counts the wait until the deadline."""
        energy_mj = self.frontier.energy_next_to(self.plan, self.deadline_ms)
        training = self.frontier.training_figures(self.plan).known
        figures = {"deadline_ms": self.deadline_ms, "time_ms": self.plan.time_ms, "energy_j": energy_mj / 1e3}
        return {**figures, **training}

    @property
    def training_lines(self) -> list[str]:
        """Training figures of the plan and of all clocks at maximum, a line each; empty if not known."""
        plans = {"chosen plan": self.plan, "all clocks at maximum": self.frontier.all_maximum}
        figures = {name: self.frontier.training_figures(plan) for name, plan in plans.items()}
        return [f"{name}: {training}" for name, training in figures.items() if training.known]

    def compared_until_ms(self, plan: FrequencyPlan) -> float:
        """Return the end of the comparison of a plan with all clocks at maximum, in ms.

        It is the deadline, or the end of the slower of the two if that is later.
        """
        return max(self.deadline_ms, plan.time_ms, self.frontier.all_maximum.time_ms)

    def saved(self, plan: FrequencyPlan) -> str:
        """Return the share of energy that a plan saves against all clocks at maximum, in words.

        The first share is until the same end for both, waiting included. The second is without the waiting
        of either. An end that is not that of the chosen plan is named.
        """
        saving = self.frontier.saving(plan, self.deadline_ms)
        until_ms = self.compared_until_ms(plan)
        until = f" until {until_ms:.6g} ms" if until_ms != self.compared_until_ms(self.plan) else ""
        return f"{saving:.2%} saved{until} ({self.saved_joules(plan)})"

    def saved_joules(self, plan: FrequencyPlan) -> str:
        """Return the share that a plan saves without the wait of either, in words."""
        return f"{1 - plan.energy_mj / self.frontier.all_maximum.energy_mj:.2%} without waiting"

    def baseline_in_words(self, plan: FrequencyPlan) -> str:
        """Return in words the baseline of a saving, until when, and whether its costs are placeholders."""
        until_ms = self.compared_until_ms(plan)
        more = until_ms / self.frontier.all_maximum.time_ms - 1
        return (
            f"all clocks at maximum, then waiting until {until_ms:.6g} ms"
            f"{f' ({more:.1%} later)' if more >= _SHOWN_SHARE else ''}"
            f"{'; costs are placeholders' if self.costs.placeholder else ''}"
        )

    def keeps_deadline(self, plan: FrequencyPlan) -> bool:
        """Tell whether a plan ends by the deadline, but for rounding."""
        return plan.time_ms <= self.deadline_ms * (1 + TIME_TOLERANCE)

    def baseline_plan(self, name: str) -> FrequencyPlan:
        """Return a baseline's plan of least energy until the deadline; its fastest where all are late."""
        plans = self.baselines[name]
        kept = [plan for plan in plans if self.keeps_deadline(plan)] or plans[:1]
        if kept[-1].waiting_w is None:
            return kept[-1]
        return min(kept, key=lambda plan: self.frontier.energy_next_to(plan, self.deadline_ms))
