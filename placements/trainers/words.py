"""The words of a command line: from a file, as text, and as fields of a record."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from placements.forms.tables import csv_rows
from placements.trainers.layout import LayoutError
from placements.trainers.shell import Word, commands_of

Table = Mapping[str, Mapping[Any, str]]
"""Arguments of a record's fields: the words of each value that a field may have; under None a number's."""

_FILE = re.compile(r"(\$\(|`)\s*(<|cat\b|grep\b|sed\b|awk\b|xargs\b)")


def table_of(trainer: str) -> Table:
    """Return the arguments of a trainer in `trainer_arguments.csv`, in the order that they are written in."""
    found = dict[str, dict[Any, str]]()
    for row in csv_rows(Path(__file__).parents[1] / "trainer_arguments.csv", "argument", LayoutError):
        if row.text("trainer") == trainer:
            value = row["value"].parsed if "value" in row else None
            key = row.cells.get("value") if value is None else value
            found.setdefault(row.text("field"), {})[key] = row.cells.get("arguments", "")
    return found


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
        raise LayoutError(
            "cannot be read; give a text file of Megatron-LM's or torchtitan's arguments"
        ) from None
    lines = (line.strip() for line in text.splitlines())
    if not next((line for line in lines if line and line[0] != "#"), "").startswith("-"):
        return _command(text, names)
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise LayoutError(f"is no command line ({error}); close the quotes") from None


def _command(text: str, names: tuple[str, ...]) -> Sequence[Word]:
    """Return the only command of a script with such arguments, or the longest command if none has them."""
    try:
        commands = commands_of(text)
    except RecursionError:
        raise LayoutError("is nested too deeply; give a file of the arguments alone") from None
    found = dict[tuple[Word, ...], tuple[Word, ...]]()
    for words in reversed(commands):
        starts = [i for i, word in enumerate(words) if word.startswith("--")]
        runs = (words[i:end] for i, end in pairwise([*starts, len(words)]) if words[i].startswith(names))
        if named := tuple(word for run in runs for word in run):
            found[named] = words
    if len(found) > 1:
        one, *_, other = sorted(words[0].line for words in found.values())
        raise LayoutError(
            f"the commands of line {one} and line {other} have other arguments; give a script with "
            "one of them"
        )
    words = next(iter(found.values()), max(commands, key=len, default=()))
    for before, word in pairwise((Word(""), *words)):
        if _FILE.match(word) and word.unknown and not before.startswith("--"):
            raise LayoutError(f"{word.unknown} may give arguments; write them out in its place")
    return words


def given(words: Iterable[str]) -> dict[str, list[str]]:
    """Return the values of each flag; for a flag given twice the last ones.

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
    """Return the flags of fields with their values; fields of None are left out."""
    found: dict[str, object] = {}
    for name, ways in table.items():
        value = record.get(name)
        if value in ways and value is not None:
            found |= {flag: words or None for flag, words in given(ways[value].split()).items()}
        elif None in ways and value is not None:
            is_whole = not isinstance(value, str) and value == int(value)
            found[ways[None]] = int(value) if is_whole else value
    return found


def fields_read(said: Mapping[str, list[str]], table: Table) -> dict[str, Any]:
    """Return the fields of a command line; among choices, the one with most words, all of them given.

    Raises:
        LayoutError: A number is none.
    """
    found: dict[str, Any] = {}
    for name, ways in table.items():
        if (flag := ways.get(None, "")) in said:
            text = "".join(said[flag][:1])
            try:
                found[name] = int(text) if text.isdecimal() else float(text)
            except ValueError:
                raise LayoutError(f"{flag}: {text!r} is not a number; write the number itself") from None
            continue
        choices = {value: given(words.split()) for value, words in ways.items() if value is not None}
        there = {
            value: len(own)
            for value, own in choices.items()
            if all(each in said and said[each][: len(words)] == words for each, words in own.items())
        }
        found |= {name: max(there, key=lambda value: there[value])} if there else {}
    return found
