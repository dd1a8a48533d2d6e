"""The report of a schedule and its frontier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.frontier.energy_baselines import TITLES, baseline_facts
from experiments.frontier.results import EnergyResult
from experiments.frontier.savings import beside_hand_made
from experiments.frontier.schedule_selection import describe_selection
from experiments.report.html_report import Fact, Section, write_report
from experiments.report.page_data import PageData, PagePlans
from experiments.search.report import file_facts, found_facts, introduction, report_title, schedule_sections
from experiments.search.results import SearchStepResult
from placements import Profile


def save_frontier_report(found: SearchStepResult, tuned: EnergyResult, directory: Path) -> Path:
    """Write ``report.html`` of a schedule and its frontier; return its path."""
    return save_with_plans(found, tuned, directory, summary_facts(found, tuned))


def save_with_plans(
    found: SearchStepResult,
    tuned: EnergyResult | None,
    directory: Path,
    summary: Sequence[Fact],
    before: Sequence[Section] = (),
    after: Sequence[Section] = (),
    brought: str = "",
) -> Path:
    """Write ``report.html`` with a schedule and its plans, if there are any; return its path.

    Sections may stand before those of the schedule, and after those of the energy.
    """
    from experiments.report.drawings import page_program  # takes half a second to load

    plans = PagePlans(tuned.profile, tuned.frontier, tuned.plan) if tuned else None
    data = PageData({found.placement.name: found.schedule}, found.memory_unit, plans, found.progress)
    baselines = tuned.baselines.items() if tuned else ()
    others = {TITLES[name]: some for name, some in baselines if name != "all_maximum"}
    energy = [Section("Energy", _energy_facts(found, tuned))] if tuned else []
    return write_report(
        directory / "report.html",
        report_title(found),
        [*before, *schedule_sections(found), *energy, *after, Section("Files", file_facts(directory))],
        summary=tuple(summary),
        introduction=introduction(found, brought),
        program=page_program(data, others),
    )


def summary_facts(found: SearchStepResult, tuned: EnergyResult | None) -> tuple[Fact, ...]:
    """Return the figures of the schedule and the saving, if one is known, that stand at the top."""
    if tuned is None:
        return tuple(found_facts(found))
    label = "Energy saved (placeholder costs)" if found.costs.placeholder else "Energy saved"
    return (*found_facts(found), _saved(label, tuned))


def _energy_facts(found: SearchStepResult, tuned: EnergyResult) -> tuple[Fact, ...]:
    frontier, plan = tuned.frontier, tuned.plan
    maximum = frontier.all_maximum
    return (
        Fact("Deadline", f"{tuned.deadline_ms:.6g} ms"),
        Fact("Frontier", f"{len(frontier.without_straggler)} plans", tuned.method),
        Fact(
            "Slower plans",
            str(len(frontier.plans) - len(frontier.without_straggler)),
            "not on the frontier: they save energy only next to a straggler",
        ),
        Fact("Chosen plan", f"{plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J"),
        Fact("All clocks at maximum", f"{maximum.time_ms:.6g} ms, {maximum.energy_mj / 1e3:.6g} J"),
        _saved("Saved", tuned),
        *((Fact("Chosen plan takes", beside_hand_made(found, tuned)),) if found.by_hand else ()),
        *(() if found.selection is None else (Fact("Order", describe_selection(found.selection)),)),
        Fact("Above the lower bound", f"{plan.gap:.3%}", "the most that better clocks could save"),
        Fact(
            "Least energy",
            f"{frontier.min_energy.time_ms:.6g} ms, {frontier.min_energy.energy_mj / 1e3:.6g} J",
        ),
        *(Fact(*fact) for fact in baseline_facts(found.schedule, tuned)),
        *(Fact(*fact) for _, _, fact in tuned.constrained),
        Fact(
            "Blocking power", _blocking_power(tuned.profile), f"of one {tuned.profile.device} while it waits"
        ),
        *(
            (Fact("GPUs", str(frontier.num_gpus), "of all devices; energies count all of them"),)
            if frontier.num_gpus
            else ()
        ),
    )


def _saved(label: str, tuned: EnergyResult) -> Fact:
    saving = tuned.frontier.saving(tuned.plan, tuned.deadline_ms)
    against = tuned.baseline_in_words(tuned.plan)
    return Fact(label, f"{saving:.2%}", f"compared with {against}; {tuned.saved_joules(tuned.plan)}")


def _blocking_power(profile: Profile) -> str:
    if not profile.waits_by_clock:
        return f"{profile.min_blocking_power_w:g} W"
    clocks = {point.clock_mhz for points in profile.points.values() for point in points}
    max_w = max(profile.blocking_w(clock) for clock in clocks)
    return f"{profile.min_blocking_power_w:g} to {max_w:g} W by clock"
