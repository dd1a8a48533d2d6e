"""The report of a comparison: its table in words, and all schedules on one axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.report.html_report import Fact, Section, html_report
from experiments.report.page_data import PageData
from experiments.search.profile_reading import CostSource
from schedsearch.comparison.course import SEARCHED
from schedsearch.comparison.rows import ComparedRow, Comparison, compared


def comparison_page(comparison: Comparison, stages: Path, costs: CostSource) -> str:
    """Return the page of a comparison in which some schedule fits."""
    from experiments.report.drawings import page_program  # takes half a second to load

    number = comparison.num_micro_batches
    notes = [f"{row.schedule}: {row.note}" for row in comparison.rows if row.note]
    return html_report(
        f"Schedules of {stages.name}, {number} micro-batch{'es' if number != 1 else ''}",
        [
            Section("Timelines", panel="timeline"),
            Section("Schedules", rows=table_of(comparison.rows), text="\n".join(notes)),
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


_COLUMNS = {
    "schedule": ("schedule", "{}"),
    "makespan": ("makespan_ms", "{:,.6g} ms"),
    "bound": ("makespan_bound_ms", "{:,.6g} ms"),
    "bubble": ("bubble_rate", "{:.1%}"),
    "period": ("period_ms", "{:,.5g} ms"),
    "peak memory": ("peak_memory_mib", "{:,.6g} MiB"),
    "energy": ("energy_j", "{:,.6g} J"),
    "device span": ("device_span_ms", "{:,.6g} ms"),
    "search": ("search_seconds", "{:.2f} s"),
    "proved": ("proved", "{}"),
}
"""Columns of the tables of schedules, by their heads: field of the row, and its form."""


def table_of(rows: Sequence[ComparedRow], heads: Iterable[str] = _COLUMNS) -> list[list[str]]:
    """Return the heads of columns with some figure, and a row for each schedule; a cell may be empty."""
    table = [[head for head in heads if any(getattr(row, _COLUMNS[head][0]) is not None for row in rows)]]
    for row in rows:
        values = ((getattr(row, name), form) for name, form in map(_COLUMNS.__getitem__, table[0]))
        table.append(["" if value is None else form.format(value) for value, form in values])
    return table


def _files(comparison: Comparison) -> list[Fact]:
    names = {row.schedule: f"schedules/{row.schedule}.json" for row in comparison.rows if row.solution}
    tables = [Fact(file, "the table", link=file) for file in ("compare.csv", "compare.json")]
    return tables + [Fact(file, f"the schedule {name}", link=file) for name, file in names.items()]
