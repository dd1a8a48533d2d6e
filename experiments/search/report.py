"""The report of a schedule, and its parts that the reports of a frontier and a run have, too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from experiments.report.html_report import Fact, Section, write_report
from experiments.report.page_data import PageData
from experiments.search.results import SearchStepResult
from experiments.search.search_step import (
    beside_best_by_hand,
    micro_batches_in_words,
    schedule_facts,
)
from schedsearch.core.answer import Answer
from schedsearch.picture import picture, shortened

FILES = {
    "placement.yaml": "what runs where, with times and memory",
    "profile.csv": "what each block costs at each clock",
    "schedule.json": "the schedule, its repetend and what is proved of it",
    "schedule.csv": "the schedule in the form that torch.distributed.pipelining reads",
    "scenarios.csv": "schedules in each scenario, simulated: mean, percentiles and bound",
    "streams.csv": "each stream's blocks in their order, with modes and times",
    "frontier.json": "every plan of the time-energy frontier, a clock for every block",
    "plan.json": "the chosen plan",
    "frontier.csv": "the time, energy, bound and saving of every plan",
    "savings.csv": "the energy that each method saves, next to stragglers of several slowdowns",
    "relaxed.csv": "the breakpoints of the continuous frontier, a lower bound for every plan",
    "frequencies.csv": "the chosen plan: each device's blocks in their order, with clock and time",
    "periodic.json": "clocks that repeat with the repetend",
    "switched.json": "a plan whose clocks change seldom",
    "periodic_switched.json": "clocks that repeat with the repetend and change seldom",
    "capped.json": "the shortest iteration under the power cap",
    "robust.json": "the plan that keeps the deadline although times vary",
    "shaped.json": "the plan under limits on the shape of power",
    "policy.json": "which plan to run in each interval of the signal",
    "baselines.csv": "the energy of EnvPipe and other baselines, counted in the same way",
    "scripts/device_0.py": "one PyTorch script per device: its blocks and transfers, in order",
    "scripts/job.json": "what the scripts share: model and placement",
    "scripts/programs.json": "the same programs as text, to check without running them",
    "runtime.json": "the options of the run, to resume it",
    "simulated.json": "time and energy of the scripts on simulated GPUs",
    "trace.json": "the last iterations, planned and measured, for ui.perfetto.dev",
    "trace.csv": "how busy each device was in the last iteration",
    "measurement.json": "times, losses, and the comparison with the unpipelined model",
}
"""What a run leaves in its directory, beside the pictures and the report."""


def save_search_report(found: SearchStepResult, directory: Path) -> Path:
    """Write ``report.html`` of a schedule that was searched or made by hand; return its path."""
    from experiments.report.drawings import page_program  # takes half a second to load
    from schedsearch.figures.comparison import title_of

    data = PageData({title_of(found.schedule): found.schedule}, found.memory_unit, progress=found.progress)
    return write_report(
        directory / "report.html",
        report_title(found),
        [*schedule_sections(found), Section("Files", file_facts(directory))],
        summary=found_facts(found),
        introduction=introduction(found),
        program=page_program(data),
    )


def report_title(found: SearchStepResult) -> str:
    """Return the heading: the placement, its devices and its micro-batches."""
    number = micro_batches_in_words(found.placement, found.schedule.num_micro_batches)
    return f"{found.placement.name} on {found.placement.num_devices} devices, {number}"


def introduction(found: SearchStepResult, brought: str = "") -> str:
    """Return the result of the search, and in a second sentence where the costs come from.

    Args:
        found: The schedule.
        brought: The first sentence; empty for what is proved.
    """
    proved = found.searched.proved if found.searched else "made by hand"
    if found.by_hand:
        how = beside_best_by_hand(found.schedule, found.by_hand, found.memory_unit)
        proved += f". It takes {how}"
    return f"{brought or f'The schedule: {proved}.'}\n{found.costs.in_sentences}"


def schedule_sections(found: SearchStepResult) -> list[Section]:
    """Return the timeline, the facts of the schedule, and how often each mode is chosen."""
    progress = "progress" if found.progress else ""
    facts = _mode_facts(found)
    modes = [Section("Modes", facts)] if facts else []
    return [
        Section("Timeline", panel="timeline"),
        Section("Schedule", _schedule_facts(found), text=_text_picture(found), panel=progress),
        *modes,
    ]


def file_facts(directory: Path) -> tuple[Fact, ...]:
    """Return the files of a directory that are known, with their contents in words."""
    return tuple(Fact(file, what, link=file) for file, what in FILES.items() if (directory / file).exists())


def found_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    """Return the facts of the schedule that stand at the top."""
    return tuple(fact for fact in _schedule_facts(found) if fact.label in ("Repetend", "Makespan", "Bubble"))


def _schedule_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    """Return the facts of the schedule, as in the terminal, behind the proof."""
    result = found.result
    facts = schedule_facts(found.schedule, result, found.memory_unit)
    shown = tuple(replace(fact, label=fact.label.capitalize()) for fact in facts)
    if result is None:
        return (Fact("Made by", "hand"), *shown)
    queries = f"{result.queries} queries in {result.seconds:.2f} s"
    of = "" if result.repetend is None else f"; the bound on the period is of {_sizes(result)}"
    return (Fact("Proved", result.proved, queries + of), *shown)


def _mode_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    """Return how often each mode is chosen of each decision."""
    schedule = found.schedule
    facts = []
    for i, decision in enumerate(found.placement.decisions):
        if decision.is_of_micro_batches:
            continue
        counts = Counter(decision.choices[chosen[i]].name for chosen in schedule.chosen)
        times = ", ".join(f"{counts[name]} {name}" for name in decision.names)
        facts.append(Fact(", ".join(decision.blocks), times, f"of {len(schedule.chosen)} micro-batches"))
    return tuple(facts)


def _text_picture(found: SearchStepResult) -> str:
    return "\n".join(shortened(picture(found.schedule, max_columns=120).splitlines()))


def _sizes(result: Answer) -> str:
    """Return the numbers of micro-batches per repetend that the bound holds for, in words."""
    if result.period_bound <= result.universal_bound:
        return "any number of micro-batches"
    sizes = result.sizes
    if len(sizes) > 1:
        return f"{sizes[0]} to {sizes[-1]} micro-batches"
    return f"{sizes[0]} micro-batch{'es' if sizes[0] != 1 else ''}"
