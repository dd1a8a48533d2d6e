"""Plain data of files and requests, read field by field: a mistake is one line with its place and the remedy.

Tables in CSV are read likewise, cell by cell. The module does not know what the fields mean, nor where the
data comes from.
"""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from placements.files import read_json

_LONGEST = 60
"""Characters of a value that a message shows."""

_LARGEST = sys.float_info.max
"""The largest finite number."""

_MOST = 10**18
"""Largest whole number in a record."""

Record = TypeVar("Record")

Named = Mapping[type, Mapping[str, Any]]
"""For each kind of record that a name may stand for, the records by name."""

_WITH_UNIT = re.compile(r"(\d+\.?\d*|\.\d+)\s*(?:([kmgt])(i?b)?|b)", re.IGNORECASE)


def in_mib(value: object) -> object:
    """Return memory with a unit in MiB, and any other value as it is; a letter alone stands for KiB to TiB.

    >>> in_mib("24GiB"), in_mib("24 GB"), in_mib("1.5g"), in_mib(24), in_mib("24")
    (24576.0, 22888.18359375, 1536.0, 24, '24')
    """
    written = _WITH_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if written is None:
        return value
    number, prefix, rest = written.groups()
    base = 1000 if (rest or "").lower() == "b" else 1024
    return float(number) * base ** (1 + "kmgt".index(prefix.lower()) if prefix else 0) / 2**20


@contextmanager
def in_file(path: str | Path, error: type[ValueError]) -> Iterator[None]:
    """Let the messages of an error begin with the path of the file that is read meanwhile."""
    try:
        yield
    except error as cause:
        raise error(f"{path}: {cause}") from None


@dataclass(frozen=True)
class Field:
    """A value as JSON or YAML gives it, and where it stands.

    Attributes:
        value: The plain data.
        where: Its place, with which messages begin; empty for all of the data.
        error: What is raised where it is wrong.
        is_root: It is all of the data although it has a name; the fields in it stand under theirs alone.
    """

    value: Any
    where: str
    error: type[ValueError]
    is_root: bool = False

    def wrong(self, wanted: str, remedy: str = "give one") -> ValueError:
        """Return the error of a value that is not what is wanted."""
        shown = repr(self.value)
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
        return self.mistake(f"{shown} is not {wanted}; {remedy}")

    def mistake(self, text: str) -> ValueError:
        """Return the error that says what is wrong here."""
        return self.error(f"{self.where}: {text}" if self.where else text)

    def inside(self, key: object, value: Any) -> Field:
        """Return a value that stands in this one, under a name or at an index."""
        where = f"{self.where}.{key}" if isinstance(key, str) else f"{self.where}[{key}]"
        return Field(value, str(key) if self.is_root or not self.where else where, self.error)

    def __getitem__(self, name: str) -> Field:
        """Return the field of that name."""
        if name not in self.mapping():
            raise self.mistake(f"lacks the field {name!r}; add it")
        return self.inside(name, self.value[name])

    def get(self, name: str, default: Any = None) -> Field:
        """Return the field of that name; the default where there is none."""
        return self.inside(name, self.mapping().get(name, default))

    def mapping(self, wanted: str = "a mapping", remedy: str = "give one") -> dict[Any, Any]:
        """Return the fields by name, whatever their names."""
        if not isinstance(self.value, dict):
            raise self.wrong(wanted, remedy)
        return self.value

    def only(self, required: Sequence[str], optional: Sequence[str] = ()) -> Field:
        """Return itself, a mapping with the required fields, and no others than the optional ones."""
        known = ", ".join((*required, *optional))
        fields = self.mapping(f"a mapping of {', '.join(required or optional)}")
        for name in required:
            self[name]
        for name in fields:
            if name not in (*required, *optional):
                raise self.mistake(f"has an unknown field {name!r}; the fields are {known}")
        return self

    def version(self, newest: int, default: int | None = None) -> int:
        """Return the field ``schema_version``, from 1 to the newest."""
        found = self.get("schema_version", default)
        if type(found.value) is not int or not 1 <= found.value <= newest:
            raise found.wrong("known", f"write {newest}")
        return int(found.value)

    def items(self, wanted: str = "a list", remedy: str = "give one") -> list[Field]:
        """Return the entries of a list."""
        if not isinstance(self.value, (list, tuple)):
            raise self.wrong(wanted, remedy)
        return [self.inside(i, value) for i, value in enumerate(self.value)]

    def text(self, wanted: str = "text", remedy: str = "give one") -> str:
        """Return text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong(wanted, remedy)
        return self.value

    def choice(self, known: Sequence[str]) -> str:
        """Return text that is one of those known."""
        if not isinstance(self.value, str) or self.value not in known:
            raise self.wrong("known", f"use one of {', '.join(known)}")
        return self.value

    def number(
        self,
        wanted: str = "a number",
        remedy: str = "give one",
        least: float = -math.inf,
        most: float = math.inf,
    ) -> float:
        """Return a number within limits, which are included."""
        if type(self.value) not in (int, float) or not least <= self.value <= most:
            raise self.wrong(wanted, remedy)
        number: float = self.value
        return number

    def whole(
        self,
        wanted: str = "a whole number",
        remedy: str = "give one",
        least: float = -math.inf,
        most: float = math.inf,
    ) -> int:
        """Return a whole number within limits."""
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.wrong(wanted, remedy)
        return self.value

    def whole_numbers(self) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        return tuple(each.whole() for each in self.items())

    def fraction(self) -> Fraction:
        """Return the fraction that a pair of whole numbers stands for."""
        pair = self.whole_numbers()
        if len(pair) != 2 or pair[1] < 1:
            raise self.wrong("[numerator, denominator]", "give a denominator of 1 or more")
        return Fraction(*pair)

    def record(
        self,
        kind: type[Record],
        others: Sequence[str] = (),
        named: Named | None = None,
        **given: Any,
    ) -> Record:
        """Return a dataclass: its fields stand under their own names and are read as their types say.

        Args:
            kind: The dataclass, whose own checks say what else is wrong.
            others: Names of required fields that are read elsewhere.
            named: Records that a name may stand for.
            given: Fields of the record that are not read here.
        """
        known = {each.name: each for each in fields(kind) if each.name not in given}  # type: ignore[arg-type]
        required = [
            name
            for name, each in known.items()
            if each.default is MISSING and each.default_factory is MISSING
        ]
        self.only((*required, *others), [name for name in known if name not in required])
        hints = get_type_hints(kind)
        values = {name: self[name].typed(hints[name], named or {}) for name in known if name in self.value}
        try:
            return kind(**values, **given)
        except ValueError as error:
            raise self.mistake(str(error)) from None

    def typed(self, wanted: Any, named: Named) -> Any:
        """Return a value of the type that a record's field has."""
        kinds, origin = get_args(wanted), get_origin(wanted)
        if NoneType in kinds:
            return None if self.value is None else self.typed(kinds[0], named)
        if origin is tuple:
            return tuple(each.typed(kinds[0], named) for each in self.items())
        if origin is Mapping:
            return self._by_number(kinds[1], named)
        if origin is Literal:
            return self.choice(kinds)
        if wanted in named and isinstance(self.value, str):
            return named[wanted][self.choice(tuple(named[wanted]))]
        if is_dataclass(wanted):
            return self.record(wanted, named=named)  # type: ignore[arg-type]
        if wanted is bool and type(self.value) is not bool:
            raise self.wrong("true or false", "give one of them")
        if wanted is bool or (wanted is str and self.value == ""):
            return self.value
        if wanted is int:
            return self.whole(f"a whole number from 0 to {_MOST}", least=0, most=_MOST)
        readers: dict[Any, Callable[[], Any]] = {float: self.number, str: self.text, Fraction: self.fraction}
        return readers[wanted]()

    def _by_number(self, wanted: Any, named: Named) -> dict[int, Any]:
        """Return a mapping of whole numbers, which JSON has as text, to values of a type."""
        for name in self.mapping():
            if not re.fullmatch(r"[0-9]{1,9}", str(name)):
                raise self.wrong("a mapping of whole numbers", "name each by its number")
        return {int(name): self[name].typed(wanted, named) for name in self.value}

    def figure(
        self,
        wanted: str = "a number",
        remedy: str = "give a finite one",
        least: float = -_LARGEST,
        most: float = _LARGEST,
        is_whole: bool = False,
    ) -> float:
        """Return the number that a cell's text is, within limits, which are included."""
        try:
            value = float(self.value)
        except ValueError:
            value = math.nan
        if not least <= value <= most or (is_whole and value != int(value)):
            raise self.wrong(wanted, remedy)
        return value


def plain(value: Any, named: Named | None = None, *, defaults: bool = True) -> Any:
    """Return a record as the plain data of which `Field.record` makes an equal one.

    Args:
        value: A dataclass, or what stands in one.
        named: Records that are written as their name.
        defaults: Whether fields are written that are as by default.
    """
    if is_dataclass(value):
        for name, known in (named or {}).get(type(value), {}).items():
            if known == value:
                return name
        return {
            each.name: plain(found, named, defaults=defaults)
            for each in fields(value)
            if (found := getattr(value, each.name)) != each.default or defaults
        }
    if isinstance(value, Mapping):
        return {str(key): plain(each, named, defaults=defaults) for key, each in value.items()}
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    return [plain(each, named, defaults=defaults) for each in value] if isinstance(value, tuple) else value


@contextmanager
def json_file(path: str | Path, wanted: str, error: type[ValueError], where: str = "") -> Iterator[Field]:
    """Read a JSON file, and let the messages of an error begin with its path meanwhile.

    Args:
        path: The file.
        wanted: What to give instead of a file that cannot be read, such as "a schedule.json".
        error: What is raised where it is wrong.
        where: Name of all of the data in messages.
    """
    data = read_json(path, wanted, error)
    with in_file(path, error):
        yield Field(data, where, error, is_root=bool(where))


Row = dict[str, Field]
"""The cells of a row by column, without the spaces around them."""


def read_csv(path: str | Path, error: type[ValueError]) -> str:
    """Return the text of a CSV file.

    Raises:
        error: It cannot be read, or is not text; the message does not name it.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as cause:
        raise error(f"cannot be read ({cause.strerror}); give the path of a CSV file") from None
    except UnicodeDecodeError:
        raise error("is not CSV text; save it as comma-separated UTF-8") from None


def csv_rows(
    text: str,
    row_for_each: str,
    error: type[ValueError],
    *forms: Sequence[str],
    may_be_empty: Sequence[str] = (),
    others: bool = False,
) -> list[tuple[int, Row]]:
    """Return the rows of CSV text with the numbers of their lines; empty rows are left out.

    Args:
        text: Whose first line names the columns, in any order.
        row_for_each: What a row is for.
        error: What is raised where it is wrong.
        forms: Columns of each form that the table can have.
        may_be_empty: Those whose cells may have nothing in them.
        others: Whether there may be other columns, whose cells may be empty too.
    """
    try:
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as cause:
        raise error(f"is not CSV text ({cause}); save it as comma-separated UTF-8") from None
    (first, header), *rows = [line for line in lines if any(line[1])] or [(1, [])]
    known = next(
        (each for each in forms if set(each) <= set(header) and (others or len(each) == len(header))), None
    )
    if known is None or len(set(header)) < len(header):
        shown, wanted = ",".join(header)[:_LONGEST], " or ".join(",".join(columns) for columns in forms)
        raise error(f"line {first}: the columns are {shown!r}; use {wanted}")
    if not rows:
        raise error(f"has no rows below the header; give one for each {row_for_each}")
    found = []
    for number, cells in rows:
        if len(cells) != len(header):
            raise error(f"line {number}: has {len(cells)} cells for {len(header)} columns; give one each")
        named = zip(header, cells, strict=True)
        row = {name: Field(cell, f"line {number}, column {name}", error) for name, cell in named}
        for name in known:
            if not row[name].value and name not in may_be_empty:
                raise row[name].mistake("is missing; fill the cell or remove the row")
        found.append((number, row))
    return found
