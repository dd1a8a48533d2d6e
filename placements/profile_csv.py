"""The file form of a profile, that of Zeus and Perseus: a CSV file with a row for each block and clock.

In the file clocks are in MHz, times in seconds and energies in joules on one GPU; inside the program times
are milliseconds and energies millijoules.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from placements.files import csv_text, write_text
from placements.operating_point import OperatingPoint, ProfileError

BLOCK_COLUMNS = ("block", "frequency", "time", "energy")
"""Columns of a profile by block; MHz, s, J."""

STAGE_COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
"""Columns of a profile by stage, as Zeus and Perseus write it; MHz, s, J."""

RANK_COLUMNS = ("rank", "instruction", "frequency", "avg_time", "avg_energy")
"""Columns of a profile by process, as Zeus's server writes it, one process for each stage; MHz, s, J."""

_LETTER = {"forward": "F", "backward": "B"}

Row = tuple[int, Mapping[str, str]]
"""Line number and cells of a row."""

Points = dict[str, tuple[OperatingPoint, ...]]
"""Operating points of each block, by ascending clock."""


def write_profile_rows(path: Path, rows: Iterable[tuple[str, int | None, float, float | None]]) -> None:
    """Write a profile of which not all was measured, all of it or nothing.

    Args:
        path: The CSV file.
        rows: Block, clock in MHz, time in milliseconds, energy in millijoules; None leaves the cell empty,
            which `Profile.from_csv` rejects.

    Raises:
        ProfileError: The file cannot be written.
    """
    lines = [
        (
            block,
            "" if clock_mhz is None else clock_mhz,
            repr(time_ms / 1e3),
            "" if energy_mj is None else repr(energy_mj / 1e3),
        )
        for block, clock_mhz, time_ms, energy_mj in rows
    ]
    try:
        write_text(path, csv_text(BLOCK_COLUMNS, lines))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror}); give another path") from None


def points_of_file(path: Path, time_scale: float, energy_scale: float) -> Points:
    """Return the operating points of a CSV file.

    Args:
        path: The file; see `placements.profile.Profile.from_csv`.
        time_scale: Factor on its times.
        energy_scale: Factor on its energies.

    Raises:
        ProfileError: The file cannot be read or is wrong; the message does not name it.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _read_points(_rows(file), 1e3 * time_scale, 1e3 * energy_scale)
    except OSError as error:
        raise ProfileError(f"cannot be read ({error.strerror}); give the path of a CSV file") from None


def points_of_text(text: str) -> Points:
    """Return the operating points of what a CSV file holds.

    Raises:
        ProfileError: The text is wrong.
    """
    return _read_points(_rows(io.StringIO(text.removeprefix("\ufeff"), newline="")), 1e3, 1e3)


def _rows(file: Iterable[str]) -> list[Row]:
    """Return the rows of CSV text whose header is one of the three forms."""
    try:
        reader = csv.reader(file, strict=True)
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except (UnicodeDecodeError, csv.Error):
        raise ProfileError("is not CSV text; save it as comma-separated UTF-8") from None
    if not lines:
        raise ProfileError(f"is empty; give the columns {','.join(BLOCK_COLUMNS)}")
    header = [cell.strip() for cell in lines[0][1]]
    if sorted(header) not in [sorted(columns) for columns in (BLOCK_COLUMNS, STAGE_COLUMNS, RANK_COLUMNS)]:
        raise ProfileError(
            f"line {lines[0][0]}: the columns are {','.join(header)[:120]!r}; "
            f"use {','.join(BLOCK_COLUMNS)} or {','.join(STAGE_COLUMNS)}"
        )
    if len(lines) == 1:
        raise ProfileError("has no rows below the header; give one for each block and clock")
    return [(number, _cells(number, header, cells)) for number, cells in lines[1:]]


def _cells(number: int, header: list[str], cells: list[str]) -> Mapping[str, str]:
    if len(cells) > len(header):
        raise ProfileError(
            f"line {number}: has {len(cells)} cells for {len(header)} columns; remove the others"
        )
    row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
    for column in header:
        if not row.get(column):
            raise ProfileError(f"line {number}, column {column}: is missing; fill the cell or remove the row")
    return row


def _read_points(rows: list[Row], ms_per_unit: float, mj_per_unit: float) -> Points:
    found: dict[str, dict[int, OperatingPoint]] = {}
    for number, row in rows:
        block, clock = _block_name(number, row), _clock(number, row)
        time, energy = _cost(number, row, "time"), _cost(number, row, "energy")
        if time == 0:
            raise ProfileError(
                f"line {number}, column time: 0 is not above 0; give the seconds the block takes"
            )
        points = found.setdefault(block, {})
        if clock in points:
            raise ProfileError(f"line {number}: {block} at {clock} MHz is given twice; keep one row")
        points[clock] = OperatingPoint(clock, time * ms_per_unit, energy * mj_per_unit)
    return {block: tuple(points[clock] for clock in sorted(points)) for block, points in found.items()}


def _block_name(number: int, row: Mapping[str, str]) -> str:
    if "block" in row:
        return row["block"]
    if row["instruction"] not in _LETTER:
        raise ProfileError(
            f"line {number}, column instruction: {row['instruction']!r} is not known; use forward or backward"
        )
    column = "rank" if "rank" in row else "stage"
    if not re.fullmatch(r"[0-9]+", row[column]):
        raise ProfileError(
            f"line {number}, column {column}: {row[column]!r} is not a {column}; use 0, 1, 2 ..."
        )
    return f"{_LETTER[row['instruction']]}{int(row[column])}"


def _number(number: int, row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ProfileError(
            f"line {number}, column {column}: {row[column]!r} is not a number; give a finite one"
        )
    return value


def _clock(number: int, row: Mapping[str, str]) -> int:
    value = _number(number, row, "frequency")
    if not 0 < value < _LARGEST or value != int(value):
        raise ProfileError(
            f"line {number}, column frequency: {row['frequency']!r} is not a clock; give whole MHz above 0"
        )
    return int(value)


def _cost(number: int, row: Mapping[str, str], column: str) -> float:
    column = f"avg_{column}" if "rank" in row else column
    value = _number(number, row, column)
    if value < 0:
        raise ProfileError(f"line {number}, column {column}: {row[column]!r} is negative; measure it again")
    if value > _LARGEST or 0 < value < 1 / _LARGEST:
        raise ProfileError(
            f"line {number}, column {column}: {row[column]!r} is out of all range; check its unit"
        )
    return value


_LARGEST = 1e9
"""Seconds, joules or megahertz beyond which a figure is a mistake; likewise below one over it."""
