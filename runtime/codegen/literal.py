"""Data as the text of a Python literal that reads back to the same data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence

LINE_LENGTH = 110
"""Columns of a generated line, as long as the text can be broken."""


class LiteralError(ValueError):
    """A value has no literal form; the message names it and its place."""


def literal(value: object, where: str, used: int = 0, indent: int = 0) -> str:
    """Return a literal, on one line if it fits, else with one entry a line, numbers as many as fit.

    Args:
        value: Text, whole or finite numbers, True, False, None, and lists, tuples and mappings of these.
        where: What to call the value in an error.
        used: Columns that the first line has before it, and after it.
        indent: Columns before the line it begins on.

    Raises:
        LiteralError: The value holds anything else.

    >>> literal({"layers": 4, "name": "gpt"}, "model")
    '{"layers": 4, "name": "gpt"}'
    """
    flat = _flat(value, where)
    if used + len(flat) <= LINE_LENGTH or not isinstance(value, (Mapping, list, tuple)) or not value:
        return flat
    inner = " " * (indent + 4)
    opening, closing = flat[0], flat[-1]
    lines = (
        _mapping_lines(value, where, indent + 4)
        if isinstance(value, Mapping)
        else _lines(value, where, indent + 4)
    )
    return "\n".join([opening, *(inner + line for line in lines), " " * indent + closing])


def text_literal(text: str) -> str:
    """Return a string literal on one line, in double quotes where that needs no escapes.

    >>> print(text_literal("F0"), text_literal('a "b"'))
    "F0" 'a "b"'
    """
    text = "".join(text)  # a plain string also where an enumeration's member is given
    if text.isprintable() and '"' not in text:
        return json.dumps(text, ensure_ascii=False)
    return repr(text) if text.isprintable() else ascii(text)


def _flat(value: object, where: str) -> str:
    if isinstance(value, str):
        return text_literal(value)
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))
    if isinstance(value, Mapping):
        entries = (f"{_flat(key, where)}: {_flat(entry, f'{where}.{key}')}" for key, entry in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, (list, tuple)):
        entries = (_flat(entry, f"{where}[{i}]") for i, entry in enumerate(value))
        return _enclosed(value, ", ".join(entries))
    raise LiteralError(
        f"{where}: {value!r} cannot be written into a script; use text, finite numbers, True, False, None, "
        "lists and mappings"
    )


def _enclosed(value: Sequence[object], entries: str) -> str:
    if isinstance(value, tuple):
        return f"({entries},)" if len(value) == 1 else f"({entries})"
    return f"[{entries}]"


def _mapping_lines(value: Mapping[object, object], where: str, indent: int) -> list[str]:
    lines = []
    for key, entry in value.items():
        name = _flat(key, where)
        used = indent + len(name) + len(": ,")
        lines.append(f"{name}: {literal(entry, f'{where}.{key}', used, indent)},")
    return lines


def _lines(value: Sequence[object], where: str, indent: int) -> list[str]:
    if all(isinstance(entry, (int, float)) for entry in value):
        return _filled((f"{_flat(entry, where)}," for entry in value), LINE_LENGTH - indent)
    used = indent + len(",")
    return [f"{literal(entry, f'{where}[{i}]', used, indent)}," for i, entry in enumerate(value)]


def _filled(words: Iterable[str], width: int) -> list[str]:
    """Return the words on as few lines as hold them."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
