"""The task of `experiments.compare`: schedules of one model side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.compare.model import read_model, read_unequal
from experiments.compare.options import CompareOptions
from experiments.compare.report import comparison_page, table_of
from experiments.config.declaring import command_of
from experiments.config.options import OptionError, require
from experiments.report.result import Result, Table
from experiments.search.options import SearchOptions
from experiments.search.profile_reading import CostSource, stages_cost_source
from experiments.search.schedule_finding import search_limits
from placements.forms.texts import text_columns
from schedsearch.comparison.compare import compare
from schedsearch.comparison.rows import ComparedRow, Comparison
from schedsearch.core.progress import PlanProgress
from schedsearch.figures.comparison import save_timelines
from schedsearch.figures.perfetto import write_perfetto
from schedsearch.schedule_file import schedule_to_dict


def task(options: CompareOptions) -> Result:
    """Compare; the figures are the makespans of the schedules."""
    stages, layouts = read_model(options)
    costs = stages_cost_source(options.stages, stages.power_w)
    for name in command_of("compare").refused:
        given, usual = (getattr(of, name.removeprefix("search.")) for of in (options.search, SearchOptions()))
        require(given == usual, name, given, "for a comparison", "leave it out")
    batch = read_unequal(options, stages)
    with PlanProgress() as show:
        comparison = compare(
            stages,
            options.schedules,
            options.search.num_micro_batches,
            num_chunks=options.num_chunks,
            given=layouts,
            micro_batches=batch,
            on_progress=lambda row, on, event: show.search(f"{row}, {on.name}", on.tick_ms, event),
            **search_limits(options.search),
        )
    if not comparison.by_title and not comparison.interrupted:
        why = "; ".join(f"{row.schedule}: {row.note}" for row in comparison.rows)
        raise OptionError(f"schedules: none fits ({why}); give more memory, or other schedules")
    files = files_of(comparison, Path(options.stages), costs)
    if options.export:
        schedules = {row.schedule: row.solution for row in comparison.rows if row.solution}
        files["trace.json"] = partial(write_perfetto, rows=schedules, keys=costs.to_dict())
    return Result(
        figures={
            f"{row.schedule}_makespan_ms": row.makespan_ms
            for row in comparison.rows
            if row.makespan_ms is not None
        },
        tables={"compare": Table(ComparedRow, comparison.rows)},
        files=files,
        pictures={"compare": partial(save_timelines, comparison.by_title)} if comparison.by_title else {},
        sentences=[to_table(comparison.rows), str(costs)],
        interrupted="the schedules found so far are in" * comparison.interrupted,
    )


def files_of(comparison: Comparison, stages: Path, costs: CostSource) -> dict[str, object]:
    """Return the comparison, each schedule and the page as files."""
    schedules = {
        f"schedules/{row.schedule}.json": schedule_to_dict(row.solution) | costs.to_dict()
        for row in comparison.rows
        if row.solution is not None
    }
    whole = comparison.to_dict() | {"stages": str(stages)} | costs.to_dict()
    page = {"report.html": comparison_page(comparison, stages, costs)} if schedules else {}
    return {"compare.json": whole, **schedules, **page}


_PRINTED = ("schedule", "makespan", "bound", "bubble", "period", "peak memory")
"""Columns of the printed table, which has room for no more."""


def to_table(rows: Sequence[ComparedRow]) -> str:
    """Return the table for a terminal of 80 columns: a line for each schedule, and its note below."""
    lines = text_columns(table_of(rows, _PRINTED))
    notes = [": ".join(filter(None, (_proved(row), row.note))) for row in rows]
    below = [textwrap.indent(textwrap.fill(note, 76), "    ") for note in notes]
    return "\n".join([lines[0], *(line for pair in zip(lines[1:], below, strict=True) for line in pair)])


def _proved(row: ComparedRow) -> str:
    return f"{row.proved} on {row.placement}" if row.placement else row.proved
