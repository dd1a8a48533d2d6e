"""Rows of items as CSV, and the results that the project keeps.

Kept results are in ``results``: the rows of an item in a file of its name, the manifests in ``full.json`` and
``small.json``. The page of results is written from them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Basis, Claim, Row
from placements.forms.reading import json_file
from placements.forms.tables import csv_lines, csv_rows, read_csv
from placements.forms.texts import csv_text, write_json, write_text

FOLDER = Path(__file__).with_name("results")
"""All results."""

COLUMNS = (
    *("case", "label", "metric", "ours", "published", "difference", "basis", "claim", "note"),
    *("series", "at", "bound"),
)
"""Columns of rows."""

_SIZE = "size"
"""Column of a kept table, before `COLUMNS`."""


class RecordedError(ValueError):
    """A recorded result is wrong; the message names the file, the field and the remedy in one line."""


@dataclass(frozen=True)
class Recorded:
    """A kept result: the manifest of `experiments.reproduce.item_files.manifest`, and the rows in order."""

    manifest: dict[str, Any]
    rows: tuple[Row, ...]


def rows_to_csv(rows: Iterable[Row]) -> str:
    """Return rows as CSV with `COLUMNS`; missing values are empty."""
    return csv_text(COLUMNS, ([_cell(getattr(row, column)) for column in COLUMNS] for row in rows))


def _cell(value: str | float | None) -> str:
    return f"{value:.12g}" if isinstance(value, float | int) else value or ""


def row_of(cells: Mapping[str, str]) -> Row:
    """Return the row of a line of the CSV; it has as many digits as the published value.

    Raises:
        ValueError: A number or a claim is none.
    """
    texts = ("label", "metric", "note", "series", "case")
    given: dict[str, Any] = {name: cells.get(name, "") for name in texts}
    for name in ("ours", "published", "at", "bound"):
        given[name] = float(cells[name]) if cells.get(name) else None
    return Row(
        **given,
        digits=len(cells.get("published", "").partition(".")[2]),
        basis=Basis(basis) if (basis := cells.get("basis")) else None,
        claim=Claim(claim) if (claim := cells.get("claim")) else None,
    )


def record(name: str, size: str, made: Path, folder: Path = FOLDER) -> Path:
    """Keep rows and manifest of an item from the folder in which it was made."""
    folder.mkdir(parents=True, exist_ok=True)
    with json_file(made / f"{name}.json", "a manifest", RecordedError) as data:
        manifests = _manifests(size, folder) | {name: data.mapping()}
    target = folder / f"{name}.csv"
    lines = [line for line in _lines(target) if line[0] != size] if target.exists() else []
    lines += [[size, *line] for line in _lines(made / f"{name}_rows.csv")]
    lines.sort(key=lambda line: line[0])
    write_text(target, csv_text((_SIZE, *COLUMNS), lines))
    write_json(folder / f"{size}.json", dict(sorted(manifests.items())))
    return target


def _lines(path: Path) -> list[list[str]]:
    return [cells for _, cells in csv_lines(read_csv(path, RecordedError), RecordedError)][1:]


def _manifests(size: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{size}.json"
    if not path.exists():
        return {}
    with json_file(path, "a file of manifests", RecordedError) as data:
        return dict(data.mapping())


def read_recorded(name: str, size: str, folder: Path = FOLDER) -> Recorded | None:
    """Return a kept result; None where there is none.

    Raises:
        RecordedError: A file of it is missing or wrong.
    """
    manifest = _manifests(size, folder).get(name)
    if manifest is None:
        return None
    return Recorded(manifest, tuple(_read_rows(folder / f"{name}.csv", size)))


def _read_rows(path: Path, size: str) -> Iterator[Row]:
    try:
        for row in csv_rows(path, "value", RecordedError, (_SIZE, *COLUMNS)):
            if row.text(_SIZE) == size:
                yield row_of(row.cells)
    except RecordedError:
        raise
    except ValueError as error:
        raise RecordedError(f"{path}: is not a table of rows ({error}); record the item anew") from None
