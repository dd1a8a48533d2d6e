"""The report of a schedule, and its parts that the reports of a frontier and a run have, too."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.report.html_report import Fact, Picture, Section, html_report
from experiments.report.page_data import PageData, PagePlans
from experiments.search.results import SearchStepResult
from experiments.search.search_step import (
    beside_best_by_hand,
    in_ms,
    memories,
    micro_batches_in_words,
    peak,
    schedule_facts,
)
from schedsearch.core.answer import Answer
from schedsearch.energy import FrequencyPlan

LISTED = (".csv", ".json", ".py", ".yaml")
"""Endings of the files that reports list; `docs/files.md` says what is in each."""


def schedule_page(
    step: SearchStepResult,
    files: Sequence[Fact],
    plans: PagePlans | None = None,
    others: Mapping[str, Sequence[FrequencyPlan]] | None = None,
    *,
    summary: Sequence[Fact] = (),
    before: Sequence[Section] = (),
    after: Sequence[Section] = (),
    brought: str = "",
) -> str:
    """Return the page of a schedule that was searched or made by hand, and of its plans.

    Args:
        step: Result of the search step.
        files: Links to the files.
        plans: Plans of the schedule; None for none.
        others: Plans that the frontier is drawn beside, by their titles.
        summary: Facts at the top, behind the schedule's own.
        before: Sections in front of the search.
        after: Sections behind the schedule's facts.
        brought: First sentence; empty for the proof in words.
    """
    from experiments.report.drawings import page_program  # takes half a second to load
    from schedsearch.figures.comparison import title_of

    title = step.placement.name if plans else title_of(step.schedule)
    data = PageData({title: step.schedule}, step.memory_unit, plans, step.progress)
    proved = step.searched.proved if step.searched else "made by hand"
    if step.by_hand:
        proved += f". It takes {beside_best_by_hand(step.schedule, step.by_hand)}"
    number = micro_batches_in_words(step.placement, step.schedule.num_micro_batches)
    facts = _schedule_facts(step)
    sections = Section("Timeline", panel="timeline"), Section("Schedule", facts)
    at_top = [fact for fact in facts if fact.label in ("Repetend", "Makespan", "Bubble")]
    return html_report(
        f"{step.placement.name} on {step.placement.num_devices} devices, {number}",
        [*before, _search_section(step), *sections, *after, Section("Files", tuple(files))],
        summary=(*at_top, *summary),
        introduction=f"{brought or f'The schedule: {proved}.'}\n{step.costs.in_sentences}",
        program=page_program(data, others),
    )


_PROCEDURES = ("procedure", "objective", "work (about s)", "improvements", "gain")


def _search_section(step: SearchStepResult) -> Section:
    """Return the question of the search, its procedures and bounds, and the schedule that was chosen."""
    from experiments.search.pictures import draw_placement  # loads matplotlib

    placement, schedule, result = step.placement, step.schedule, step.searched
    memory = memories(placement, placement.memory) if placement.memory else "none"
    facts = [
        Fact("Placement", placement.name, f"{placement.num_devices} devices, {len(placement.blocks)} blocks"),
        Fact("Number", micro_batches_in_words(placement, schedule.num_micro_batches)),
        Fact("Memory limit", memory, "of each device"),
        *(_course(step, result) if result else ()),
    ]
    for name, best in [*step.by_hand.items()][:1]:
        note = f"{peak(best)}; best of {len(step.by_hand)} that fit"
        facts.append(Fact("Best by hand", f"{name}, {in_ms(best.placement, best.makespan)}", note))
    origin, why = "searched" if result else "made by hand", ""
    if step.selection:
        origin = step.selection.origin_of(step.selection.chosen.best)
        why = "needs the least energy until the deadline"
    facts.append(Fact("Chosen schedule", f"{origin}, {in_ms(placement, schedule.makespan)}", why))
    picture = Picture(draw_placement(placement), "The blocks of one micro-batch on their devices")
    rows = [
        (row.name, str(row.objective), f"{row.work:.2f}", str(row.improvements), f"{row.gain:.1%}")
        for row in (result.strategies if result else ())
    ]
    panel = "progress" if step.progress else ""
    return Section("Search", tuple(facts), (picture,), panel=panel, rows=[_PROCEDURES, *rows] if rows else ())


def _course(step: SearchStepResult, result: Answer) -> Iterator[Fact]:
    """Yield the objectives, the limits, the proof, and the shortest schedule beside its lower bound."""
    if (options := step.options) is not None:
        limits = (options.work_limit, "units of work"), (options.limit_s, "s")
        texts = [f"{limit:g} {unit}" for limit, unit in limits if limit and math.isfinite(limit)]
        objectives = options.objectives if result.repetend else options.objectives[-1:]
        yield Fact("Objectives", ", ".join(objectives), "in this order")
        yield Fact("Limit", " or ".join(texts), f"ended by: {result.ended_by}")
    queries = f"{result.queries} queries of the solver in {result.seconds:.2f} s"
    if result.repetend is not None:
        ends = dict.fromkeys((str(result.sizes[0]), str(result.sizes[-1])))
        sizes = "any number of" if result.period_bound <= result.universal_bound else " to ".join(ends)
        queries += f"; the bound on the period holds for repetends of {sizes} micro-batches"
    yield Fact("Proved", result.proved, queries)
    if result.schedule is not None:
        bound = f"lower bound {in_ms(step.placement, result.makespan_bound)}"
        yield Fact("Shortest schedule", in_ms(step.placement, result.schedule.makespan), bound)


def file_facts(directory: Path, written: Collection[str] = ()) -> tuple[Fact, ...]:
    """Return the files that are in a directory, or its scripts, or will be, as links."""
    paths = [path.relative_to(directory) for on in ("*", "scripts/*") for path in directory.glob(on)]
    files = sorted({*map(Path.as_posix, paths), *written})
    return tuple(Fact(Path(file).stem, file, link=file) for file in files if file.endswith(LISTED))


def _schedule_facts(step: SearchStepResult) -> tuple[Fact, ...]:
    """Return the facts of the schedule, as in the terminal."""
    facts = schedule_facts(step.schedule, step.result)
    return tuple(replace(fact, label=fact.label.capitalize()) for fact in facts)
