"""The report of a schedule, and what those of a frontier and a run have in common with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from experiments.report.html_report import Fact, Section, write_report
from experiments.report.page_data import PageData
from experiments.search.results import SearchStepResult
from experiments.search.search_step import (
    beside_best_by_hand,
    in_ms,
    micro_batch_word,
    micro_batches_in_words,
)
from schedsearch.core.answer import Answer, Status
from schedsearch.metrics import bubble_rate, peak_host_memory, peak_memory
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
    """Return what the search brought, and in a second sentence where the costs come from.

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
    """Return the timeline, what is known of the schedule, and its memory."""
    progress = "progress" if found.progress else ""
    facts = _mode_facts(found)
    modes = [Section("Modes", facts)] if facts else []
    return [
        Section("Timeline", panel="timeline"),
        Section("Schedule", _schedule_facts(found), text=_text_picture(found), panel=progress),
        *modes,
        Section("Memory", _memory_facts(found)),
    ]


def file_facts(directory: Path) -> tuple[Fact, ...]:
    """Return the files of a directory that are known, with what each says."""
    return tuple(Fact(file, what, link=file) for file, what in FILES.items() if (directory / file).exists())


def found_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    """Return the figures of the schedule that stand at the top."""
    facts = [
        _makespan(found),
        Fact("Bubble rate", f"{bubble_rate(found.schedule):.1%}", "warmup and cooldown included"),
    ]
    if found.result is not None and found.result.repetend is not None:
        result, repetend = found.result, found.result.repetend
        value = in_ms(found.placement, repetend.period_per_micro_batch)
        is_least = result.status is Status.OPTIMAL
        bound = in_ms(found.placement, result.period_bound)
        note = f"{'proved' if is_least else 'not proved'}: bound {bound}"
        facts.insert(
            1, Fact(f"Repetend's period per {micro_batch_word(found.placement)}", value, note, good=is_least)
        )
    return tuple(facts)


def _schedule_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    placement, schedule, result = found.placement, found.schedule, found.result
    facts = [
        _makespan(found),
        Fact("Bubble rate", f"{bubble_rate(schedule):.2%}", "idle share of makespan times devices"),
    ]
    if result is None:
        return (Fact("Made by", "hand"), *facts)
    least = Fact(
        "Makespan bound", in_ms(placement, result.makespan_bound), "of any schedule, periodic or not"
    )
    proved = Fact("Proved", result.proved, f"{result.queries} queries in {result.seconds:.2f} s")
    if result.is_cut:
        proved = replace(
            proved, note=f"{proved.note}; stopped by a time limit; another run may find a better one"
        )
    if result.repetend is None:
        return (proved, *facts, least)
    repetend = result.repetend
    return (
        proved,
        Fact(
            f"Repetend's period per {micro_batch_word(placement)}",
            in_ms(placement, repetend.period_per_micro_batch),
            f"no repetend of {_sizes(result)} has less than {in_ms(placement, result.period_bound)}",
        ),
        Fact("Steady bubble rate", f"{repetend.bubble_rate:.2%}", "of the repetend alone"),
        Fact("Micro-batches in flight", str(repetend.in_flight)),
        Fact("Span", in_ms(placement, repetend.span), f"bound {in_ms(placement, result.span_bound)}"),
        *facts,
        least,
    )


def _makespan(found: SearchStepResult) -> Fact:
    value = in_ms(found.placement, found.schedule.makespan)
    if found.result is None:
        return Fact("Makespan", value)
    is_least = found.schedule.makespan <= found.result.makespan_bound
    bound = in_ms(found.placement, found.result.makespan_bound)
    return Fact(
        "Makespan", value, f"{'proved' if is_least else 'not proved'}: bound {bound}", good=is_least or None
    )


def _memory_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    placement = found.placement
    facts: list[Fact] = []
    for title, capacity, peaks in (
        ("Device", placement.memory, peak_memory(found.schedule).tolist()),
        ("Host of device", placement.host_memory, peak_host_memory(found.schedule).tolist()),
    ):
        facts += [
            Fact(
                f"{title} {device}",
                f"{peak} of {capacity[device]} {found.memory_unit}"
                if capacity
                else f"{peak} {found.memory_unit}",
                f"{peak / capacity[device]:.0%}" if capacity and capacity[device] else "",
            )
            for device, peak in enumerate(peaks)
            if peak or title == "Device"
        ]
    return tuple(facts)


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
