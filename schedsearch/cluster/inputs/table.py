"""Rows of a table of text, comma or tab separated, with their lines, so that messages can name them."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placements.plain_data import Field
from schedsearch.cluster.gpu_cluster import ClusterError

_MAX = sys.float_info.max
"""The highest finite number: the limit of all numbers, so that infinity is rejected."""


def at_least_0(cell: Field, wanted: str, remedy: str = "give 0 or more") -> float:
    """Return a finite number of 0 or more."""
    return float(cell.number(wanted, remedy, 0, _MAX))


def above_0(cell: Field, wanted: str, remedy: str = "give more than 0") -> float:
    """Return a finite number above 0."""
    return float(cell.number(wanted, remedy, math.ulp(0), _MAX))


def count_of_gpus(cell: Field) -> int:
    """Return a number of GPUs, 1 or more."""
    return cell.whole("a number of GPUs", "give 1 or more", min=1)


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Attributes:
        line: Its number in the file, from 1.
        cells: Cells by column, without blanks around; columns that the row leaves empty are not there.
    """

    line: int
    cells: Mapping[str, str]

    def __contains__(self, column: str) -> bool:
        return column in self.cells

    def __getitem__(self, column: str) -> Field:
        """Return a cell, a number where it reads as one.

        Raises:
            ClusterError: It is empty.
        """
        where = f"line {self.line}, column {column}"
        if column not in self.cells:
            raise ClusterError(f"{where}: is empty; fill the cell or remove the row")
        return Field(_plain(self.cells[column]), where, ClusterError)

    def text(self, column: str) -> str:
        """Return a cell as it is written."""
        return self.cells[column] if column in self else str(self[column].value)

    def wrong(self, text: str) -> ClusterError:
        """Return the error of the whole row."""
        return ClusterError(f"line {self.line}: {text}")


def _plain(cell: str) -> Any:
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            continue
    return cell


def read_text(path: str | Path, wanted: str) -> str:
    """Return the text of a file; a byte-order mark and the ends of lines of other systems are accepted.

    Raises:
        ClusterError: It cannot be read, is not text or is empty; the message does not name the path.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as cause:
        raise ClusterError(f"cannot be read ({cause.strerror}); give {wanted}") from None
    except UnicodeDecodeError:
        raise ClusterError(f"is not UTF-8 text; give {wanted}") from None
    if not text.strip():
        raise ClusterError(f"is empty; give {wanted}")
    return text


def rows_of(text: str, required: Sequence[str], optional: Sequence[str] | None = None) -> list[TableRow]:
    """Return the rows of comma-separated text, whose first line names the columns in any order.

    Args:
        text: Text as `read_text` returns it.
        required: Columns that must be there.
        optional: Columns that may be; where None, any others may be.

    Raises:
        ClusterError: A column is missing, twice there or not known, or a row has other cells than columns.
    """
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
    except csv.Error as cause:
        raise ClusterError(f"is not CSV ({cause}); save it as comma-separated UTF-8") from None
    first, header = lines[0]
    _check_header(first, header, required, optional)
    if len(lines) == 1:
        raise ClusterError("has no rows below the header; give at least one")
    return [row(number, header, cells) for number, cells in lines[1:]]


def row(line: int, header: Sequence[str], cells: Sequence[str]) -> TableRow:
    """Return a row of as many cells as columns.

    Raises:
        ClusterError: It has more or fewer.
    """
    if len(cells) != len(header):
        raise ClusterError(
            f"line {line}: has {len(cells)} cells for {len(header)} columns; "
            f"the columns are {', '.join(header)}"
        )
    return TableRow(line, {column: cell for column, cell in zip(header, cells, strict=True) if cell})


def _check_header(
    line: int, header: Sequence[str], required: Sequence[str], optional: Sequence[str] | None
) -> None:
    known = ", ".join((*required, *(optional or ())))
    for column in required:
        if column not in header:
            raise ClusterError(f"line {line}: lacks the column {column!r}; the columns are {known}")
    for column in header:
        if header.count(column) > 1:
            raise ClusterError(f"line {line}: has the column {column!r} twice; keep one")
        if optional is not None and column not in (*required, *optional):
            raise ClusterError(f"line {line}: has an unknown column {column!r}; the columns are {known}")
