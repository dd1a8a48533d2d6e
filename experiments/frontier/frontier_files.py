"""A frontier as a `Result` and a page: its files, tables and lines, and the report of a schedule with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.frontier.options import BASELINE_TITLES, EnergyOptions
from experiments.frontier.results import EnergyResult, time_and_energy
from experiments.frontier.schedule_selection import describe_selection, selection_to_dict
from experiments.report.html_report import Fact, Section
from experiments.report.page_data import PagePlans
from experiments.report.result import Result, Table
from experiments.search.report import file_facts, schedule_page
from experiments.search.results import SearchStepResult
from placements.forms.texts import text_columns, write_text
from schedsearch.comparison.rows import compared
from schedsearch.energy import (
    Frontier,
    all_maximum_clocks,
    changes_per_iteration,
    num_clock_changes,
    simulate_at_clocks,
)
from schedsearch.energy.frontier import TIME_TOLERANCE, clocks_to_dict
from schedsearch.energy.interchange import frequencies_csv, frontier_csv, relaxed_csv
from schedsearch.schedule import Schedule

PLAN_SCHEMA_VERSION = 1
"""Version of the form of ``plan.json``."""

BASELINES_SCHEMA_VERSION = 1
"""Version of the form of ``baselines.json``."""

BASELINE_COLUMNS = (
    *("name", "time_ms", "energy_mj", "saving", "gap"),
    *("clock_changes", "changes_per_iteration", "saving_until_ms"),
)
"""Columns of the table of baselines; its file has more of each plan."""

SLOWDOWNS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5)
"""T' of the straggler over the time at the highest clocks; 1 is none."""

Row = dict[str, Any]


def frontier_result(options: EnergyOptions, solution: SearchStepResult, tuned: EnergyResult) -> Result:
    """Return the files, pictures and lines of a frontier with its plans and baselines."""
    from experiments.frontier.pictures import drawings  # loads matplotlib
    from schedsearch.figures.canvas import save_drawing

    frontier, schedule = tuned.frontier, solution.schedule
    effort = "unit_ms" if options.method == "perseus" else "work_limit"
    made_by = {"method": options.method, effort: getattr(options, effort)}
    savings, baselines = savings_rows(tuned), list(baseline_rows(schedule, tuned))
    tables = {"savings": Table(dict, savings)}
    files: dict[str, object] = {
        "profile.csv": tuned.profile.to_csv,
        "frontier.json": {**frontier_to_dict(solution, frontier), **made_by, **solution.costs.to_dict()},
        "plan.json": plan_to_dict(schedule, tuned),
        "frontier.csv": frontier_csv(schedule, frontier),
        "frequencies.csv": frequencies_csv(schedule, tuned.profile, tuned.plan),
        **{f"{plan.name}.json": plan.to_dict(solution.costs) for plan in tuned.constrained},
    }
    if frontier.relaxed is not None:
        files["relaxed.csv"] = relaxed_csv(frontier.relaxed)
    if baselines:
        tables["baselines"] = Table(dict, baselines, BASELINE_COLUMNS)
        head = {"schema_version": BASELINES_SCHEMA_VERSION, "deadline_ms": tuned.deadline_ms}
        files["baselines.json"] = {**head, **tuned.costs.to_dict(), "plans": baselines}
    beside = [f"the chosen plan takes {beside_hand_made(solution, tuned)}"] if solution.by_hand else []
    facts = baseline_facts(schedule, tuned)
    return Result(
        figures=solution.figures | tuned.figures,
        tables=tables,
        files=files,
        pictures={name: partial(save_drawing, draw) for name, draw in drawings(solution, tuned).items()},
        sentences=[
            describe(tuned),
            *tuned.training_lines,
            *savings_table(savings),
            *(f"{fact.label:<14}  {fact.value}\n{'':16}{fact.note}" for fact in facts),
            *(f"{plan.title}: {plan.fact.value}, {plan.note}" for plan in tuned.constrained),
            *beside,
        ],
        interrupted="the best plans found so far are in" * frontier.interrupted,
    )


def frontier_to_dict(solution: SearchStepResult, frontier: Frontier) -> Row:
    """Return the frontier as plain data, with each device's changes of clock beside each plan."""
    data = frontier.to_dict()
    for plan in (*data["plans"], *data["straggler_plans"]):
        plan |= _changes_of(solution.schedule, plan["clock_mhz"])
    if solution.selection is not None:
        data["order"] = selection_to_dict(solution.selection)
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


def baseline_rows(schedule: Schedule, tuned: EnergyResult) -> Iterator[Row]:
    """Yield a row for each plan of each baseline; a ``gap`` is None if no lower bound is above 0."""
    for name, plans in tuned.baselines.items():
        for plan in plans:
            changes = {key: sum(counts) for key, counts in _changes_of(schedule, plan.clock_mhz).items()}
            yield {
                "name": name,
                "time_ms": plan.time_ms,
                "energy_mj": plan.energy_mj,
                "saving": tuned.frontier.saving(plan, tuned.deadline_ms),
                "gap": None if math.isnan(plan.gap) else plan.gap,
                **changes,
                "saving_until_ms": tuned.compared_until_ms(plan),
                "saving_against": tuned.baseline_in_words(plan),
                "lower_bound_mj": plan.lower_bound_mj,
                **clocks_to_dict(plan.clock_mhz),
            }


def baseline_facts(schedule: Schedule, tuned: EnergyResult) -> Iterator[Fact]:
    """Yield each baseline's best plan for the deadline, else its fastest, and the saving."""
    for name, plans in tuned.baselines.items():
        plan = tuned.baseline_plan(name)
        changes = sum(num_clock_changes(schedule, plan.clock_mhz))
        note = f"{tuned.saved(plan)}, {plan.gap:.2%} above the lower bound, {changes} clock changes"
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


def beside_hand_made(solution: SearchStepResult, tuned: EnergyResult) -> str:
    """Return time and energy of the chosen plan beside the best by hand with all clocks at maximum."""
    name, best = next(iter(solution.by_hand.items()))
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


def write_page(
    solution: SearchStepResult,
    tuned: EnergyResult | None,
    path: Path,
    *,
    summary: Sequence[Fact] = (),
    after: Sequence[Section] = (),
    **parts: Any,
) -> Path:
    """Write the page of a schedule and its plans, if there are any; return its path.

    Args:
        solution: The schedule.
        tuned: Its plans.
        path: Path of the page; it lists the known files beside it.
        summary: Facts at the top, behind those of the schedule and the energy saved.
        after: Sections behind those of the energy.
        parts: Further parts of `schedule_page`.
    """
    plans = PagePlans(tuned.profile, tuned.frontier, tuned.plan) if tuned else None
    baselines = tuned.baselines.items() if tuned else ()
    others = {BASELINE_TITLES[name]: some for name, some in baselines if name != "all_maximum"}
    energy = [Section("Energy", _energy_facts(solution, tuned))] if tuned else []
    label = "Energy saved (placeholder costs)" if solution.costs.placeholder else "Energy saved"
    saved = [_saved(label, tuned)] if tuned else []
    parts |= {"summary": (*saved, *summary), "after": (*energy, *after)}
    return write_text(path, schedule_page(solution, file_facts(path.parent), plans, others, **parts))


def _energy_facts(solution: SearchStepResult, tuned: EnergyResult) -> tuple[Fact, ...]:
    frontier, plan = tuned.frontier, tuned.plan
    profile, alone = tuned.profile, len(frontier.without_straggler)
    slower_note = "not on the frontier: they save energy only next to a straggler"
    waiting_note = f"of one {profile.device} while it waits"
    blocking_w = f"{profile.min_blocking_power_w:g} W"
    if profile.waits_by_clock:
        clocks = {point.clock_mhz for points in profile.points.values() for point in points}
        max_w = max(map(profile.blocking_w, clocks))
        blocking_w = f"{profile.min_blocking_power_w:g} to {max_w:g} W by clock"
    facts = [
        Fact("Deadline", f"{tuned.deadline_ms:.6g} ms"),
        Fact("Frontier", f"{alone} plans", tuned.method),
        Fact("Slower plans", str(len(frontier.plans) - alone), slower_note),
        Fact("Chosen plan", time_and_energy(plan)),
        Fact("All clocks at maximum", time_and_energy(frontier.all_maximum)),
        _saved("Saved", tuned),
    ]
    facts += [Fact("Training", line) for line in tuned.training_lines]
    if solution.by_hand:
        facts.append(Fact("Chosen plan takes", beside_hand_made(solution, tuned)))
    if solution.selection is not None:
        facts.append(Fact("Order", describe_selection(solution.selection)))
    facts += [
        Fact("Above the lower bound", f"{plan.gap:.3%}", "the most that better clocks could save"),
        Fact("Least energy", time_and_energy(frontier.min_energy)),
        *baseline_facts(solution.schedule, tuned),
        *(constrained.fact for constrained in tuned.constrained),
        Fact("Blocking power", blocking_w, waiting_note),
    ]
    if frontier.num_gpus:
        facts.append(Fact("GPUs", str(frontier.num_gpus), "of all devices; energies count all of them"))
    return tuple(facts)


def _saved(label: str, tuned: EnergyResult) -> Fact:
    saving = tuned.frontier.saving(tuned.plan, tuned.deadline_ms)
    against = tuned.baseline_in_words(tuned.plan)
    return Fact(label, f"{saving:.2%}", f"compared with {against}; {tuned.saved_joules(tuned.plan)}")
