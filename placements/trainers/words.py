"""The words of a command line: from a file, as text, and as fields of a record. Knows no framework."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from placements.trainers.layout import LayoutError
from placements.trainers.shell import Word, commands_of

Table = Mapping[str, str | Mapping[Any, str]]
"""Flags of a record's fields: that of a number, or the words of each value that the field may have."""

_FILE = re.compile(r"(\$\(|`)\s*(<|cat\b|grep\b|sed\b|awk\b|xargs\b)")


def argument_words(path: str | Path, names: tuple[str, ...]) -> Sequence[str]:
    """Return the words of a file of arguments, or of a bash script with a command that has them.

    Args:
        path: The file.
        names: With what the names of these begin, to tell the command from others.

    Returns:
        Words of `placements.trainers.shell` where it is a script; see `known`.

    Raises:
        LayoutError: It cannot be read, a quote is open, or several commands have other arguments.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise LayoutError("cannot be read; give a text file of arguments") from None
    lines = (line.strip() for line in text.splitlines())
    try:
        if next((line for line in lines if line and line[0] != "#"), "").startswith("-"):
            return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise LayoutError(f"is no command line ({error}); close the quotes") from None
    try:
        return _command(commands_of(text, Path(path).parent), names)
    except RecursionError:
        raise LayoutError("is nested too deeply; give a file of the arguments alone") from None


def _command(commands: Sequence[tuple[Word, ...]], names: tuple[str, ...]) -> Sequence[Word]:
    """Return the only command with arguments of these names; the longest where there is none."""
    found = {tuple(_named(words, names)): words for words in reversed(commands)}
    found.pop((), None)
    if len(found) > 1:
        one, *_, other = sorted(words[0].line for words in found.values())
        raise LayoutError(
            f"the commands of line {one} and line {other} have other arguments; give a script with "
            "one of them"
        )
    words = next(iter(found.values()), max(commands, key=len, default=()))
    for before, word in pairwise((Word(""), *words)):
        name, space, _ = word.partition("\xa0")
        if space and name.startswith("--"):
            raise LayoutError(f"line {word.line}: a non-breaking space is behind {name}; write a plain one")
        if _FILE.match(word) and word.unknown and not before.startswith("--"):
            raise LayoutError(f"{word.unknown} may give arguments; write them out in its place")
    return words


def _named(words: Iterable[Word], names: tuple[str, ...]) -> Iterator[Word]:
    """Yield the arguments of some names, with their values."""
    is_one = False
    for word in words:
        is_one = word.startswith(names) if word.startswith("--") else is_one
        if is_one:
            yield word


def given(words: Iterable[str]) -> dict[str, list[str]]:
    """Return the values behind each flag, the last where one is given twice.

    A variable that is not known ends a list, and so does the name of a choice, as ``checkpoint:full``.

    >>> given(["--a", "--b=1", "2"])
    {'--a': [], '--b': ['1', '2']}
    """
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            values = found[name] = [Word(value, unknown=getattr(word, "unknown", ""))] if equals else []
        elif values and (":" in word or word.startswith("$")):
            values = []
        else:
            values.append(word)
    return found


def known(name: str, word: str) -> str:
    """Return a value of an argument.

    Raises:
        LayoutError: Only a run of the script can tell it.
    """
    if isinstance(word, Word) and word.unknown:
        raise LayoutError(f"{name}: {word.unknown} is not known before a run; write the value itself")
    return word


def argument_text(options: Mapping[str, object], comments: Iterable[str] = ()) -> str:
    """Return arguments, one a line, below comments: a list is several words, None a flag alone."""
    lines = [f"# {line}" for line in comments]
    for name, value in options.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        lines.append(" ".join([name, *(shlex.quote(str(each)) for each in values)]))
    return "\n".join(lines) + "\n"


def written(record: Mapping[str, Any], table: Table) -> dict[str, object]:
    """Return the flags of fields with their values; without numbers that are None."""
    found: dict[str, object] = {}
    for name, flags in table.items():
        value = record.get(name)
        if not isinstance(flags, str):
            found |= {flag: words or None for flag, words in given(flags.get(value, "").split()).items()}
        elif value is not None:
            found[flags] = int(value) if value == int(value) else value
    return found


def fields_read(said: Mapping[str, list[str]], table: Table) -> dict[str, Any]:
    """Return the fields that flags say: of choices the value with most words that are all there.

    Raises:
        LayoutError: A number is none.
    """
    found: dict[str, Any] = {}
    for name, flags in table.items():
        if isinstance(flags, str):
            text = "".join(said.get(flags, ())[:1])
            try:
                found |= {name: int(text) if text.isdecimal() else float(text)} if flags in said else {}
            except ValueError:
                raise LayoutError(f"{flags}: {text!r} is not a number; write the number itself") from None
            continue
        ways = {value: given(words.split()) for value, words in flags.items()}
        there = [
            value
            for value, own in ways.items()
            if all(flag in said and said[flag][: len(words)] == words for flag, words in own.items())
        ]
        if there:
            found[name] = max(there, key=lambda value: len(ways[value]))
    return found
