"""Sweeps of the bubble rate: rows that independent searches bring, as a table, as CSV and as curves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from experiments.config.options import (
    OptionError,
    require,
    require_known,
    require_least,
    require_limits,
    require_once,
)
from experiments.config.run_record import output_directory
from experiments.figures.cases import SteadyStateRow, placement_of
from experiments.figures.options import SweepOptions, TransferSweepOptions
from experiments.figures.pool import SweepAnswer, collect
from placements import PlacementError
from placements.files import csv_text
from placements.pieces import PIPELINES
from placements.shapes import SHAPES
from schedsearch.figures.canvas import save
from schedsearch.figures.panels import CurvePoint, Panel, draw_shares
from schedsearch.solver.portfolio import SOLVERS

log = logging.getLogger(__name__)


COLUMNS = [field.name for field in fields(SteadyStateRow)]
"""Of a CSV of rows."""


def check_sweep_options(options: SweepOptions) -> None:
    """Reject wrong options before any work starts.

    Raises:
        OptionError: One is out of its range.
    """
    if not options.shapes:
        raise OptionError(f"shapes: is empty; the shapes are {', '.join(SHAPES)}")
    require_once("shapes", options.shapes)
    for name in options.shapes:
        known = SHAPES if options.stages is None else PIPELINES
        require_known("shapes", name, known, "a shape" if options.stages is None else "a shape of stages")
        try:
            placement_of(name, options)
        except PlacementError as error:
            raise OptionError(str(error)) from None
    require_least("max_in_flight", options.max_in_flight, 1)
    check_search_options(options)


def check_search_options(options: SweepOptions | TransferSweepOptions) -> None:
    """Reject what is wrong for the search and the processes of any sweep.

    Raises:
        OptionError: One is out of its range.
    """
    require_least("num_processes", options.num_processes, 1)
    require_limits(options)
    solver = options.solver
    require(solver in SOLVERS, "solver", solver, "a solver", f"use {' or '.join(SOLVERS)}")


def draw_sweep(
    figure: str,
    searches: Sequence[Callable[[], SweepAnswer[SteadyStateRow]]],
    options: SweepOptions,
    column: str,
    x_label: str,
    title: str,
    source: str,
) -> None:
    """Run the searches of a figure, and save its rows as CSV and its curves as PNG and SVG.

    Args:
        figure: Name of the figure and of its files.
        searches: The longest first, if possible.
        options: How many processes to use, and the order of the shapes.
        column: Against which the bubble rate is drawn.
        x_label: What that is.
        title: Shown above, with the number of devices behind it.
        source: The figure of a paper that it draws again; of stages their file is named instead.
    """
    path = output_directory() / f"{figure}.csv"

    def place(row: SteadyStateRow) -> tuple[int, str, float, int]:
        return options.shapes.index(row.shape), row.searched_by, row.memory or 0, row.in_flight or 0

    rows = collect(figure, searches, options.num_processes, path, to_csv, place, _in_short)
    log.info("%s", to_table(rows, column))
    y_label = "bubble rate of the steady state"
    devices = f"{placement_of(options.shapes[0], options).num_devices} devices"
    of_what = f"({source})" if options.stages is None else f"of {Path(options.stages).name}"
    save(draw_shares(_panels(rows, column), x_label, y_label, f"{title}, {devices} {of_what}"), path)
    log.info("figure in %s, rows in %s", path.with_suffix(".png"), path)


def _in_short(row: SteadyStateRow) -> str:
    return f"{row.shape}, {row.searched_by}"


def to_csv(rows: Iterable[SteadyStateRow]) -> str:
    """Return rows as CSV; what is not there is empty, shares have six digits and seconds two."""
    return csv_text(COLUMNS, ([_in_text(*cell) for cell in asdict(row).items()] for row in rows))


def _in_text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return (
            f"{value:.2f}" if name == "seconds" else f"{value:.6f}" if "bubble" in name else f"{value:.10g}"
        )
    return str(value)


def to_table(rows: Sequence[SteadyStateRow], column: str) -> str:
    """Return bubble rates as text: a line per shape and search, a column for each value of one field."""
    values = sorted({getattr(row, column) for row in rows})
    lines: dict[tuple[str, str], dict[float, str]] = {}
    for row in rows:
        rate = "-" if row.bubble_rate is None else f"{100 * row.bubble_rate:.1f}"
        line = lines.setdefault((row.shape, row.searched_by), {})
        line[getattr(row, column)] = rate + ("" if row.decided else "?")
    cells = [["bubble in %", f"{column} =", *(f"{value:.10g}" for value in values)]]
    cells += [[*key, *(line.get(value, "") for value in values)] for key, line in lines.items()]
    widths = [max(map(len, each)) for each in zip(*cells, strict=True)]
    table = [
        " ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *map(str.rjust, row[2:], widths[2:])])
        for row in cells
    ]
    is_marked = any(cell.endswith(("?", "-")) for row in cells[1:] for cell in row[2:])
    marks = "?: not proved the least within the limit; -: no repetend fits; -?: none found"
    return "\n".join([*table, *([marks] if is_marked else [])])


def _panels(rows: Sequence[SteadyStateRow], column: str) -> list[Panel]:
    """Return a panel per shape, with a curve per search; the name of an empty one says so."""
    curves: dict[str, dict[str, list[CurvePoint]]] = {row.shape: {} for row in rows}
    found = {row.searched_by for row in rows if row.bubble_rate is not None}
    for row in rows:
        name = row.searched_by + ("" if row.searched_by in found else ": none found")
        curve = curves[row.shape].setdefault(name, [])
        if row.bubble_rate is not None:
            least = None if row.decided else row.least_bubble_rate
            curve.append(CurvePoint(getattr(row, column), row.bubble_rate, least))
    return [Panel(shape_title(shape), of_shape) for shape, of_shape in curves.items()]


def shape_title(shape: str) -> str:
    """Return the name of a shape as people write it."""
    letters = shape.removesuffix("_shape")
    return f"{letters.upper() if len(letters) <= 2 else letters.capitalize()}-shape"
