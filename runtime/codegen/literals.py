"""Names and lists of numbers as a script has them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

WIDTH = 110
"""Columns of a script's line, but for names and calls that need more."""


def string_literal(name: str) -> str:
    """Return a string literal on one line, in double quotes where that needs no escapes."""
    name = "".join(name)  # a plain string also where an enumeration's member is given
    if name.isprintable() and '"' not in name:
        return json.dumps(name, ensure_ascii=False)
    return repr(name) if name.isprintable() else ascii(name)


def list_literal(numbers: Sequence[int], start: str, end: str) -> str:
    """Return a line with a list between two texts; one that is too long for it has lines of its own inside.

    >>> print(list_literal([12345] * 15, "    last=", ","))
        last=[
            12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345, 12345,
            12345
        ],
    """
    items = ", ".join(map(str, numbers))
    line = f"{start}[{items}]{end}"
    if len(line) <= WIDTH:
        return line
    indent = " " * (len(start) - len(start.lstrip()))
    inside = textwrap.wrap(items, WIDTH - len(indent) - 4)
    return "\n".join([f"{start}[", *(f"{indent}    {each}" for each in inside), f"{indent}]{end}"])
