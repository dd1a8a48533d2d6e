"""A CSV file of measurements, read row by row: a mistake is one line with its place and the remedy.

It does not know what the columns mean.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placements.operating_point import ProfileError

_LONGEST = 60
"""Characters of a cell that a message shows."""


@dataclass(frozen=True)
class Cell:
    """One cell, and where it stands.

    Attributes:
        text: Without spaces around it.
        line: Of the row, in the file.
        column: Its name.
    """

    text: str
    line: int
    column: str

    def wrong(self, wanted: str, remedy: str = "give one") -> ProfileError:
        """Return the error of a cell that is not what is wanted."""
        shown = repr(self.text if len(self.text) <= _LONGEST else f"{self.text[:_LONGEST]}...")
        return self.error(f"{shown} is not {wanted}; {remedy}")

    def error(self, text: str) -> ProfileError:
        """Return an error of this cell."""
        return ProfileError(f"line {self.line}, column {self.column}: {text}")

    def number(self, wanted: str, least: float = -math.inf, most: float = math.inf) -> float:
        """Return a finite number within limits, which are included."""
        try:
            value = float(self.text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and least <= value <= most):
            raise self.wrong(wanted)
        return value

    def whole(self, wanted: str, least: int, most: int) -> int:
        """Return a whole number within limits."""
        value = self.number(wanted, least, most)
        if value != int(value):
            raise self.wrong(wanted)
        return int(value)


@dataclass(frozen=True)
class TableRow:
    """One row: its cells by column.

    Attributes:
        line: In the file.
        cells: Texts by column; a column that the file lacks is not there.
    """

    line: int
    cells: dict[str, str]

    def __getitem__(self, column: str) -> Cell:
        """Return a cell that must have something in it."""
        cell = self.get(column)
        if cell is None:
            raise Cell("", self.line, column).error("is missing; fill the cell or add the column")
        return cell

    def get(self, column: str) -> Cell | None:
        """Return a cell; None where it is empty or the file has no such column."""
        text = self.cells.get(column, "").strip()
        return Cell(text, self.line, column) if text else None


def read_table(path: Path, columns: Sequence[str]) -> list[TableRow]:
    """Return the rows below the header.

    Args:
        path: The file.
        columns: That each row must have filled.

    Raises:
        ProfileError: The file cannot be read, has no rows or lacks something; the message does not name it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in next(lines, [])]
        rows = [_row(lines.line_num, header, cells) for cells in lines if any(cells)]
    except OSError as cause:
        raise ProfileError(f"cannot be read ({cause.strerror}); give the path of a CSV file") from None
    except (UnicodeDecodeError, csv.Error):
        raise ProfileError("is not CSV text; save it as comma-separated UTF-8") from None
    if not rows:
        raise ProfileError("has no rows below the header; give one for each run")
    for column in header:
        if header.count(column) > 1:
            raise ProfileError(f"line 1: column {column[:_LONGEST]!r} is there twice; rename one")
    for row in rows:
        for column in columns:
            row[column]
    return rows


def _row(line: int, header: list[str], cells: list[str]) -> TableRow:
    if len(cells) > len(header):
        raise ProfileError(f"line {line}: has {len(cells)} cells for {len(header)} columns; remove some")
    return TableRow(line, dict(zip(header, cells, strict=False)))
