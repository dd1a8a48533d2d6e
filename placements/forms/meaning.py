"""Fields of a record, declared once: name, type, unit, range and meaning, for reading, options and docs.

A field is declared by its annotation, such as ``Annotated[float, Meaning("time of a pass", "ms", above=0)]``,
an option of a command by `option`. The module does not know any form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache, cached_property
from math import inf
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Meaning:
    """The declaration of a field: text, unit, limits and file key.

    Attributes:
        text: Description of the field, as in the docs.
        unit: Unit of its figure; one in MiB may also be text with a unit, such as ``24GiB``.
        min, max: Limits that it may have itself.
        above, below: Limits that it may not have.
        key: Name in the file; empty for the field's own.
        may_be_empty: The cell of a table may have nothing in it, for empty text.
        choices: All values that it may have, where they are names.
    """

    text: str
    unit: str = ""
    min: float = -inf
    max: float = inf
    above: float = -inf
    below: float = inf
    key: str = ""
    may_be_empty: bool = False
    choices: tuple[str, ...] = ()

    def allows(self, value: float) -> bool:
        """Return whether a number is within the limits."""
        return self.min <= value <= self.max and self.above < value < self.below

    @cached_property
    def limits(self) -> str:
        """The limits of a number as words that follow "must be"; empty without limits.

        >>> Meaning("", min=1).limits, Meaning("", above=0, below=1).limits
        ('at least 1', 'above 0 and below 1')
        """
        words = (("at least", self.min), ("above", self.above), ("at most", self.max), ("below", self.below))
        return " and ".join(f"{word} {limit:g}" for word, limit in words if abs(limit) < inf)

    @property
    def range(self) -> str:
        """The limits as a range in words; empty without limits.

        >>> Meaning("", min=1).range, Meaning("", above=0, max=1).range, Meaning("", min=0, max=3).range
        ('1 or more', 'above 0, at most 1', '0 to 3')
        """
        if self.min > -inf:
            below = f" and below {self.below:g}" if self.below < inf else ""
            return (f"{self.min:g} to {self.max:g}" if self.max < inf else f"{self.min:g} or more") + below
        return self.limits.replace(" and ", ", ")

    @property
    def with_unit(self) -> str:
        """The text with the unit before its first semicolon or at its end, as shown by ``--help``."""
        return f"{self.text};".replace(";", f", in {self.unit};", 1)[:-1] if self.unit else self.text

    def wanted(self, kind: Any) -> str:
        """Return in words which values a field of a type may have."""
        noun = "a whole number" if kind is int else "a number"
        link = "" if self.min == -inf else "from " if self.max < inf else "of "
        return f"{noun} {link}{self.range}".strip()

    @property
    def remedy(self) -> str:
        """The remedy in the error message for a value outside the limits."""
        if self.unit == "MiB":
            return "give MiB, or a number with its unit as in 24GiB"
        if self.unit == "units":
            return "give whole units, or memory as in 24GiB with 'memory_unit_mib'"
        return f"give it in {self.unit}" if self.unit else "give one"


Verbatim = Annotated[str, "verbatim"]
"""Type of an option that is a path or free text."""

REQUIRED = "???"
"""Default of an option that has to be given, as Hydra writes it."""


def option(
    default: Any,
    text: str,
    unit: str = "",
    choices: tuple[str, ...] = (),
    hash: bool | None = None,
    **limits: float,
) -> Any:
    """Declare an option of a command with its default; for the other arguments see `Meaning`.

    A default that is a list or a mapping is copied; `REQUIRED` is for none. `hash` is False for an option
    that cannot be hashed, such as a mapping, in a record that is.
    """
    given: dict[str, Any] = {"default": default}
    if isinstance(default, list | dict):
        given = {"default_factory": lambda: deepcopy(default)}
    meaning = Meaning(text, unit, choices=choices, **limits)  # type: ignore[arg-type]
    return field(**{} if default == REQUIRED else given, metadata={"meaning": meaning}, hash=hash)


def inherited(record: Any, name: str, default: Any, **changed: Any) -> Any:
    """Declare an option of a base record again, with another default and other attributes of its meaning."""
    declared = record.__dataclass_fields__[name]
    metadata = declared.metadata | {"meaning": replace(declared.metadata["meaning"], **changed)}
    return field(default=default, metadata=metadata, hash=declared.hash)


def group(
    choice: str = "default",
    kinds: Mapping[str, Any] | None = None,
    read: Callable[[Any], Any] | None = None,
    headline: str = "",
) -> Any:
    """Declare a group of options of a command, of the kind `choice` unless another of `kinds` is chosen.

    The options are those of each kind; without kinds those of the record that is the field's type. Its value
    is read by `read` from the group's plain data, or by its type. `--help` shows the headline.
    """
    return field(metadata={"group": choice, "kinds": kinds, "read": read, "headline": headline})


class DeclaredField(NamedTuple):
    """A field of a record with its name, file key, type, meaning and default.

    Its `kind` is its type without `Meaning`; its `default` is ``MISSING`` where it is required.
    """

    name: str
    key: str
    kind: Any
    meaning: Meaning | None
    default: Any


@cache
def declared_fields(record: Any) -> tuple[DeclaredField, ...]:
    """Return the fields of a dataclass or a named tuple, in order."""
    hints, meanings = get_type_hints(record, include_extras=True), dict[str, Meaning]()
    if is_dataclass(record):
        attrs = [attr for attr in fields(record) if attr.init]
        meanings = {attr.name: attr.metadata["meaning"] for attr in attrs if "meaning" in attr.metadata}
        defaults = {
            attr.name: attr.default_factory() if attr.default_factory is not MISSING else attr.default
            for attr in attrs
        }
    else:
        defaults = {name: record._field_defaults.get(name, MISSING) for name in record._fields}
    declared = []
    for name, default in defaults.items():
        kind, meaning = without_meaning(hints[name])
        meaning = meaning or meanings.get(name)
        declared.append(DeclaredField(name, (meaning and meaning.key) or name, kind, meaning, default))
    return tuple(declared)


def without_meaning(kind: Any) -> tuple[Any, Meaning | None]:
    """Return a type without its `Meaning`, and the `Meaning` or None."""
    if get_origin(kind) is not Annotated:
        return kind, None
    inner, *extras = get_args(kind)
    return inner, next((extra for extra in extras if isinstance(extra, Meaning)), None)


def without_none(kind: Any) -> tuple[Any, bool]:
    """Return a type, and whether None may stand in its place."""
    kinds = get_args(kind)
    if NoneType not in kinds:
        return kind, False
    return next(kind for kind in kinds if kind is not NoneType), True
