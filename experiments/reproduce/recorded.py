"""Rows of items as CSV, and the results that the project keeps.

Kept results are in ``results``: the rows of an item in a file of its name, of all sizes, and the manifests in
``full.json`` and ``small.json``. The page of results is written from them alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Row
from placements.forms.tables import csv_records
from placements.forms.texts import csv_text, write_json, write_text

PROJECT = Path(__file__).parents[2]

FOLDER = Path(__file__).with_name("results")
"""All results."""

SIZES = ("full", "small")

COLUMNS = (
    *("case", "label", "metric", "ours", "published", "difference", "claim", "note"),
    *("series", "at", "bound"),
)
"""Columns of rows."""


@dataclass(frozen=True)
class Recorded:
    """A kept result: the manifest of `experiments.reproduce.item_result.manifest`, and the rows in order."""

    manifest: dict[str, Any]
    rows: tuple[Row, ...]


def rows_to_csv(rows: Iterable[Row]) -> str:
    """Return rows as CSV with `COLUMNS`; missing values are empty."""
    return csv_text(COLUMNS, map(_cells, rows))


def _cells(row: Row) -> list[str]:
    values = (getattr(row, column) for column in COLUMNS)
    return [f"{value:.12g}" if isinstance(value, float | int) else value or "" for value in values]


def record(
    name: str, size: str, manifest: Mapping[str, Any], rows: Iterable[Row], folder: Path = FOLDER
) -> None:
    """Keep the manifest and the rows of an item beside the rows of its other size."""
    folder.mkdir(parents=True, exist_ok=True)
    manifests = _manifests(size, folder) | {name: manifest}
    kept = {kept_size: _read_rows(name, kept_size, folder) for kept_size in SIZES} | {size: tuple(rows)}
    lines = ([kept_size, *_cells(row)] for kept_size in SIZES for row in kept[kept_size])
    write_text(folder / f"{name}.csv", csv_text(("size", *COLUMNS), lines))
    write_json(folder / f"{size}.json", dict(sorted(manifests.items())))


def read_recorded(name: str, size: str, folder: Path = FOLDER) -> Recorded | None:
    """Return a kept result; None where there is none.

    Raises:
        ValueError: A line of its table is wrong.
    """
    manifest = _manifests(size, folder).get(name)
    return None if manifest is None else Recorded(manifest, _read_rows(name, size, folder))


def _manifests(size: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{size}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _read_rows(name: str, size: str, folder: Path) -> tuple[Row, ...]:
    """Return kept rows; they have as many digits as the published value."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return ()
    records = csv_records(path, "value", ValueError, Row, others=True, only={"size": [size]})
    return tuple(replace(row, digits=_digits(row.published)) for _, row in records)


def _digits(published: float | None) -> int:
    return 0 if published is None else len(f"{published:.12g}".partition(".")[2])
