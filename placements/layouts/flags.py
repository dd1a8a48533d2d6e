"""Fields of a record as flags of a command line, and back, by tables. The module knows no trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placements.layouts.layout import LayoutError

Numbers = Mapping[str, str]
"""Flags of numbers by the names of fields."""

Choices = Mapping[str, Mapping[Any, str]]
"""Words of each value of a field."""


def written(record: Mapping[str, Any], numbers: Numbers, choices: Choices) -> dict[str, object]:
    """Return the flags of fields with their values; without numbers that are None."""
    found: dict[str, object] = {}
    for name, flag in numbers.items():
        value = record.get(name)
        if value is not None:
            found[flag] = int(value) if value == int(value) else value
    for name, words in choices.items():
        for flag, values in given(words.get(record.get(name), "").split()).items():
            found[flag] = values or None
    return found


def given(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values behind each flag, the last where one is given twice.

    >>> given(["--a", "--b=1", "2"])
    {'--a': [], '--b': ['1', '2']}
    """
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            values = found[name] = [value] if equals else []
        else:
            values.append(word)
    return found


def fields_read(flags: Mapping[str, Sequence[str]], numbers: Numbers, choices: Choices) -> dict[str, Any]:
    """Return the fields that flags say: of choices the value with most words that are all there.

    Raises:
        LayoutError: A number is none.
    """
    found: dict[str, Any] = {}
    for name, flag in numbers.items():
        if flag in flags:
            text = "".join(flags[flag][:1])
            try:
                found[name] = int(text) if text.isdecimal() else float(text)
            except ValueError:
                raise LayoutError(f"{flag}: {text!r} is not a number; write the number itself") from None
    for name, words in choices.items():
        parsed = {value: given(text.split()) for value, text in words.items()}
        said = [
            value
            for value, each in parsed.items()
            if all(flag in flags and list(flags[flag][: len(own)]) == own for flag, own in each.items())
        ]
        found |= {name: max(said, key=lambda value: len(parsed[value]))} if said else {}
    return found
