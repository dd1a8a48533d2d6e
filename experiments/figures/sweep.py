"""Sweeps of the bubble rate: rows that independent searches bring, as a table, as CSV and as curves."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, did_you_mean
from experiments.config.progress import StepBar
from experiments.config.records import SweepOptions
from experiments.figures.pool import in_any_order
from placements import Placement, PlacementError
from placements.files import write_bytes, write_text
from placements.shapes import SHAPES
from schedsearch import bounds
from schedsearch.cache import remembered
from schedsearch.figures.curves import Panel, draw_curves, image
from schedsearch.modulo.result import SearchResult
from schedsearch.solver.portfolio import SOLVERS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """The best steady state that one search found.

    Attributes:
        shape: Of the placement.
        num_devices: Likewise.
        memory: Capacity of each device; None for no limit.
        in_flight: Micro-batches that a repetend could span; None for any number.
        searched_by: Which search.
        micro_batches: Per repetend; None where none was found, as for the next two.
        period: In ticks.
        bubble_rate: Idle share of the steady state.
        least_bubble_rate: What no repetend of those searched beats.
        decided: Whether that there is no better one of those searched is proved.
        seconds: Wall-clock time of the search.
    """

    shape: str
    num_devices: int
    memory: int | None
    in_flight: int | None
    searched_by: str
    micro_batches: int | None
    period: int | None
    bubble_rate: float | None
    least_bubble_rate: float
    decided: bool
    seconds: float


COLUMNS = [field.name for field in fields(Row)]
"""Of a CSV of rows."""


@dataclass(frozen=True)
class Found:
    """What one search of a sweep brings.

    Attributes:
        rows: In any order.
        interrupted: Whether Ctrl-C ended it; then its rows do not count.
    """

    rows: tuple[Row, ...]
    interrupted: bool = False


def check_sweep_options(options: SweepOptions) -> None:
    """Reject wrong options before any work starts.

    Raises:
        OptionError: One is out of its range.
    """
    if not options.shapes:
        raise OptionError(f"shapes: is empty; the shapes are {', '.join(SHAPES)}")
    for name in options.shapes:
        if name not in SHAPES:
            raise OptionError(f"shapes: {name!r} is not a shape; {did_you_mean(str(name), SHAPES)}")
        try:
            SHAPES[name](num_devices=options.num_devices)
        except PlacementError as error:
            raise OptionError(str(error)) from None
    for name in ("most_in_flight", "num_processes"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise OptionError(f"{name}: {number} is not at least 1")
    for name in ("tessel_time_limit_s", "time_limit_s"):
        if not getattr(options, name) > 0:
            raise OptionError(f"{name}: {getattr(options, name):g} is not a positive number of seconds")
    if options.solver not in SOLVERS:
        raise OptionError(f"solver: {options.solver!r} is not a solver; use {' or '.join(SOLVERS)}")


def remembered_rows(cache: Path | None, key: dict[str, Any], search: Callable[[], Found]) -> Found:
    """Return what a search brings, from the cache where it is there."""
    return remembered(
        cache,
        {"what": "sweep"} | key,
        search,
        is_worth_keeping=lambda found: (
            not found.interrupted and all(row.decided or row.period is not None for row in found.rows)
        ),
        is_answer=lambda value: isinstance(value, Found),
    )[0]


def run_sweep(
    name: str, searches: Sequence[Callable[[], Found]], options: SweepOptions, path: Path
) -> list[Row]:
    """Run the searches, and write the rows that are there as CSV each time that one ends.

    Args:
        name: Shown beside the progress.
        searches: The longest first, if possible.
        options: How many processes to use, and the order of the shapes.
        path: Of the CSV.

    Raises:
        Interrupted: By Ctrl-C; the rows of the searches that had ended are written.
    """
    rows: list[Row] = []
    bar = StepBar(name)
    write_text(path, to_csv(rows))
    bar("starts", 0, len(searches))

    def place(row: Row) -> tuple[int, str, int, int]:
        return options.shapes.index(row.shape), row.searched_by, row.memory or 0, row.in_flight or 0

    with bar, contextlib.closing(in_any_order(searches, options.num_processes)) as answers:
        try:
            for done, found in enumerate(answers, 1):
                if found.interrupted:
                    raise KeyboardInterrupt
                rows = sorted([*rows, *found.rows], key=place)
                write_text(path, to_csv(rows))
                bar(_in_short(found.rows[-1]), done, len(searches))
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; the {len(rows)} rows found so far are in {path}") from None
    return rows


def _in_short(row: Row) -> str:
    return f"{row.shape}, {row.searched_by}"


def to_csv(rows: Iterable[Row]) -> str:
    """Return rows as CSV; what is not there is empty, shares have six digits and seconds two."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(_in_text(name, value) for name, value in asdict(row).items())
    return text.getvalue()


def _in_text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if name == "seconds" else f"{value:.6f}"
    return str(value)


def to_table(rows: Sequence[Row], column: str) -> str:
    """Return bubble rates as text: a line per shape and search, a column for each value of one field.

    What is open is marked with ``?``; ``-`` stands for no repetend.
    """
    values = sorted({getattr(row, column) for row in rows})
    lines: dict[tuple[str, str], dict[int, str]] = {}
    for row in rows:
        rate = "-" if row.bubble_rate is None else f"{100 * row.bubble_rate:.1f}"
        line = lines.setdefault((row.shape, row.searched_by), {})
        line[getattr(row, column)] = rate + ("" if row.decided else "?")
    width = max(len(searched_by) for _, searched_by in lines)
    head = f"{'bubble in %':<11} {column + ' =':>{width}} " + "".join(f"{value:>7}" for value in values)
    return "\n".join(
        [head]
        + [
            f"{shape:<11} {searched_by:<{width}} " + "".join(f"{line.get(value, ''):>7}" for value in values)
            for (shape, searched_by), line in lines.items()
        ]
    )


def save_curves(rows: Sequence[Row], column: str, x_label: str, title: str, path: Path) -> None:
    """Draw the bubble rate against a field, a panel per shape and a curve per search, as PNG and SVG."""
    panels = []
    for shape in dict.fromkeys(row.shape for row in rows):
        curves: dict[str, list[tuple[float, float, float, bool]]] = {}
        for row in rows:
            if row.shape == shape and row.bubble_rate is not None:
                point = (getattr(row, column), row.bubble_rate, row.least_bubble_rate, row.decided)
                curves.setdefault(row.searched_by, []).append(point)
        panels.append(Panel(shape_title(shape), curves))
    figure = draw_curves(panels, x_label, "bubble rate of the steady state", title)
    for form in ("png", "svg"):
        write_bytes(path.with_suffix(f".{form}"), image(figure, form))


def shape_title(shape: str) -> str:
    """Return the name of a shape as people write it."""
    letters = shape.removesuffix("_shape")
    return f"{letters.upper() if len(letters) <= 2 else letters.capitalize()}-shape"


def bubble_rate_at(placement: Placement, period: float) -> float:
    """Return the idle share of a steady state of so many ticks per micro-batch."""
    work = sum(placement.load(device) for device in range(placement.num_devices))
    return 1 - work / (placement.num_devices * period)


def tessel_row(
    placement: Placement, shape: str, in_flight: int, searched_by: str, result: SearchResult
) -> Row:
    """Return what Tessel's search knew when it had tried repetends of up to so many micro-batches."""
    until = [found for found in result.by_in_flight if found.in_flight <= in_flight]
    last = until[-1] if until else None
    period = last.repetend.period if last is not None and last.repetend is not None else None
    bound = last.bound if last is not None and last.in_flight == in_flight else 0
    decided = period is not None and period <= max(bound, result.period_bound)
    rate = None if period is None else bubble_rate_at(placement, period)
    least = bubble_rate_at(placement, float(bounds.period_bound(placement)))
    return Row(
        shape=shape,
        num_devices=placement.num_devices,
        memory=placement.memory[0] if placement.memory is not None else None,
        in_flight=in_flight,
        searched_by=searched_by,
        micro_batches=None if period is None else 1,
        period=period,
        bubble_rate=rate,
        least_bubble_rate=rate if decided and rate is not None else least,
        decided=decided,
        seconds=last.seconds if last is not None else result.seconds,
    )
