"""The files of a frontier, and its line in the log: frontier, chosen plan, clocks, savings, baselines."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from experiments.frontier.energy_baselines import baselines_to_csv, baselines_to_dict
from experiments.frontier.energy_methods import made_by
from experiments.frontier.options import EnergyOptions
from experiments.frontier.results import EnergyResult
from experiments.frontier.savings import savings_csv
from experiments.frontier.schedule_selection import selection_to_dict
from experiments.search.results import SearchStepResult
from placements.forms.texts import write_json, write_text
from schedsearch.energy import Frontier, changes_per_iteration, num_clock_changes
from schedsearch.energy.frontier import clocks_to_dict
from schedsearch.energy.interchange import frequencies_csv, frontier_csv, relaxed_csv, zeus_files
from schedsearch.schedule import Instance, Schedule

log = logging.getLogger(__name__)

PLAN_SCHEMA_VERSION = 1
"""Version of the form of ``plan.json``."""


def save_frontier(
    options: EnergyOptions,
    found: SearchStepResult,
    tuned: EnergyResult,
    directory: Path,
) -> None:
    """Write the profile and the frontier with its plans and baselines, and log the result."""
    frontier, schedule = tuned.frontier, found.schedule
    tuned.profile.to_csv(directory / "profile.csv")
    data = {**frontier_to_dict(found, frontier), **made_by(options), **found.costs.to_dict()}
    write_json(directory / "frontier.json", data)
    write_json(directory / "plan.json", plan_to_dict(schedule, tuned))
    write_text(directory / "frontier.csv", frontier_csv(schedule, frontier))
    if frontier.relaxed is not None:
        write_text(directory / "relaxed.csv", relaxed_csv(frontier.relaxed))
    write_text(directory / "frequencies.csv", frequencies_csv(schedule, tuned.profile, tuned.plan))
    write_text(directory / "savings.csv", savings_csv(tuned))
    if options.export == "zeus":
        for name, text in zeus_files(schedule, frontier):
            write_text(directory / "zeus" / name, text)
    log.info("%s", describe(tuned))
    if tuned.baselines:
        write_json(directory / "baselines.json", baselines_to_dict(schedule, tuned))
        write_text(directory / "baselines.csv", baselines_to_csv(schedule, tuned))


def frontier_to_dict(found: SearchStepResult, frontier: Frontier) -> dict[str, object]:
    """Return the frontier as plain data, with each device's changes of clock beside each plan."""
    data = frontier.to_dict()
    for plan in (*data["plans"], *data["straggler_plans"]):
        plan |= _changes_of(found.schedule, plan["clock_mhz"])
    if found.selection is not None:
        data["order"] = selection_to_dict(found.selection)
    return data


def plan_to_dict(schedule: Schedule, tuned: EnergyResult) -> dict[str, object]:
    """Return the chosen plan as plain data."""
    frontier, plan = tuned.frontier, tuned.plan
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "deadline_ms": tuned.deadline_ms,
        "time_ms": plan.time_ms,
        "energy_mj": plan.energy_mj,
        "lower_bound_mj": plan.lower_bound_mj,
        "energy_until_deadline_mj": frontier.energy_next_to(plan, tuned.deadline_ms),
        "saving": frontier.saving(plan, tuned.deadline_ms),
        "saving_against": tuned.baseline_in_words(plan),
        **tuned.costs.to_dict(),
        **clocks_to_dict(plan.clock_mhz),
        **_changes_of(schedule, plan.clock_mhz),
        "start_ms": {name: _starts_of(name, tuned.simulation.start_ms) for name in plan.clock_mhz},
    }


def _changes_of(schedule: Schedule, clock_mhz: Mapping[str, tuple[int, ...]]) -> dict[str, object]:
    return {
        "clock_changes": list(num_clock_changes(schedule, clock_mhz)),
        "changes_per_iteration": list(changes_per_iteration(schedule, clock_mhz)),
    }


def _starts_of(block: str, start_ms: Mapping[Instance, float]) -> list[float]:
    """Return a block's starts in milliseconds, by micro-batch."""
    return [start for (name, _), start in sorted(start_ms.items()) if name == block]


def describe(tuned: EnergyResult) -> str:
    """Return the frontier's ends, the chosen plan and its saving as lines of text."""
    frontier, plan = tuned.frontier, tuned.plan
    alone = frontier.without_straggler
    later = len(frontier.plans) - len(alone)
    only = "" if plan in alone else "; it saves energy only next to a straggler"
    return (
        f"frontier    {len(alone)} plans, from {alone[0].time_ms:.6g} ms to {alone[-1].time_ms:.6g} ms"
        f"{f'; {later} slower plans save energy only next to a straggler' if later else ''}\n"
        f"            {tuned.method}" + f"\nplan        {plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J, "
        f"{max(plan.gap, 0.0):.2%} above the lower bound{only}\n"
        f"energy      {tuned.saved(plan)}\n"
        f"            compared with {tuned.baseline_in_words(plan)}"
    )
