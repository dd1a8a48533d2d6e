"""The report of a schedule, and its parts that the reports of a frontier and a run have, too."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from experiments.report.html_report import Fact, Section, html_report
from experiments.report.page_data import PageData
from experiments.search.results import SearchStepResult
from experiments.search.search_step import beside_best_by_hand, micro_batches_in_words, schedule_facts
from schedsearch.picture import picture, shortened

LISTED = (".csv", ".json", ".py", ".yaml")
"""Endings of the files that reports list; `docs/files.md` says what is in each."""


def search_page(found: SearchStepResult, directory: Path, written: Collection[str] = ()) -> str:
    """Return the page of a schedule that was searched or made by hand.

    Args:
        found: Result of the search.
        directory: Directory of the output.
        written: Names of files that will be there.
    """
    from experiments.report.drawings import page_program  # takes half a second to load
    from schedsearch.figures.comparison import title_of

    data = PageData({title_of(found.schedule): found.schedule}, found.memory_unit, progress=found.progress)
    return html_report(
        report_title(found),
        [*schedule_sections(found), Section("Files", file_facts(directory, written))],
        summary=found_facts(found),
        introduction=introduction(found),
        program=page_program(data),
    )


def report_title(found: SearchStepResult) -> str:
    """Return the heading: the placement, its devices and its micro-batches."""
    number = micro_batches_in_words(found.placement, found.schedule.num_micro_batches)
    return f"{found.placement.name} on {found.placement.num_devices} devices, {number}"


def introduction(found: SearchStepResult, brought: str = "") -> str:
    """Return the result of the search, and in a second sentence the sources of its costs.

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
    """Return the timeline, and the facts of the schedule."""
    text = "\n".join(shortened(picture(found.schedule, max_columns=120).splitlines()))
    panel = "progress" if found.progress else ""
    return [
        Section("Timeline", panel="timeline"),
        Section("Schedule", _schedule_facts(found), text=text, panel=panel),
    ]


def file_facts(directory: Path, written: Collection[str] = ()) -> tuple[Fact, ...]:
    """Return the files that are in a directory, or its scripts, or will be, as links."""
    found = [path.relative_to(directory) for on in ("*", "scripts/*") for path in directory.glob(on)]
    files = sorted({*map(Path.as_posix, found), *written})
    return tuple(Fact(Path(each).stem, each, link=each) for each in files if each.endswith(LISTED))


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
    if result.repetend is not None:
        first, last, several = result.sizes[0], result.sizes[-1], len(result.sizes) > 1
        sizes = f"{first} to {last} micro-batches" if several else f"{first} micro-batch{'es' * (first != 1)}"
        if result.period_bound <= result.universal_bound:
            sizes = "any number of micro-batches"
        queries += f"; the bound on the period is of {sizes}"
    return (Fact("Proved", result.proved, queries), *shown)
