"""The results that the project keeps of its items: full ones and small ones, as they were made once.

They are in ``results``: the rows of an item in a file of its name, what is known besides in ``full.json`` and
``small.json``. The page of results is written from them alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Row
from experiments.reproduce.item_files import COLUMNS, row_of
from placements.forms.reading import json_file
from placements.forms.tables import csv_lines, csv_rows, read_csv
from placements.forms.texts import csv_text, write_json, write_text

FOLDER = Path(__file__).with_name("results")
"""Of all results."""

_SIZE = "size"
"""Column of a kept table, before those of `COLUMNS`."""


class RecordedError(ValueError):
    """A recorded result is wrong; the message names the file, the field and the remedy in one line."""


@dataclass(frozen=True)
class Recorded:
    """A kept result.

    Attributes:
        manifest: Manifest of the run; see `experiments.reproduce.item_files.manifest`.
        rows: In their order.
    """

    manifest: dict[str, Any]
    rows: tuple[Row, ...]


def record(name: str, size: str, made: Path, folder: Path = FOLDER) -> Path:
    """Keep rows and manifest of an item from the folder in which it was made; figures are drawn of these."""
    folder.mkdir(parents=True, exist_ok=True)
    with json_file(made / f"{name}.json", "a manifest", RecordedError) as data:
        known = _manifests(size, folder) | {name: data.mapping()}
    target = folder / f"{name}.csv"
    others = _lines(target) if target.exists() else []
    lines = [[size, *line] for line in _lines(made / f"{name}_rows.csv")]
    lines = sorted(lines + [line for line in others if line[0] != size], key=lambda line: line[0])
    write_text(target, csv_text((_SIZE, *COLUMNS), lines))
    write_json(folder / f"{size}.json", dict(sorted(known.items())))
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
                yield row_of({name: row.cells.get(name, "") for name in COLUMNS})
    except RecordedError:
        raise
    except ValueError as error:
        raise RecordedError(f"{path}: is not a table of rows ({error}); record the item anew") from None
