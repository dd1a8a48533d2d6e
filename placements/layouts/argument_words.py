"""The words of a command line, from a file and as text. The module knows no framework."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from placements.layouts.layout import LayoutError


def argument_words(path: str | Path, what: str) -> list[str]:
    """Return the words of a file of arguments, or of a script with them; comments are left out.

    Args:
        path: The file.
        what: Whose arguments it has to have.

    Raises:
        LayoutError: It cannot be read, or a quote is open.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise LayoutError(f"{path}: cannot be read; give a text file of {what}") from None
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise LayoutError(f"{path}: is no command line ({error}); close the quotes") from None


def argument_text(options: Mapping[str, object], comments: Iterable[str] = ()) -> str:
    """Return arguments, one a line, below some comments.

    Args:
        options: Values by name: a list for several words, None for a flag alone.
        comments: A line each.
    """
    lines = [f"# {line}" for line in comments]
    for name, value in options.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        lines.append(" ".join([name, *(shlex.quote(str(each)) for each in values)]))
    return "\n".join(lines) + "\n"
