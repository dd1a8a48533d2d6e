"""Files of a made item: its rows, its manifest and its figure; and the text that is printed of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import schedsearch
from experiments.config.machine import commit, machine
from experiments.reproduce.catalogue import origin_of
from experiments.reproduce.item import Item, Row
from experiments.reproduce.recorded import rows_to_csv
from experiments.reproduce.run_item import MadeItem
from placements.forms.texts import write_bytes, write_json, write_text
from schedsearch.figures.canvas import image

SCHEMA_VERSION = 2
"""Version of the manifest."""

MOST_PRINTED = 120
"""Rows on the screen; of an item that has more those that are not as claimed."""


def write_item(made: MadeItem, size: str, folder: Path) -> list[Path]:
    """Write all files of an item, and return their paths; the figure's are in SVG, PDF and PNG."""
    item, rows = made.item, made.rows
    paths = [write_text(folder / f"{item.name}_rows.csv", rows_to_csv(rows))]
    paths.append(write_json(folder / f"{item.name}.json", manifest(made, size)))
    if item.draw is not None and rows:
        figure = item.draw(rows)
        for form in ("svg", "pdf", "png"):
            paths.append(write_bytes(folder / f"{item.name}.{form}", image(figure, form)))
    return paths


def manifest(made: MadeItem, size: str) -> dict[str, Any]:
    """Return source, claim, options, versions, counts and trends as plain data, without paths of inputs."""
    item, counts = made.item, made.item.as_claimed(made.rows)
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
        "options": {key: value for key, value in made.of["options"].items() if key != "data"},
        "inputs_sha256": made.of["inputs"],
        "code_sha256": made.of["code"],
        "commit": commit(),
        "version": schedsearch.__version__,
        "machine": machine(),
        "cpu_s": round(made.cpu_s, 2),
        "cases": [{"name": case.name, "cpu_s": round(case.cpu_s, 2)} for case in made.cases],
        "rows": len(made.rows),
        "rows_compared": sum(whole for _, whole in counts.values()),
        "rows_as_claimed": sum(good for good, _ in counts.values()),
        "rows_by_basis": {basis.value: whole for basis, (_, whole) in counts.items()},
        "trends": [asdict(trend) for trend in made.trends],
    }


def described(made: MadeItem) -> str:
    """Return an item in words: its rows beside the paper's, rows that are not as claimed, and the trends."""
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
    held = counts_by_basis(item, rows)
    within = f" {item.limits}" if item.limits else ""
    lines.append(f"claimed: {item.claim.value}{within}" + (f": {held}" if held else ""))
    if origin := origin_of(item):
        lines.append(f"data: {origin}")
    if item.because:
        lines.append(f"because: {item.because}")
    for row in made.not_as_claimed:
        lines.append(f"NOT AS CLAIMED: {row.case}, {row.label}, {row.metric} {row.note}".rstrip())
    for trend in made.trends:
        lines.append(f"{'holds' if trend.holds else 'DOES NOT HOLD'}: {trend.says} ({trend.shown_by})")
    return "\n".join(lines)


def counts_by_basis(item: Item, rows: Sequence[Row]) -> str:
    """Return how many rows are as claimed, of each basis that there is, as ``3 of 4 (printed value)``."""
    counts = item.as_claimed(rows)
    return ", ".join(f"{good} of {whole} ({basis.value})" for basis, (good, whole) in counts.items() if whole)


def _table(rows: Sequence[Row]) -> list[str]:
    head = ("case", "label", "metric", "ours", "paper", "difference", "note")
    cells = [head, *(cells_of(row, 0) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = (zip(row, widths, strict=True) for row in cells)
    return ["  ".join(text.ljust(width) for text, width in line).rstrip() for line in lines]


def cells_of(row: Row, min_digits: int) -> tuple[str, ...]:
    """Return a row in a table for people; ours has at least this number of digits after the point."""
    ours = "" if row.ours is None else f"{row.ours:.{max(row.digits, min_digits)}f}"
    paper = "" if row.published is None else f"{row.published:.{row.digits}f}"
    difference = "" if row.difference is None else f"{row.difference:+.1%}"
    return row.case, row.label, row.metric, ours, paper, difference, row.note
