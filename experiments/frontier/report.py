"""The report of a schedule and its frontier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.frontier.frontier_files import baseline_facts, beside_hand_made
from experiments.frontier.options import BASELINE_TITLES
from experiments.frontier.results import EnergyResult, time_and_energy
from experiments.frontier.schedule_selection import describe_selection
from experiments.report.html_report import Fact, Section, write_report
from experiments.report.page_data import PageData, PagePlans
from experiments.search.report import file_facts, found_facts, introduction, report_title, schedule_sections
from experiments.search.results import SearchStepResult
from placements import Profile


def write_page(
    found: SearchStepResult,
    tuned: EnergyResult | None,
    path: Path,
    *,
    summary: Sequence[Fact] = (),
    before: Sequence[Section] = (),
    after: Sequence[Section] = (),
    brought: str = "",
) -> Path:
    """Write the page of a schedule and its plans, if there are any; return its path.

    Args:
        found: The schedule.
        tuned: Its plans.
        path: Path of the page; it lists the known files beside it.
        summary: Facts at the top, behind those of the schedule and the energy saved.
        before: Sections before those of the schedule.
        after: Sections after those of the energy.
        brought: First sentence; empty for what is proved.
    """
    from experiments.report.drawings import page_program  # takes half a second to load

    plans = PagePlans(tuned.profile, tuned.frontier, tuned.plan) if tuned else None
    data = PageData({found.placement.name: found.schedule}, found.memory_unit, plans, found.progress)
    baselines = tuned.baselines.items() if tuned else ()
    others = {BASELINE_TITLES[name]: some for name, some in baselines if name != "all_maximum"}
    energy = [Section("Energy", _energy_facts(found, tuned))] if tuned else []
    label = "Energy saved (placeholder costs)" if found.costs.placeholder else "Energy saved"
    saved = [_saved(label, tuned)] if tuned else []
    return write_report(
        path,
        report_title(found),
        [*before, *schedule_sections(found), *energy, *after, Section("Files", file_facts(path.parent))],
        summary=(*found_facts(found), *saved, *summary),
        introduction=introduction(found, brought),
        program=page_program(data, others),
    )


def _energy_facts(found: SearchStepResult, tuned: EnergyResult) -> tuple[Fact, ...]:
    frontier, plan = tuned.frontier, tuned.plan
    alone, waiting_note = len(frontier.without_straggler), f"of one {tuned.profile.device} while it waits"
    facts = [
        Fact("Deadline", f"{tuned.deadline_ms:.6g} ms"),
        Fact("Frontier", f"{alone} plans", tuned.method),
        Fact(
            "Slower plans",
            str(len(frontier.plans) - alone),
            "not on the frontier: they save energy only next to a straggler",
        ),
        Fact("Chosen plan", time_and_energy(plan)),
        Fact("All clocks at maximum", time_and_energy(frontier.all_maximum)),
        _saved("Saved", tuned),
    ]
    facts += [Fact("Training", line) for line in tuned.training_lines]
    if found.by_hand:
        facts.append(Fact("Chosen plan takes", beside_hand_made(found, tuned)))
    if found.selection is not None:
        facts.append(Fact("Order", describe_selection(found.selection)))
    facts += [
        Fact("Above the lower bound", f"{plan.gap:.3%}", "the most that better clocks could save"),
        Fact("Least energy", time_and_energy(frontier.min_energy)),
        *baseline_facts(found.schedule, tuned),
        *(each.fact for each in tuned.constrained),
        Fact("Blocking power", _blocking_power(tuned.profile), waiting_note),
    ]
    if frontier.num_gpus:
        facts.append(Fact("GPUs", str(frontier.num_gpus), "of all devices; energies count all of them"))
    return tuple(facts)


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
