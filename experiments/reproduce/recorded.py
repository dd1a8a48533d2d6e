"""The results that the project keeps of its items: full ones and small ones, as they were made once.

They are in ``results``: the rows of an item in a file of its name, what is known besides in ``full.json`` and
``small.json``. The page of results is written from them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Claim, Item, Row
from experiments.reproduce.item_files import COLUMNS, row_of
from placements.files import csv_text, write_json, write_text
from placements.plain_data import json_file
from placements.tables import csv_lines, csv_rows, read_csv

FOLDER = Path(__file__).with_name("results")
"""Of all results."""

_SIZE = "size"
"""Column of a kept table, before those of `COLUMNS`."""

MEASURED = {
    *("search_s", "search_cpu_s", "over_tessels_search_s", "share_of_search_s", "ratio_of_search_s"),
    *("start_ticks", "peak_activations", "num_blocks", "found_bubble_rate"),
}
"""Metrics that are not the same twice: they are measured on the machine, or of one of several schedules that
are as good as each other."""

TOLERANCE = 0.05
"""Of values that are not exact, from run to run, as a part of the value, of 1 if that is more.

Searches find one of several optima, another one in another version; Tessel's end by the clock."""


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


def recorded_items(size: str, folder: Path = FOLDER) -> set[str]:
    """Return the names of the items of which there is a result of that size."""
    return set(_manifests(size, folder))


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


def changes(item: Item, rows: Sequence[Row], before: Sequence[Row]) -> list[str]:
    """Return how rows differ from those that were kept, a line for each; nothing where they are the same.

    Of an exact item the values that the paper has are compared: others may be of any of several optima.

    Args:
        item: Item that the rows belong to.
        rows: Made now.
        before: Kept.
    """
    ours = {_place(row): row.ours for row in rows}
    theirs = {_place(row): row.ours for row in before}
    lines = [f"{', '.join(place)}: is new" for place in ours if place not in theirs]
    lines += [f"{', '.join(place)}: is gone" for place in theirs if place not in ours]
    tolerance = 1e-9 if item.claim is Claim.EXACT else TOLERANCE
    compared = {_place(row) for row in rows if item.claim is not Claim.EXACT or row.published is not None}
    for place in compared & theirs.keys():
        now, then = ours[place], theirs[place]
        if place[-1] not in MEASURED and not _is_near(now, then, tolerance):
            lines.append(f"{', '.join(place)}: {then} is now {now}")
    return sorted(lines)


def _is_near(now: float | None, then: float | None, tolerance: float) -> bool:
    if now is None or then is None:
        return now is then
    return abs(now - then) <= tolerance * max(1.0, abs(now), abs(then))


def _place(row: Row) -> tuple[str, str, str]:
    return row.case, row.label, row.metric


def _read_rows(path: Path, size: str) -> Iterator[Row]:
    try:
        for row in csv_rows(path, "value", RecordedError, (_SIZE, *COLUMNS)):
            if row.text(_SIZE) == size:
                yield row_of({name: row.cells.get(name, "") for name in COLUMNS})
    except RecordedError:
        raise
    except ValueError as error:
        raise RecordedError(f"{path}: is not a table of rows ({error}); record the item anew") from None
