"""The report of a comparison: its table in words, and all schedules on one axis of time."""

from __future__ import annotations

from pathlib import Path

from experiments.report.html_report import Fact, Section, html_report
from experiments.report.page_data import PageData
from experiments.search.profile_reading import CostSource
from schedsearch.comparison.course import SEARCHED
from schedsearch.comparison.rows import ComparedRow, Comparison, compared
from schedsearch.core.answer import proved_text


def comparison_page(comparison: Comparison, stages: Path, costs: CostSource) -> str:
    """Return the page of a comparison in which some schedule fits."""
    from experiments.report.drawings import page_program  # takes half a second to load

    number = comparison.num_micro_batches
    return html_report(
        f"Schedules of {stages.name}, {number} micro-batch{'es' if number != 1 else ''}",
        [
            Section("Timelines", panel="timeline"),
            *(Section(row.schedule, tuple(_facts(row))) for row in comparison.rows),
            Section("Files", tuple(_files(comparison))),
        ],
        introduction=f"{_in_words(comparison)}\n{costs.in_sentences}",
        program=page_program(PageData(comparison.by_title, "MiB")),
    )


def _in_words(comparison: Comparison) -> str:
    """Return in words the shortest schedule, its proof, and how it stands to the best by hand."""
    fitting = [row for row in comparison.rows if row.makespan_ms is not None]
    best = min(fitting, key=lambda row: row.quality)
    by_hand = [row for row in fitting if row.schedule.partition("@")[0] != SEARCHED]
    text = f"{best.schedule} takes {_needs(best)} ({'; '.join(filter(None, (best.proved, best.note)))})"
    if best in by_hand or not by_hand:
        return f"{text}. None of these schedules takes less."
    other = min(by_hand, key=lambda row: row.quality)
    assert best.makespan_ms is not None and other.makespan_ms is not None
    how = compared(best.makespan_ms, other.makespan_ms)
    note = f" ({other.note})" if other.note else ""
    return f"{text}. That is {how} {other.schedule}, the best by hand, which takes {_needs(other)}{note}."


def _needs(row: ComparedRow) -> str:
    """Return the time, the memory and the shape of a schedule."""
    memory = "" if row.peak_memory_mib is None else f" and {row.peak_memory_mib:,.6g} MiB"
    return f"{row.makespan_ms:,.6g} ms{memory} on {row.placement}"


def _facts(row: ComparedRow) -> list[Fact]:
    """Return the facts of a row that apply."""
    shown = (
        ("Makespan", row.makespan_ms, "{:,.6g} ms"),
        ("Makespan bound", row.makespan_bound_ms, "{:,.6g} ms"),
        ("Bubble rate", row.bubble_rate, "{:.2%}"),
        ("Period per micro-batch", row.period_ms, "{:,.6g} ms"),
        ("Device span", row.device_span_ms, "{:,.6g} ms"),
        ("Peak memory", row.peak_memory_mib, "{:,.6g} MiB"),
        ("Energy", row.energy_j, "{:,.6g} J"),
        ("Search", row.search_seconds, "{:.2f} s"),
    )
    good = True if row.proved.startswith(proved_text("makespan")) else None
    proved = Fact("Proved", row.proved, row.note, good)
    return [proved, *(Fact(name, form.format(value)) for name, value, form in shown if value is not None)]


def _files(comparison: Comparison) -> list[Fact]:
    names = {row.schedule: f"schedules/{row.schedule}.json" for row in comparison.rows if row.solution}
    tables = [Fact(file, "the table", link=file) for file in ("compare.csv", "compare.json")]
    return tables + [Fact(file, f"the schedule {name}", link=file) for name, file in names.items()]
