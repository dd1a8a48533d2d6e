"""A frontier as a `Result`: its files, and its lines: frontier, chosen plan, clocks, savings, baselines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from experiments.frontier.options import BASELINE_TITLES, EnergyOptions
from experiments.frontier.results import EnergyResult, time_and_energy
from experiments.frontier.schedule_selection import selection_to_dict
from experiments.report.html_report import Fact
from experiments.report.result import Result, Table
from experiments.search.results import SearchStepResult
from placements.forms.texts import text_columns
from schedsearch.comparison.rows import compared
from schedsearch.energy import (
    FrequencyPlan,
    Frontier,
    all_maximum_clocks,
    changes_per_iteration,
    num_clock_changes,
    simulate_at_clocks,
)
from schedsearch.energy.frontier import TIME_TOLERANCE, clocks_to_dict
from schedsearch.energy.interchange import frequencies_csv, frontier_csv, relaxed_csv, zeus_files
from schedsearch.schedule import Schedule

PLAN_SCHEMA_VERSION = 1
"""Version of the form of ``plan.json``."""

BASELINES_SCHEMA_VERSION = 1
"""Version of the form of ``baselines.json``."""

SLOWDOWNS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5)
"""T' of the straggler over the time at the highest clocks; 1 is none."""

Row = dict[str, Any]


def frontier_result(options: EnergyOptions, found: SearchStepResult, tuned: EnergyResult) -> Result:
    """Return the files, pictures and lines of a frontier with its plans and baselines."""
    from experiments.frontier.pictures import drawings  # loads matplotlib
    from schedsearch.figures.canvas import save_drawing

    frontier, schedule = tuned.frontier, found.schedule
    effort = "unit_ms" if options.method == "perseus" else "work_limit"
    made_by = {"method": options.method, effort: getattr(options, effort)}
    savings, baselines = savings_rows(tuned), list(baseline_rows(schedule, tuned))
    tables = {"savings": Table(dict, savings)}
    files: dict[str, object] = {
        "profile.csv": tuned.profile.to_csv,
        "frontier.json": {**frontier_to_dict(found, frontier), **made_by, **found.costs.to_dict()},
        "plan.json": plan_to_dict(schedule, tuned),
        "frontier.csv": frontier_csv(schedule, frontier),
        "frequencies.csv": frequencies_csv(schedule, tuned.profile, tuned.plan),
        **{f"{each.name}.json": each.to_dict(found.costs) for each in tuned.constrained},
    }
    if frontier.relaxed is not None:
        files["relaxed.csv"] = relaxed_csv(frontier.relaxed)
    if options.export == "zeus":
        files |= {f"zeus/{name}": text for name, text in zeus_files(schedule, frontier)}
    if baselines:
        tables["baselines"] = Table(dict, [row for row, _ in baselines])
        files["baselines.json"] = baselines_to_dict(tuned, baselines)
    beside = [f"the chosen plan takes {beside_hand_made(found, tuned)}"] if found.by_hand else []
    return Result(
        figures=found.figures | tuned.figures,
        tables=tables,
        files=files,
        pictures={name: partial(save_drawing, draw) for name, draw in drawings(found, tuned).items()},
        sentences=[
            describe(tuned),
            *tuned.training_lines,
            *savings_table(savings),
            *(
                f"{fact.label:<14}  {fact.value}\n{'':16}{fact.note}"
                for fact in baseline_facts(schedule, tuned)
            ),
            *(f"{each.title}: {each.fact.value}, {each.note}" for each in tuned.constrained),
            *beside,
        ],
        interrupted="the best plans found so far are in" * frontier.interrupted,
    )


def frontier_to_dict(found: SearchStepResult, frontier: Frontier) -> Row:
    """Return the frontier as plain data, with each device's changes of clock beside each plan."""
    data = frontier.to_dict()
    for plan in (*data["plans"], *data["straggler_plans"]):
        plan |= _changes_of(found.schedule, plan["clock_mhz"])
    if found.selection is not None:
        data["order"] = selection_to_dict(found.selection)
    return data


def plan_to_dict(schedule: Schedule, tuned: EnergyResult) -> Row:
    """Return the chosen plan as plain data."""
    frontier, plan = tuned.frontier, tuned.plan
    starts = sorted(tuned.simulation.start_ms.items())
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "deadline_ms": tuned.deadline_ms,
        "time_ms": plan.time_ms,
        "energy_mj": plan.energy_mj,
        "lower_bound_mj": plan.lower_bound_mj,
        "energy_until_deadline_mj": frontier.energy_next_to(plan, tuned.deadline_ms),
        "saving": frontier.saving(plan, tuned.deadline_ms),
        "saving_against": tuned.baseline_in_words(plan),
        **frontier.training_figures(plan).known,
        **tuned.costs.to_dict(),
        **clocks_to_dict(plan.clock_mhz),
        **_changes_of(schedule, plan.clock_mhz),
        "start_ms": {
            name: [start for (block, _), start in starts if block == name] for name in plan.clock_mhz
        },
    }


def _changes_of(schedule: Schedule, clock_mhz: Mapping[str, tuple[int, ...]]) -> Row:
    return {
        "clock_changes": list(num_clock_changes(schedule, clock_mhz)),
        "changes_per_iteration": list(changes_per_iteration(schedule, clock_mhz)),
    }


def baseline_rows(schedule: Schedule, tuned: EnergyResult) -> Iterator[tuple[Row, FrequencyPlan]]:
    """Yield a row for each plan of each baseline; a ``gap`` is None if no lower bound is above 0."""
    for name, plans in tuned.baselines.items():
        for plan in plans:
            changes = {key: sum(counts) for key, counts in _changes_of(schedule, plan.clock_mhz).items()}
            yield (
                {
                    "name": name,
                    "time_ms": plan.time_ms,
                    "energy_mj": plan.energy_mj,
                    "saving": tuned.frontier.saving(plan, tuned.deadline_ms),
                    "gap": None if math.isnan(plan.gap) else plan.gap,
                    **changes,
                    "saving_until_ms": tuned.compared_until_ms(plan),
                },
                plan,
            )


def baselines_to_dict(tuned: EnergyResult, rows: Sequence[tuple[Row, FrequencyPlan]]) -> Row:
    """Return the rows of all baselines as plain data, with their clocks."""
    plans = [
        {
            **row,
            "saving_against": tuned.baseline_in_words(plan),
            "lower_bound_mj": plan.lower_bound_mj,
            **clocks_to_dict(plan.clock_mhz),
        }
        for row, plan in rows
    ]
    head = {"schema_version": BASELINES_SCHEMA_VERSION, "deadline_ms": tuned.deadline_ms}
    return {**head, **tuned.costs.to_dict(), "plans": plans}


def baseline_facts(schedule: Schedule, tuned: EnergyResult) -> Iterator[Fact]:
    """Yield each baseline's best plan for the deadline, else its fastest, and the saving."""
    for name, plans in tuned.baselines.items():
        plan = tuned.baseline_plan(name)
        note = (
            f"{tuned.saved(plan)}, {plan.gap:.2%} above the lower bound, "
            f"{sum(num_clock_changes(schedule, plan.clock_mhz))} clock changes"
        )
        if not tuned.keeps_deadline(plan):
            note += f"; it misses the deadline, as all of its {len(plans)} plans do"
        yield Fact(BASELINE_TITLES[name], time_and_energy(plan), note)


def savings_rows(tuned: EnergyResult) -> list[Row]:
    """Return the savings next to stragglers of several slowdowns, by the frontier and by the baselines.

    All is over an equal time, the straggler's, against all clocks at maximum (Perseus, Sec. 6.2, Tables 3
    and 4). Savings are shares; None where no plan ends in time, or no bound is known.
    """
    frontier = tuned.frontier
    compared_plans = {"frontier": frontier.plans, **tuned.baselines}
    rows = []
    for slowdown in SLOWDOWNS:
        deadline_ms = slowdown * frontier.all_maximum.time_ms
        all_maximum_mj = frontier.energy_next_to(frontier.all_maximum, deadline_ms)
        row: Row = {
            "saved_against": "all_maximum",
            "slowdown": slowdown,
            "deadline_ms": deadline_ms,
            "saved_against_mj": all_maximum_mj,
            "at_most": frontier.relaxed and 1 - frontier.relaxed.at(deadline_ms) / all_maximum_mj,
        }
        for name, plans in compared_plans.items():
            in_time = [plan for plan in plans if plan.time_ms <= deadline_ms * (1 + TIME_TOLERANCE)]
            needed_mj = min((frontier.energy_next_to(plan, deadline_ms) for plan in in_time), default=None)
            row[name] = None if needed_mj is None else 1 - needed_mj / all_maximum_mj
        rows.append(row)
    return rows


def savings_table(rows: Sequence[Row]) -> list[str]:
    """Return the savings as lines of text, in percent."""
    names = [name for name in rows[0] if name not in ("saved_against", "deadline_ms", "saved_against_mj")]
    table = [names]
    for row in rows:
        shares = ("-" if row[name] is None else f"{100 * row[name]:.2f}" for name in names[1:])
        table.append([f"{row['slowdown']:.2f}", *shares])
    return [
        "Energy saved (%) next to a straggler, compared with all clocks at maximum;",
        "waiting for the straggler is counted, and no plan saves more than at_most",
        *text_columns(table),
    ]


def beside_hand_made(found: SearchStepResult, tuned: EnergyResult) -> str:
    """Return time and energy of the chosen plan beside the best by hand with all clocks at maximum."""
    name, best = next(iter(found.by_hand.items()))
    maximum = simulate_at_clocks(best, tuned.profile, all_maximum_clocks(best, tuned.profile))
    time = compared(tuned.plan.time_ms, maximum.time_ms)
    energy = compared(tuned.plan.energy_mj, maximum.energy_mj, "energy")
    return (
        f"{time} {name}, the best by hand that fits, with all clocks at maximum ({maximum.time_ms:.6g} ms), "
        f"and {energy} it ({maximum.energy_mj / 1e3:.6g} J), without waiting"
    )


def describe(tuned: EnergyResult) -> str:
    """Return the frontier's ends, the chosen plan and its saving as lines of text."""
    frontier, plan = tuned.frontier, tuned.plan
    alone = frontier.without_straggler
    later = len(frontier.plans) - len(alone)
    only = "" if plan in alone else "; it saves energy only next to a straggler"
    return (
        f"frontier    {len(alone)} plans, from {alone[0].time_ms:.6g} ms to {alone[-1].time_ms:.6g} ms"
        f"{f'; {later} slower plans save energy only next to a straggler' if later else ''}\n"
        f"            {tuned.method}\n"
        f"plan        {time_and_energy(plan)}, {max(plan.gap, 0.0):.2%} above the lower bound{only}\n"
        f"energy      {tuned.saved(plan)}\n"
        f"            compared with {tuned.baseline_in_words(plan)}"
    )
