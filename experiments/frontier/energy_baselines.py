"""The baselines beside a frontier: chosen by option, and written as JSON, CSV and in a line each."""

from __future__ import annotations

import math
from collections.abc import Iterator

from experiments.config.options import require_known
from experiments.frontier.options import EnergyOptions
from experiments.frontier.results import EnergyResult
from placements.forms.texts import csv_text
from schedsearch.energy import FrequencyPlan, changes_per_iteration, num_clock_changes
from schedsearch.energy.baselines import BASELINES
from schedsearch.energy.frontier import clocks_to_dict
from schedsearch.schedule import Schedule

BASELINES_SCHEMA_VERSION = 1
"""Version of the form of ``baselines.json``."""

TITLES = {
    "all_maximum": "All clocks at maximum",
    "envpipe": "EnvPipe",
    "zeus_global": "ZeusGlobal",
    "zeus_per_stage": "ZeusPerStage",
    "perseus": "Perseus",
}
"""What people call each baseline."""

COLUMNS = (
    "name",
    "time_ms",
    "energy_mj",
    "saving",
    "gap",
    "clock_changes",
    "changes_per_iteration",
    "saving_until_ms",
)
"""Columns of ``baselines.csv``."""


def check_baselines(options: EnergyOptions) -> None:
    """Reject wrong names of baselines."""
    for name in options.baselines:
        require_known("energy.baselines", name, BASELINES)


def baselines_to_dict(schedule: Schedule, tuned: EnergyResult) -> dict[str, object]:
    """Return the plans of all baselines as plain data; a ``gap`` is null if no lower bound is above 0."""
    return {
        "schema_version": BASELINES_SCHEMA_VERSION,
        "deadline_ms": tuned.deadline_ms,
        **tuned.costs.to_dict(),
        "plans": [
            {
                **dict(zip(COLUMNS, row, strict=True)),
                "saving_against": tuned.baseline_in_words(plan),
                "lower_bound_mj": plan.lower_bound_mj,
                **clocks_to_dict(plan.clock_mhz),
            }
            for row, plan in _rows(schedule, tuned)
        ],
    }


def baselines_to_csv(schedule: Schedule, tuned: EnergyResult) -> str:
    """Return a row for each plan of each baseline; a ``gap`` is empty if no lower bound is above 0."""
    return csv_text(COLUMNS, (row for row, _ in _rows(schedule, tuned)))


def describe_baselines(schedule: Schedule, tuned: EnergyResult) -> list[str]:
    """Return two lines for each baseline: its best plan for the deadline, else its fastest."""
    return [
        f"{title:<14}  {value}\n{note:>{16 + len(note)}}"
        for title, value, note in baseline_facts(schedule, tuned)
    ]


def baseline_facts(schedule: Schedule, tuned: EnergyResult) -> Iterator[tuple[str, str, str]]:
    """Yield each baseline's title, its best plan for the deadline, and the saving."""
    for name, plans in tuned.baselines.items():
        plan, is_late = tuned.baseline_plan(name)
        note = (
            f"{tuned.saved(plan)}, {plan.gap:.2%} above the lower bound, "
            f"{sum(num_clock_changes(schedule, plan.clock_mhz))} clock changes"
        )
        if is_late:
            note += f"; it misses the deadline, as all of its {len(plans)} plans do"
        yield TITLES[name], f"{plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J", note


def _rows(
    schedule: Schedule, tuned: EnergyResult
) -> Iterator[tuple[tuple[str, float, float, float, float | None, int, int, float], FrequencyPlan]]:
    for name, plans in tuned.baselines.items():
        for plan in plans:
            saving = tuned.frontier.saving(plan, tuned.deadline_ms)
            gap = None if math.isnan(plan.gap) else plan.gap
            changes = sum(num_clock_changes(schedule, plan.clock_mhz))
            in_each = sum(changes_per_iteration(schedule, plan.clock_mhz))
            until_ms = tuned.compared_until_ms(plan)
            yield (name, plan.time_ms, plan.energy_mj, saving, gap, changes, in_each, until_ms), plan
