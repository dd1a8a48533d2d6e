"""Result of a made item: its rows, its manifest, its figure, and the text that is printed of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import schedsearch
from experiments.config.machine import commit, machine
from experiments.report.result import Result
from experiments.reproduce.item import Item, Row
from experiments.reproduce.recorded import rows_to_csv
from experiments.reproduce.run_item import MadeItem
from placements.forms.texts import text_columns, write_bytes
from schedsearch.figures.canvas import image

SCHEMA_VERSION = 4
"""Version of the manifest."""

MOST_PRINTED = 120
"""Rows on the screen; of an item that has more those that are not as claimed."""

MAX_DIGITS = 4
"""Digits after the point in a table for people."""

COLUMNS = ("case", "value", "metric", "ours", "paper", "difference", "note")
"""Columns of rows in a table for people; see `cells_of`."""


def item_result(made: MadeItem, size: str) -> Result:
    """Return the figures, the files and the text of an item; of one that was interrupted the rows so far."""
    item = made.item
    files: dict[str, object] = {f"{item.name}_rows.csv": rows_to_csv(made.rows)}
    if not made.is_whole:
        kept = f"{len(made.cases)} of {made.num_cases} cases of {item.name} are kept"
        return Result(files=files, interrupted=f"{kept}, and the same command goes on there, in")
    files[f"{item.name}.json"] = manifest(made, size)
    drawn = [item.name] if item.draw is not None and made.rows else []
    return Result(
        figures=_counts(made),
        files=files,
        pictures={name: partial(_draw, item, made.rows) for name in drawn},
        sentences=list(_sentences(made)),
    )


def _counts(made: MadeItem) -> dict[str, float]:
    good, compared = made.item.as_claimed(made.rows)
    return {
        "rows": len(made.rows),
        "rows_compared": compared,
        "rows_as_claimed": good,
        "trends": len(made.trends),
        "trends_that_hold": sum(trend.holds for trend in made.trends),
        "cpu_s": round(sum(case.cpu_s for case in made.cases), 2),  # of an earlier run too
    }


def _draw(item: Item, rows: Sequence[Row], path: Path) -> None:
    """Draw the paper's figure in SVG, PDF and PNG."""
    assert item.draw is not None
    figure = item.draw(rows)
    for form in ("svg", "pdf", "png"):
        write_bytes(path.with_suffix(f".{form}"), image(figure, form))


def manifest(made: MadeItem, size: str) -> dict[str, Any]:
    """Return source, claim, options, versions, counts and trends as plain data, without paths of inputs."""
    item = made.item
    return {
        "schema_version": SCHEMA_VERSION,
        "item": item.name,
        **{
            name: getattr(item, name)
            for name in ("source", "title", "claim", "tolerance", "margin", "because")
        },
        "size": size,
        "options": {key: value for key, value in made.of["options"].items() if key != "data"},
        "inputs_sha256": made.of["inputs"],
        "code_sha256": made.of["code"],
        "commit": commit(),
        "version": schedsearch.__version__,
        "machine": machine(),
        "cases": [{"name": case.name, "cpu_s": round(case.cpu_s, 2)} for case in made.cases],
        **_counts(made),
        "trends": [asdict(trend) for trend in made.trends],  # in place of their number
    }


def _sentences(made: MadeItem) -> Iterator[str]:
    """Yield an item in words: its rows beside the paper's, rows that are not as claimed, and the trends."""
    item, rows = made.item, made.rows
    yield f"{item.source}: {item.title}"
    if made.num_kept:
        yield f"{made.num_kept} of {made.num_cases} cases are of an earlier run"
    shown = rows if len(rows) <= MOST_PRINTED else made.not_as_claimed[:MOST_PRINTED]
    if shown:
        yield from ("", *text_columns([COLUMNS, *(cells_of(row, 0) for row in shown)]), "")
    if len(shown) < len(rows):
        yield f"{len(rows)} rows, of which {len(shown)} are shown: all are in {item.name}_rows.csv"
    good, compared = item.as_claimed(rows)
    yield f"claimed: {item.claimed}" + (f": {good} of {compared}" if compared else "")
    if item.origin:
        yield f"data: {item.origin}"
    if item.because:
        yield f"because: {item.because}"
    for row in made.not_as_claimed:
        yield f"NOT AS CLAIMED: {row.case}, {row.label}, {row.metric} {row.note}".rstrip()
    for trend in made.trends:
        yield f"{'holds' if trend.holds else 'DOES NOT HOLD'}: {trend.conclusion} ({trend.shown_by})"


def cells_of(row: Row, min_digits: int) -> tuple[str, ...]:
    """Return a row in a table for people; ours has at least a number of digits after the point."""
    digits = min(row.digits, MAX_DIGITS)
    ours, paper = _number(row.ours, max(digits, min_digits)), _number(row.published, digits)
    difference = "" if row.difference is None else f"{row.difference:+z.1%}"
    return row.case, row.label, row.metric, ours, paper, difference, row.note


def _number(value: float | None, digits: int) -> str:
    """Return a value with digits after the point, or without them if it is whole."""
    return "" if value is None else f"{value:.{digits if value % 1 else 0}f}"
