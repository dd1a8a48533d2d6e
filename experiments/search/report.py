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


def search_page(solution: SearchStepResult, directory: Path, written: Collection[str] = ()) -> str:
    """Return the page of a schedule that was searched or made by hand.

    Args:
        solution: Result of the search.
        directory: Directory of the output.
        written: Names of files that will be there.
    """
    from experiments.report.drawings import page_program  # takes half a second to load
    from schedsearch.figures.comparison import title_of

    rows = {title_of(solution.schedule): solution.schedule}
    data = PageData(rows, solution.memory_unit, progress=solution.progress)
    return html_report(
        report_title(solution),
        [*schedule_sections(solution), Section("Files", file_facts(directory, written))],
        summary=summary_facts(solution),
        introduction=introduction(solution),
        program=page_program(data),
    )


def report_title(solution: SearchStepResult) -> str:
    """Return the heading: the placement, its devices and its micro-batches."""
    number = micro_batches_in_words(solution.placement, solution.schedule.num_micro_batches)
    return f"{solution.placement.name} on {solution.placement.num_devices} devices, {number}"


def introduction(solution: SearchStepResult, brought: str = "") -> str:
    """Return the result of the search, and in a second sentence the sources of its costs.

    Args:
        solution: The schedule.
        brought: The first sentence; empty for the proof.
    """
    proved = solution.searched.proved if solution.searched else "made by hand"
    if solution.by_hand:
        how = beside_best_by_hand(solution.schedule, solution.by_hand, solution.memory_unit)
        proved += f". It takes {how}"
    return f"{brought or f'The schedule: {proved}.'}\n{solution.costs.in_sentences}"


def schedule_sections(solution: SearchStepResult) -> list[Section]:
    """Return the timeline, and the facts of the schedule."""
    text = "\n".join(shortened(picture(solution.schedule, max_columns=120).splitlines()))
    panel = "progress" if solution.progress else ""
    return [
        Section("Timeline", panel="timeline"),
        Section("Schedule", _schedule_facts(solution), text=text, panel=panel),
    ]


def file_facts(directory: Path, written: Collection[str] = ()) -> tuple[Fact, ...]:
    """Return the files that are in a directory, or its scripts, or will be, as links."""
    paths = [path.relative_to(directory) for on in ("*", "scripts/*") for path in directory.glob(on)]
    files = sorted({*map(Path.as_posix, paths), *written})
    return tuple(Fact(Path(file).stem, file, link=file) for file in files if file.endswith(LISTED))


def summary_facts(solution: SearchStepResult) -> tuple[Fact, ...]:
    """Return the facts of the schedule that stand at the top."""
    labels = ("Repetend", "Makespan", "Bubble")
    return tuple(fact for fact in _schedule_facts(solution) if fact.label in labels)


def _schedule_facts(solution: SearchStepResult) -> tuple[Fact, ...]:
    """Return the facts of the schedule, as in the terminal, behind the proof."""
    result = solution.result
    facts = schedule_facts(solution.schedule, result, solution.memory_unit)
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
