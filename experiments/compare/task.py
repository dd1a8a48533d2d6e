"""The task of `experiments.compare`: schedules of one model side by side."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.compare.model import read_model, read_unequal
from experiments.compare.options import CompareOptions
from experiments.compare.report import save_comparison_report
from experiments.config.command import Interrupted
from experiments.config.commands import commands
from experiments.config.options import OptionError, require
from experiments.config.run_record import output_directory
from experiments.search.options import SearchOptions
from experiments.search.profile_reading import CostSource, stages_cost_source
from experiments.search.schedule_finding import search_limits
from placements.forms.texts import csv_text, text_columns, write_json, write_text
from schedsearch.comparison.compare import compare
from schedsearch.comparison.rows import COLUMNS, ComparedRow, Comparison
from schedsearch.core.progress import PlanProgress
from schedsearch.figures.canvas import COLUMN_INCHES, save_widths
from schedsearch.figures.comparison import draw_timelines
from schedsearch.schedule_file import schedule_to_dict

log = logging.getLogger(__name__)


def task(options: CompareOptions) -> dict[str, float]:
    """Compare, print the table, and save it with the figure; return the makespan of each schedule."""
    stages, own = read_model(options)
    costs = stages_cost_source(options.stages, stages.power_w)
    for name in commands()["compare"].refused:
        given, usual = (getattr(of, name.removeprefix("search.")) for of in (options.search, SearchOptions()))
        require(given == usual, name, given, "for a comparison", "leave it out")
    batch = read_unequal(options, stages)
    with PlanProgress() as show:
        found = compare(
            stages,
            options.schedules,
            options.search.num_micro_batches,
            num_chunks=options.num_chunks,
            given=own,
            micro_batches=batch,
            on_progress=lambda row, on, event: show.search(f"{row}, {on.name}", on.tick_ms, event),
            **search_limits(options.search),
        )
    directory = output_directory()
    save(found, Path(options.stages), directory, costs)
    log.info("%s\n%s", to_table(found.rows), costs)
    log.info("table, figure, report and schedules: %s", directory)
    if found.interrupted:
        raise Interrupted(f"interrupted; what was found so far is in {directory}")
    if all(row.found is None for row in found.rows):
        why = f"{found.rows[0].schedule}: {found.rows[0].note}"
        raise OptionError(f"schedules: none fits ({why}); all reasons are in {directory / 'compare.csv'}")
    return {
        f"{row.schedule}_makespan_ms": row.makespan_ms for row in found.rows if row.makespan_ms is not None
    }


def save(found: Comparison, stages: Path, directory: Path, costs: CostSource) -> None:
    """Write the table as CSV and JSON, each schedule, and the timelines."""
    write_text(directory / "compare.csv", to_csv(found.rows))
    write_json(directory / "compare.json", found.to_dict() | {"stages": str(stages)} | costs.to_dict())
    schedules = {row.schedule: row.found for row in found.rows if row.found is not None}
    for name, schedule in schedules.items():
        write_json(directory / f"schedules/{name}.json", schedule_to_dict(schedule) | costs.to_dict())
    if schedules:
        titled = found.by_title
        save_widths(draw_timelines(titled), draw_timelines(titled, COLUMN_INCHES), directory / "compare")
        save_comparison_report(found, stages, costs, directory)


def to_csv(rows: Sequence[ComparedRow]) -> str:
    """Return the table as CSV; empty where a figure does not apply."""
    return csv_text(COLUMNS, (row.to_dict().values() for row in rows))


_SHOWN: Mapping[str, tuple[str, str]] = {
    "makespan_ms": ("makespan", "{:,.6g} ms"),
    "makespan_bound_ms": ("bound", "{:,.6g} ms"),
    "bubble_rate": ("bubble", "{:.1%}"),
    "period_ms": ("period", "{:,.5g} ms"),
    "peak_memory_mib": ("peak memory", "{:,.6g} MiB"),
}
"""The figures of the printed table: their titles and forms."""


def to_table(rows: Sequence[ComparedRow]) -> str:
    """Return the table for a terminal of 80 columns: a line for each schedule, and its note below."""
    table = [["schedule", *(title for title, _ in _SHOWN.values())]]
    table += [[row.schedule, *_figures(row)] for row in rows]
    lines = text_columns(table)
    notes = [": ".join(filter(None, (_proved(row), row.note))) for row in rows]
    below = [textwrap.indent(textwrap.fill(note, 76), "    ") for note in notes]
    return "\n".join([lines[0], *(line for pair in zip(lines[1:], below, strict=True) for line in pair)])


def _proved(row: ComparedRow) -> str:
    return f"{row.proved} on {row.placement}" if row.placement else row.proved


def _figures(row: ComparedRow) -> list[str]:
    values = [(getattr(row, name), form) for name, (_, form) in _SHOWN.items()]
    return ["" if value is None else form.format(value) for value, form in values]
