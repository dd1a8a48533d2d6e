"""Plain data of files and requests, read field by field: a mistake is one line with its place and the remedy.

A record is read whole, by its fields' declarations (see `placements.forms.meaning`). The module does not
know the purpose of the fields, nor the source of the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cache
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from placements.forms.meaning import DeclaredField, Meaning, declared_fields, without_meaning
from placements.forms.texts import read_json

LARGEST = 1e18
"""Figure beyond which one is a mistake; likewise above 0 and below one over it."""

_LONGEST = 60
"""Characters of a value that a message shows."""

_ANY = Meaning("")
_COUNT = Meaning("", min=0, max=LARGEST)

Record = TypeVar("Record")

Named = Mapping[type, Mapping[str, Any]]
"""For each kind of record that a name may stand for, the records by name."""

_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list",
    Sequence: "a list",
    Mapping: "a mapping",
    NoneType: "null",
}

_MEMORY_MIB = {"MiB": 1.0, "GiB": 1024.0, "bytes": 2.0**-20}
"""Units of memory, which may also be text with a unit, in MiB."""

_WITH_UNIT = re.compile(r"(\d+\.?\d*|\.\d+)\s*(?:([kmgt])(i?b)?|b)", re.IGNORECASE)


def in_mib(value: object) -> object:
    """Return memory text with a unit as MiB, any other value unchanged; a letter alone means KiB to TiB.

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
    """Let the messages of an error begin with the path of the file that is read meanwhile, once."""
    try:
        yield
    except error as cause:
        raise error(f"{path}: {str(cause).removeprefix(f'{path}: ')}") from None


@dataclass(frozen=True)
class Field:
    """A value from JSON or YAML, with its place for error messages.

    Attributes:
        value: The plain data.
        where: Its place, with which messages begin; empty for all of the data.
        error: Exception type to raise for a wrong value.
        is_root: It is all of the data although it has a name; the fields in it stand under theirs alone.
        is_open: Mappings in it may have other fields than those known, which are not read.
    """

    value: Any
    where: str
    error: type[ValueError]
    is_root: bool = False
    is_open: bool = False

    @property
    def parsed(self) -> Any:
        """The value, with numbers and truth values parsed from text in a table."""
        return self.value

    def wrong(self, wanted: str, remedy: str = "give one") -> ValueError:
        """Return the error for a value that is not as wanted."""
        shown = repr(self.value)
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
        return self.mistake(f"{shown} is not {wanted}; {remedy}")

    def mistake(self, text: str) -> ValueError:
        """Return an error with this text, after the place of the field."""
        return self.error(f"{self.where}: {text}" if self.where else text)

    def inside(self, key: object, value: Any) -> Field:
        """Return a value that stands in this one, under a name or at an index."""
        where = f"{self.where}.{key}" if isinstance(key, str) else f"{self.where}[{key}]"
        where = str(key) if self.is_root or not self.where else where
        return type(self)(value, where, self.error, is_open=self.is_open)

    def __getitem__(self, name: str) -> Field:
        """Return the field of that name."""
        if name not in self.mapping():
            raise self.mistake(f"lacks the field {name!r}; add it")
        return self.inside(name, self.value[name])

    def get(self, name: str, default: Any = None) -> Field:
        """Return the field of that name, or a field of the default if the mapping lacks the name."""
        return self.inside(name, self.mapping().get(name, default))

    def mapping(self, wanted: str = "a mapping", remedy: str = "give one") -> dict[Any, Any]:
        """Return the fields by name, whatever their names."""
        if not isinstance(self.value, dict):
            raise self.wrong(wanted, remedy)
        return self.value

    def only(self, required: Sequence[str], optional: Sequence[str] = ()) -> Field:
        """Return itself, a mapping with the required fields; unless open, with optional others alone."""
        known = dict.fromkeys((*required, *optional))
        fields = self.mapping(f"a mapping of {', '.join(required or optional)}")
        if missing := [name for name in required if name not in fields]:
            raise self.mistake(f"lacks the field {missing[0]!r}; add it")
        if unknown := [name for name in fields if name not in known and not self.is_open]:
            raise self.mistake(f"has an unknown field {unknown[0]!r}; the fields are {', '.join(known)}")
        return self

    def version(self, newest: int, default: int | None = None) -> int:
        """Return the field ``schema_version``, from 1 to the newest."""
        given = self.get("schema_version", default)
        if type(given.value) is not int or not 1 <= given.value <= newest:
            raise given.wrong("known", f"write {newest}")
        return int(given.value)

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

    def choice(self, known: Sequence[Any]) -> Any:
        """Return the value, checked to be one of those in `known`."""
        if self.value not in known or isinstance(self.value, bool):
            raise self.wrong("known", f"use one of {', '.join(map(str, known))}")
        return self.value

    def number(
        self, wanted: str = "a number", remedy: str = "give one", min: float = -inf, max: float = inf
    ) -> float:
        """Return a number within limits, which are included."""
        number = self._figure(float, Meaning("", min=min, max=max), wanted, remedy)
        return float(number) if isinstance(self.value, str) else number

    def whole(
        self, wanted: str = "a whole number", remedy: str = "give one", min: float = -inf, max: float = inf
    ) -> int:
        """Return a whole number within limits; 2.0 counts as whole."""
        return int(self._figure(int, Meaning("", min=min, max=max), wanted, remedy))

    def _figure(self, kind: type, meaning: Meaning, wanted: str = "", remedy: str = "") -> float:
        """Return the number, checked against its declared limits."""
        number: float = self.parsed
        if meaning.unit in _MEMORY_MIB and isinstance(self.value, str):
            mib = in_mib(self.value)
            number = mib / _MEMORY_MIB[meaning.unit] if isinstance(mib, float) else number
            number = round(number) if kind is int else number
        if kind is int and type(number) is float and number.is_integer():
            number = int(number)
        if type(number) not in (kind, int) or not meaning.allows(number):
            raise self.wrong(wanted or meaning.wanted(kind), remedy or meaning.remedy)
        return number

    def record(
        self, kind: type[Record], others: Sequence[str] = (), named: Named | None = None, **given: Any
    ) -> Record:
        """Return a dataclass or named tuple, its fields read by key and by their declared types.

        The names of fields that are read elsewhere are `others`, all of them required; those in `given` are
        not read. The record's own checks find other errors. A name may stand for a record in `named`.
        """
        known = [field for field in declared_fields(kind) if field.name not in given]  # type: ignore[arg-type]
        required = [field.key for field in known if field.default is MISSING]
        self.only((*required, *others), [field.key for field in known if field.default is not MISSING])
        values = {
            field.name: self[field.key].typed(field.kind, named, field.meaning)
            for field in known
            if field.key in self.value
        }
        try:
            return kind(**values, **given)
        except ValueError as error:
            raise self.mistake(str(error)) from None

    def typed(self, wanted: Any, named: Named | None = None, meaning: Meaning | None = None) -> Any:
        """Return the value as the declared type of a record's field, within the declared limits.

        Of the type `Field` the field itself is returned, to be read elsewhere. Of several types, a mapping or
        a list is read as the type of its kind, all else as the first type.
        """
        wanted, type_meaning, kinds, origin, origins = _parts(wanted)
        meaning = type_meaning or meaning
        if origin in (Union, UnionType):
            if self.value is None and NoneType in kinds and Field not in kinds:
                return None
            shapes = (Mapping,) if isinstance(self.value, dict) else (tuple, Sequence)
            is_one = not isinstance(self.value, (dict, list, tuple))
            wanted_ones = (type(self.value),) if is_one else shapes
            fitting = [kind for kind, origin in zip(kinds, origins, strict=True) if origin in wanted_ones]
            if not is_one and not fitting and _WORDS.keys() >= {*origins}:
                remedy = "give one" if meaning is None else meaning.remedy
                raise self.wrong(" or ".join(_WORDS[origin] for origin in origins), remedy)
            return self.typed([*fitting, kinds[0]][0], named, meaning)
        if wanted is Field:
            return self
        if wanted is Any:
            return self.value
        if wanted in (int, float):
            number = self._figure(wanted, meaning or (_COUNT if wanted is int else _ANY))
            if meaning and number and not 1 / LARGEST <= abs(number) <= LARGEST:
                raise self.wrong("in a possible range", "check its unit")
            return float(number) if wanted is float and (meaning or isinstance(self.value, str)) else number
        if origin is Literal:
            return self.choice(kinds)
        if origin is Mapping and kinds[0] is Any:
            return self.mapping()
        if origin is Mapping:
            return self._by_key(kinds[0], kinds[1], named, meaning)
        if origin is Sequence or (origin is tuple and kinds[-1] is Ellipsis):
            return tuple(item.typed(kinds[0], named, meaning) for item in self.items())
        if origin is tuple:
            return self._in_order([DeclaredField("", "", kind, meaning, None) for kind in kinds], named)
        if named and wanted in named and isinstance(self.value, str):
            return named[wanted][self.choice(tuple(named[wanted]))]
        if issubclass(wanted, Enum):
            return wanted(self.choice([member.value for member in wanted]))
        if is_dataclass(wanted) or (issubclass(wanted, tuple) and isinstance(self.value, dict)):
            return self.record(wanted, named=named)
        if issubclass(wanted, tuple):
            return wanted(*self._in_order(declared_fields(wanted), named))
        if wanted is Fraction:
            numerator, denominator = self.typed(tuple[int, int])
            if not denominator:
                raise self.wrong("[numerator, denominator]", "give a denominator of 1 or more")
            return Fraction(numerator, denominator)
        if wanted is bool:
            if not isinstance(self.parsed, bool):
                raise self.wrong("true or false", "give one of them")
            return self.parsed
        if wanted is Path:
            return Path(self.text("a path"))
        if meaning is not None and meaning.choices:
            return self.choice(meaning.choices)
        return self.value if self.value == "" else self.text()

    def _in_order(self, kinds: Sequence[DeclaredField], named: Named | None) -> tuple[Any, ...]:
        """Return the entries of a list that has one for each field of a record, in their order."""
        wanted = f"[{', '.join(field.key or ('text' if field.kind is str else 'number') for field in kinds)}]"
        items = self.items(wanted)
        if len(items) != len(kinds):
            raise self.wrong(wanted, f"give {len(kinds)} entries")
        pairs = zip(items, kinds, strict=True)
        return tuple(item.typed(field.kind, named, field.meaning) for item, field in pairs)

    def _by_key(self, key: Any, wanted: Any, named: Named | None, meaning: Meaning | None) -> dict[Any, Any]:
        """Return a mapping of names, or of whole numbers, which JSON has as text, to values of a type."""
        key, rule = without_meaning(key)
        values: dict[Any, Any] = {}
        for name, value in self.mapping("a mapping" if rule is None else f"a mapping by {rule.text}").items():
            is_number = re.fullmatch(r"[0-9]{1,9}", str(name))
            if key is int and not (is_number and (rule is None or rule.allows(int(name)))):
                what = "a whole number" if rule is None else f"a {rule.text}, {rule.wanted(int)}"
                raise replace(self, value=name).wrong(what, "name each by its number")
            if key(name) in values:
                raise self.mistake(f"{key(name)!r} is given twice; give it once")
            values[key(name)] = self.inside(name, value).typed(wanted, named, meaning)
        return values


@cache
def _parts(wanted: Any) -> tuple[Any, Meaning | None, tuple[Any, ...], Any, tuple[Any, ...]]:
    """Return a type, its `Meaning`, arguments and origin, and the origins of the types in a union."""
    inner, meaning = without_meaning(wanted)
    kinds, origin = get_args(inner), get_origin(inner)
    several = kinds if origin in (Union, UnionType) else ()
    return (
        inner,
        meaning,
        kinds,
        origin,
        tuple(get_origin(kind) or kind for kind, _ in map(without_meaning, several)),
    )


def plain(value: Any, named: Named | None = None, *, defaults: bool = True) -> Any:
    """Return a record as plain data that `Field.record` reads back to an equal record.

    Records in `named` are written as their name. Without `defaults`, fields as by default are left out.
    """
    if is_dataclass(value):
        for name, known in (named or {}).get(type(value), {}).items():
            if known == value:
                return name
        value = {
            field.key: inner
            for field in declared_fields(type(value))  # type: ignore[arg-type]
            if (inner := getattr(value, field.name)) != field.default or defaults
        }
    if isinstance(value, Mapping):
        return {str(key): plain(inner, named, defaults=defaults) for key, inner in value.items()}
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    if isinstance(value, Enum):
        return value.value
    return [plain(inner, named, defaults=defaults) for inner in value] if isinstance(value, tuple) else value


@contextmanager
def json_file(path: str | Path, wanted: str, error: type[ValueError], where: str = "") -> Iterator[Field]:
    """Read a JSON file as `read_json` does, and let the messages of an error begin with its path meanwhile.

    `where` is the name of all of the data in messages.
    """
    data = read_json(path, wanted, error)
    with in_file(path, error):
        yield Field(data, where, error, is_root=bool(where))
