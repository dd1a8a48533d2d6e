"""What is written of an item: rows as CSV, its manifest, its own files and its figure; and what is printed.

The module makes no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import schedsearch
from experiments.config.machine import commit, machine
from experiments.reproduce.item import Basis, Claim, Item, Row
from experiments.reproduce.kept_cases import plain_options
from experiments.reproduce.origins import origins_of
from experiments.reproduce.run_item import MadeItem
from placements.forms.texts import csv_text, write_bytes, write_json, write_text
from schedsearch.figures.canvas import image

COLUMNS = (
    *("case", "label", "metric", "ours", "published", "difference", "basis", "claim", "note"),
    *("series", "at", "bound"),
)
"""Of the CSV of rows."""

SCHEMA_VERSION = 2
"""Of the manifest."""

MOST_PRINTED = 120
"""Rows on the screen; of an item that has more those that are not as claimed."""


def write_rows(made: MadeItem, folder: Path) -> Path:
    """Write ``NAME_rows.csv``: a line for each row that is made so far."""
    return write_text(folder / f"{made.item.name}_rows.csv", rows_to_csv(made.rows))


def write_item(made: MadeItem, size: str, folder: Path) -> list[Path]:
    """Write all files of an item, and return their paths; the figure's are in SVG, PDF and PNG."""
    item, rows = made.item, made.rows
    paths = [write_rows(made, folder)]
    paths += [write_text(folder / name, text) for name, text in item.files(rows).items()]
    paths.append(write_json(folder / f"{item.name}.json", manifest(made, size)))
    if item.draw is not None and rows:
        figure = item.draw(rows)
        for form in ("svg", "pdf", "png"):
            paths.append(write_bytes(folder / f"{item.name}.{form}", image(figure, form)))
    return paths


def rows_to_csv(rows: Iterable[Row]) -> str:
    """Return rows as CSV with `COLUMNS`; what is not there is empty."""
    return csv_text(COLUMNS, ([_cell(getattr(row, column)) for column in COLUMNS] for row in rows))


def _cell(value: str | float | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float | int) else value or ""


def row_of(cells: Mapping[str, str]) -> Row:
    """Return the row of a line of the CSV; it has as many digits as the published value.

    Raises:
        KeyError: A column is missing.
        ValueError: A number or a claim is none.
    """
    ours, published, at, bound = (
        float(cells[name]) if cells[name] else None for name in ("ours", "published", "at", "bound")
    )
    return Row(
        cells["label"],
        cells["metric"],
        ours,
        published,
        digits=len(cells["published"].partition(".")[2]),
        basis=Basis(cells["basis"]) if cells["basis"] else None,
        note=cells["note"],
        claim=Claim(cells["claim"]) if cells["claim"] else None,
        series=cells["series"],
        at=at,
        bound=bound,
        case=cells["case"],
    )


def manifest(made: MadeItem, size: str) -> dict[str, Any]:
    """Return what is known of a made item besides its rows, as plain data."""
    item = made.item
    return {
        "schema_version": SCHEMA_VERSION,
        "item": item.name,
        "source": item.source,
        "title": item.title,
        "claim": item.claim.value,
        "tolerance": item.tolerance,
        "margin": item.margin,
        "because": item.because,
        "size": size,
        "options": _without_inputs(made),
        "inputs_sha256": made.of["inputs"],
        "code_sha256": made.of["code"],
        "commit": commit(),
        "version": schedsearch.__version__,
        "machine": machine(),
        "cpu_s": round(made.cpu_s, 2),
        "cases": [{"name": case.name, "cpu_s": round(case.cpu_s, 2)} for case in made.cases],
        "rows": len(made.rows),
        "rows_compared": len(made.compared),
        "rows_as_claimed": len(made.compared) - len(made.not_as_claimed),
        "rows_by_basis": {
            basis.value: sum(item.basis_of(row) is basis for row in made.compared) for basis in Basis
        },
        "trends": [asdict(trend) for trend in made.trends],
    }


def _without_inputs(made: MadeItem) -> dict[str, Any]:
    """Return the options but for the paths of inputs, which are other ones on each machine."""
    options = plain_options(made.options)
    inputs = {**made.item.inputs, **made.item.optional_inputs}
    return {name: value for name, value in options.items() if name not in inputs}


def described(made: MadeItem) -> str:
    """Return an item in words: its rows beside the paper's, what is not as claimed, and the trends."""
    item, rows = made.item, made.rows
    lines = [f"{item.source}: {item.title}"]
    if made.is_anew:
        lines.append("rows of other options, inputs or code were in the folder; all are made anew")
    if made.kept:
        lines.append(f"{made.kept} of {made.num_cases} cases are of an earlier run")
    shown = rows if len(rows) <= MOST_PRINTED else made.not_as_claimed[:MOST_PRINTED]
    if shown:
        lines += ["", *_table(shown), ""]
    if len(shown) < len(rows):
        lines.append(f"{len(rows)} rows, of which {len(shown)} are shown: all are in {item.name}_rows.csv")
    lines.append(f"claimed: {claim_in_words(made)}")
    if origin := origins_of(item):
        lines.append(f"data: {origin}")
    if item.because:
        lines.append(f"because: {item.because}")
    for row in made.not_as_claimed:
        lines.append(f"NOT AS CLAIMED: {row.case}, {row.label}, {row.metric} {row.note}".rstrip())
    for trend in made.trends:
        lines.append(f"{'holds' if trend.holds else 'DOES NOT HOLD'}: {trend.says} ({trend.shown_by})")
    return "\n".join(lines)


def claim_in_words(made: MadeItem) -> str:
    """Return what is claimed, and of how many rows it is so."""
    item = made.item
    within = f" {item.limits}" if item.limits else ""
    compared = len(made.compared)
    held = ", ".join(by_basis(item, made.compared))
    return f"{item.claim.value}{within}" + (f": {held}" if compared else "")


def by_basis(item: Item, compared: Sequence[Row]) -> Iterator[str]:
    """Yield how many rows are as claimed, of each basis that there is, as ``"3 of 4 (printed value)"``."""
    for basis in Basis:
        own = [item.is_as_claimed(row) for row in compared if item.basis_of(row) is basis]
        if own:
            yield f"{sum(own)} of {len(own)} ({basis.value})"


def _table(rows: Sequence[Row]) -> list[str]:
    head = ("case", "label", "metric", "ours", "paper", "difference", "note")
    cells = [head, *map(_cells, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = (zip(row, widths, strict=True) for row in cells)
    return ["  ".join(text.ljust(width) for text, width in line).rstrip() for line in lines]


def _cells(row: Row) -> tuple[str, ...]:
    ours = "" if row.ours is None else f"{row.ours:.{max(row.digits, 0)}f}"
    paper = "" if row.published is None else f"{row.published:.{max(row.digits, 0)}f}"
    difference = "" if row.difference is None else f"{row.difference:+.1%}"
    return (row.case, row.label, row.metric, ours, paper, difference, row.note)
