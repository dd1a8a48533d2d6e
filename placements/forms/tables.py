"""CSV tables, read row by row; all packages read tables by the same rules.

``docs/files.md`` says which forms of header, cells, lines and numbers a table may have. An error is one line
with the line of the file, column, value and remedy.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from placements.forms.meaning import declared_fields
from placements.forms.reading import Field, Record, in_file

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_AFTER_QUOTE = re.compile(r'" +(?=[,;\t\r\n]|\Z)')


class Cell(Field):
    """A table cell: text from which numbers are parsed; bars separate the entries of a list."""

    def items(self, wanted: str = "a list", remedy: str = "give one") -> list[Field]:
        """Return the parts of the text, without the spaces around them."""
        return [self.inside(i, part.strip()) for i, part in enumerate(self.value.split("|"))]

    @property
    def parsed(self) -> Any:
        """The number or truth value of the text; None if the text is neither."""
        text = str(self.value)
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        if _WHOLE.fullmatch(text):
            return int(text)
        return float(text) if _NUMBER.fullmatch(text) and math.isfinite(float(text)) else None


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        line: Its number in the file, from 1.
        cells: Cells by column, without spaces around; columns that the row leaves empty are not there.
        error: Exception type to raise for a wrong cell.
    """

    line: int
    cells: Mapping[str, str]
    error: type[ValueError]

    def __contains__(self, column: str) -> bool:
        return column in self.cells

    def __getitem__(self, column: str) -> Cell:
        """Return a cell that is not empty."""
        where = f"line {self.line}, column {column}"
        if column not in self.cells:
            raise self.error(f"{where}: is empty; fill the cell or remove the row")
        return Cell(self.cells[column], where, self.error)

    def text(self, column: str) -> str:
        """Return the text of a cell, which must not be empty."""
        return self.cells[column] if column in self.cells else self[column].text()

    def wrong(self, text: str) -> ValueError:
        """Return the error of the whole row."""
        return self.error(f"line {self.line}: {text}")


def read_csv(path: str | Path, error: type[ValueError], wanted: str = "the path of a CSV file") -> str:
    """Return the text of a CSV file, decompressed if gzipped; error messages do not name the file."""
    try:
        data = Path(path).read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return data.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
        raise error(f"cannot be unpacked ({cause}); give a CSV file packed by gzip") from None
    except OSError as cause:
        raise error(f"cannot be read ({cause.strerror}); give {wanted}") from None
    except UnicodeDecodeError as cause:
        line = 1 + data.count(b"\n", 0, cause.start)
        raise error(f"line {line}: is not UTF-8 text; save the file as comma-separated UTF-8") from None


def csv_lines(text: str, error: type[ValueError]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of CSV text with their numbers, cells without the spaces around them."""
    text = text.removeprefix("\ufeff")
    header = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    separator = next((mark for mark in ";\t" if mark in header and "," not in header), ",")
    file = io.StringIO(_AFTER_QUOTE.sub('"', text), newline="")
    reader = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, [cell.strip() for cell in cells]
            line = reader.line_num + 1
    except csv.Error as cause:
        remedy = "close its quotes, and double those within a cell"
        raise error(f"line {line}: is not CSV ({cause}); {remedy}") from None


_Columns = Mapping[str, bool]
"""Columns that a table may have, and whether it must."""


def _read(
    table: str | Path, row_for_each: str, error: type[ValueError], forms: Sequence[_Columns], is_open: bool
) -> Iterator[Any]:
    """Yield the place of the form that a table has, then the rows."""
    text = read_csv(table, error) if isinstance(table, Path) else table
    lines = ((line, cells) for line, cells in csv_lines(text, error) if any(cells))
    line, header = next(lines, (0, [""]))
    if not line:
        raise error(f"is empty; give a header, and a row for each {row_for_each}")
    while not header[-1]:
        header.pop()
    known = {name.casefold(): name for form in forms for name in form}
    header = [known.get(name.casefold(), name) for name in header]
    wrong = []
    for form in forms:
        missing = [name for name, is_needed in form.items() if is_needed and name not in header]
        others = [name for name in header if name not in form and not is_open]
        wrong.append([f"lacks the column {name!r}" for name in missing])
        wrong[-1] += [f"has an unknown column {name!r}" for name in others]
    if [] not in wrong:
        likely = max(range(len(forms)), key=lambda i: len(forms[i].keys() & {*header}))
        columns = (",".join(name for name in form if form[name] or not is_open) for form in forms)
        raise error(f"line {line}: {wrong[likely][0]}; the columns are {' or '.join(columns)}")
    if twice := [name for name in header if name and header.count(name) > 1]:
        raise error(f"line {line}: has the column {twice[0]!r} twice; keep one")
    yield wrong.index([])
    first = line
    for line, cells in lines:
        if len(cells) < len(header) or any(cells[len(header) :]):
            remedy = "give one each, in quotes where it has a comma"
            raise error(f"line {line}: has {len(cells)} cells for {len(header)} columns; {remedy}")
        yield Row(line, {name: cell for name, cell in zip(header, cells, strict=False) if cell}, error)
    if line == first:
        raise error(f"has no rows below the header; give one for each {row_for_each}")


def csv_rows(
    table: str | Path,
    row_for_each: str,
    error: type[ValueError],
    required: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Iterator[Row]:
    """Yield the rows of a table from its text or path; the table may have further columns.

    `row_for_each` says what a row is for; messages begin with the path.
    """
    columns = dict.fromkeys(optional, False) | dict.fromkeys(required, True)
    with in_file(table, error) if isinstance(table, Path) else nullcontext():
        rows = _read(table, row_for_each, error, [columns], True)
        next(rows)
        yield from rows


def csv_records(
    table: str | Path,
    row_for_each: str,
    error: type[ValueError],
    *kinds: type[Record],
    others: bool = False,
    only: Mapping[str, Collection[str]] | None = None,
    once: Sequence[str] = (),
) -> list[tuple[int, Record]]:
    """Return the rows of a table as records, with the numbers of their lines; see `csv_rows`.

    Its form is that of one of the records: where a field has a default, its cells may be empty, and its
    column may be missing. There may be other columns with `others`. Rows are left out whose cells are not, by
    column, among those of `only`. No two rows have all fields of `once` alike.
    """
    declared = [declared_fields(kind) for kind in kinds]  # type: ignore[arg-type]
    forms = [{field.key: field.default is MISSING for field in fields} for fields in declared]
    with in_file(table, error) if isinstance(table, Path) else nullcontext():
        rows = _read(table, row_for_each, error, forms, others)
        place = next(rows)
        known: dict[str, dict[str, Any]] = {
            field.name: {"": "" if field.default is MISSING else field.default}
            for field in declared[place]
            if field.default is not MISSING or (field.meaning is not None and field.meaning.may_be_empty)
        }
        records, lines = list[tuple[int, Record]](), dict[tuple[Any, ...], int]()
        for row in rows:
            if any(row.cells.get(name, "") not in wanted for name, wanted in (only or {}).items()):
                continue
            values = {}
            for name, key, kind, meaning, _ in declared[place]:
                of_text, text = known.setdefault(name, {}), row.cells.get(key, "")
                if text not in of_text:
                    of_text[text] = row[key].typed(kind, meaning=meaning)
                values[name] = of_text[text]
            records.append((row.line, kinds[place](**values)))
            same = tuple(getattr(records[-1][1], name, "") for name in once)
            if once and lines.setdefault(same, row.line) != row.line:
                named = [f"{name} {value}" for name, value in zip(once, same, strict=True) if value != ""]
                raise row.wrong(f"{' '.join(named)} is in line {lines[same]} too; keep one row")
        return records


def csv_header(path: Path, error: type[ValueError]) -> list[str]:
    """Return the names of a file's columns; messages begin with its path."""
    with in_file(path, error):
        return next((cells for _, cells in csv_lines(read_csv(path, error), error) if any(cells)), [])


def keys_of(record: Any) -> tuple[str, ...]:
    """Return the names of a record's fields in files, for example the columns of a table."""
    return tuple(field.key for field in declared_fields(record))
