"""The file form of a profile, that of Zeus and Perseus: a CSV file with a row for each block and clock.

In the file clocks are in MHz, times in seconds and energies in joules on one GPU; inside the program times
are milliseconds and energies millijoules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from placements.files import csv_text, write_text
from placements.operating_point import OperatingPoint, ProfileError
from placements.plain_data import Row, csv_rows, read_csv

BLOCK_COLUMNS = ("block", "frequency", "time", "energy")
"""Columns of a profile by block; MHz, s, J."""

STAGE_COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
"""Columns of a profile by stage, as Zeus and Perseus write it; MHz, s, J."""

RANK_COLUMNS = ("rank", "instruction", "frequency", "avg_time", "avg_energy")
"""Columns of a profile by process, as Zeus's server writes it, one process for each stage; MHz, s, J."""

_LETTER = {"forward": "F", "backward": "B"}

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
    return _points(read_csv(path, ProfileError), 1e3 * time_scale, 1e3 * energy_scale)


def points_of_text(text: str) -> Points:
    """Return the operating points of what a CSV file holds.

    Raises:
        ProfileError: The text is wrong.
    """
    return _points(text, 1e3, 1e3)


def _points(text: str, ms_per_unit: float, mj_per_unit: float) -> Points:
    """Return the operating points of CSV text whose header is one of the three forms."""
    forms = BLOCK_COLUMNS, STAGE_COLUMNS, RANK_COLUMNS
    found: dict[str, dict[int, OperatingPoint]] = {}
    for number, row in csv_rows(text, "block and clock", ProfileError, *forms):
        block, clock = _block_name(row), _clock(row)
        time, energy = _cost(row, "time"), _cost(row, "energy")
        if time == 0:
            raise ProfileError(
                f"line {number}, column time: 0 is not above 0; give the seconds the block takes"
            )
        points = found.setdefault(block, {})
        if clock in points:
            raise ProfileError(f"line {number}: {block} at {clock} MHz is given twice; keep one row")
        points[clock] = OperatingPoint(clock, time * ms_per_unit, energy * mj_per_unit)
    return {block: tuple(points[clock] for clock in sorted(points)) for block, points in found.items()}


def _block_name(row: Row) -> str:
    if "block" in row:
        return str(row["block"].value)
    letter = _LETTER[row["instruction"].choice(tuple(_LETTER))]
    column = "rank" if "rank" in row else "stage"
    if not re.fullmatch(r"[0-9]+", row[column].value):
        raise row[column].wrong(f"a {column}", "use 0, 1, 2 ...")
    return f"{letter}{int(row[column].value)}"


def _clock(row: Row) -> int:
    return int(row["frequency"].figure("a clock", "give whole MHz above 0", 1, _LARGEST, is_whole=True))


def _cost(row: Row, column: str) -> float:
    cell = row[f"avg_{column}" if "rank" in row else column]
    value = cell.figure()
    if value < 0:
        raise cell.wrong("0 or more", "measure it again")
    if value > _LARGEST or 0 < value < 1 / _LARGEST:
        raise cell.wrong("in a possible range", "check its unit")
    return value


_LARGEST = 1e9
"""Seconds, joules or megahertz beyond which a figure is a mistake; likewise below one over it."""
