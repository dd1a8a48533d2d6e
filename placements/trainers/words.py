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

Table = Mapping[str, Mapping[Any, str]]
"""Arguments of a record's fields: the words of each value that a field may have; under None a number's."""

_SEPARATORS = ";&|()\n"
_NO_WORDS = re.compile(r"`#[^`\n]*`|(?<=\s)[\d&]?>>?(?:&\d|\s*[^\s;&|()]+)")
"""Comments within a command, and redirections."""

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\]|\+)?=(.*)", re.S)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{(\w+)(?::-([^{}]*))?\})")
_MOST_NESTED = 8
"""Variables in the values of others that are followed."""

_OPENING, _CLOSING = ("if", "for", "while", "until", "case"), ("fi", "done", "esac")
_KEYWORDS = ("if", "elif", "then", "else", "while", "until", "do", "!", "time")
_SETTERS = ("read", "let", "unset", "printf", "mapfile", "getopts", "for")
"""Commands that set the variables named behind them."""


def flag_table(trainer: str) -> Table:
    """Return the arguments of a trainer in `trainer_arguments.csv`, in the order that they are written in."""
    table = dict[str, dict[Any, str]]()
    for row in csv_rows(Path(__file__).parents[1] / "trainer_arguments.csv", "argument", LayoutError):
        if row.text("trainer") == trainer:
            value = row["value"].parsed if "value" in row else None
            key = row.cells.get("value") if value is None else value
            table.setdefault(row.text("field"), {})[key] = row.cells.get("arguments", "")
    return table


def argument_words(path: str | Path, names: tuple[str, ...]) -> list[str]:
    """Return the words of a file of arguments, or of a bash script that has them; nothing is run.

    Arguments of a script count in a command, in an array and in the text of a variable. A variable that the
    script sets once, and not under a condition, is replaced by its value, one that it does not set by its
    default; a word that a run alone can tell keeps its ``$``, see `known`. A semicolon ends a command.

    Args:
        path: The file.
        names: Beginnings of the arguments that must not differ, nor be under a condition.

    Raises:
        LayoutError: It cannot be read, a quote is open, or such an argument has two values.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError):
        raise LayoutError(
            "cannot be read; give a text file of Megatron-LM's or torchtitan's arguments"
        ) from None
    lines = (line.strip() for line in text.splitlines())
    try:
        if next((line for line in lines if line and line[0] != "#"), "").startswith("-"):
            return shlex.split(text, comments=True)
        tokens = shlex.shlex(_NO_WORDS.sub(" ", text), posix=True, punctuation_chars=_SEPARATORS)
        tokens.whitespace, tokens.whitespace_split = " \t\r", True
        words = _script_words(list(tokens), names)
    except LayoutError:
        raise
    except ValueError as error:
        raise LayoutError(f"is no command line ({error}); close the quotes") from None
    _require_one_value([*words, ";"], names)
    return words


def _script_words(tokens: Iterable[str], names: tuple[str, ...]) -> list[str]:
    """Return the words of a script's tokens; see `argument_words`."""
    words, values = [";"], dict[str, set[str]]()
    depth, separator, command, is_array = 0, "", "", False
    for token in tokens:
        if token and not token.strip(_SEPARATORS):
            separator, before = token.strip(), words[-1]
            if is_substitution := before.endswith("$"):
                words[-1] += "(...)"  # $(command) or $((sum))
            command = "((" if "((" in token and not is_substitution else ""
            is_array = ")" not in token and (is_array or (token[0] == "(" and before.endswith("=")))
            words += [] if is_array else [";"]  # an array may go on on the next line
            continue
        depth += (token in _OPENING) - (token in _CLOSING)
        assigned, text = _ASSIGNED.fullmatch(token), token
        if assigned:
            name, adds, text = assigned.groups()
            is_sure = not depth and not adds and separator not in ("&&", "||")
            if text.startswith(f"${{{name}:-"):  # as in TP=${TP:-4}: where it is unset
                text = text.removeprefix(f"${{{name}:-").removesuffix("}")
            values.setdefault(name, set()).add(text if is_sure else f"${name}")  # its own name: not known
        elif command == "((":
            sets = token.lstrip("+-*/%") == "="
            changed = words[-1] if sets else token.strip("+-")
            if sets or changed != token:
                values.setdefault(changed, set()).add(f"${changed}")
        elif command in _SETTERS:
            values.setdefault(token, set()).add(f"${token}")
        elif command in ("source", ".") and token[:1] not in "/~" and not token.endswith("/activate"):
            raise LayoutError(f"{command} {_line(token)}: is not followed; write its commands out")
        parts = shlex.split(text) if " --" in f" {text}" else [token]
        if depth and (under := [word for word in parts if word.startswith(names)]):
            raise LayoutError(f"{under[0]}: is under a condition or in a loop; write only the command itself")
        words += parts
        command = command or ("" if token in _KEYWORDS else token)
    return [_filled(word, values) for word in words]


def _filled(word: str, values: Mapping[str, set[str]]) -> str:
    """Return a word with the values of its variables, as far as they are known; `values` has all of each."""

    def value(variable: re.Match[str]) -> str:
        plain, in_braces, default = variable.groups()
        texts = values.get(plain or in_braces, {""})
        return variable[0] if len(texts) > 1 else next(iter(texts)) or default or variable[0]

    filled = word
    for _ in range(_MOST_NESTED):
        filled = _VARIABLE.sub(value, filled)
    return filled if len(filled.split()) == 1 else word


def _require_one_value(words: Sequence[str], names: tuple[str, ...]) -> None:
    seen = dict[str, str]()
    for word, after in pairwise(words):
        name, equals, value = word.partition("=")
        value = value if equals else after
        if name.startswith(names) and seen.setdefault(name, value) != value:
            both = f"{_line(seen[name])} and {_line(value)}"
            raise LayoutError(f"{name}: is there with {both}; give a script with one of them")


def _line(text: str) -> str:
    return " ".join(text.split())[:60]


def given(words: Iterable[str]) -> dict[str, list[str]]:
    """Return the values of each flag; for a flag given twice the last ones.

    A semicolon and a variable that is not known end a list, and so does the name of a choice, as
    ``checkpoint:full``.

    >>> given(["--a", "--b=1", "2", ";", "3"])
    {'--a': [], '--b': ['1', '2']}
    """
    flags: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            values = flags[name] = [value] if equals else []
        elif word == ";" or (values and (":" in word or word.startswith("$"))):
            values = []
        else:
            values.append(word)
    return flags


def known(name: str, word: str) -> str:
    """Return a value of an argument.

    Raises:
        LayoutError: The value depends on a run of the script.
    """
    if "$" in word or "`" in word:
        raise LayoutError(f"{name}: {_line(word)} is not known before a run; write the value itself")
    return word


def argument_text(options: Mapping[str, object], comments: Iterable[str] = ()) -> str:
    """Return arguments, one a line, below comments: a list is several words, None a flag alone."""
    lines = [f"# {line}" for line in comments]
    for name, value in options.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        lines.append(" ".join([name, *(shlex.quote(str(word)) for word in values)]))
    return "\n".join(lines) + "\n"


def written(record: Mapping[str, Any], table: Table) -> dict[str, object]:
    """Return the flags of fields with their values; fields of None are left out."""
    flags: dict[str, object] = {}
    for name, ways in table.items():
        value = record.get(name)
        if value in ways and value is not None:
            flags |= {flag: words or None for flag, words in given(ways[value].split()).items()}
        elif None in ways and value is not None:
            is_whole = not isinstance(value, str) and value == int(value)
            flags[ways[None]] = int(value) if is_whole else value
    return flags


def fields_read(said: Mapping[str, list[str]], table: Table) -> dict[str, Any]:
    """Return the fields of a command line; among choices, the one with most words, all of them given.

    Raises:
        LayoutError: A number is none.
    """
    fields: dict[str, Any] = {}
    for name, ways in table.items():
        if (flag := ways.get(None, "")) in said:
            text = "".join(said[flag][:1])
            try:
                fields[name] = int(text) if text.isdecimal() else float(text)
            except ValueError:
                raise LayoutError(f"{flag}: {text!r} is not a number; write the number itself") from None
            continue
        choices = {value: given(words.split()) for value, words in ways.items() if value is not None}
        there = {
            value: len(flags)
            for value, flags in choices.items()
            if all(flag in said and said[flag][: len(words)] == words for flag, words in flags.items())
        }
        fields |= {name: max(there, key=lambda value: there[value])} if there else {}
    return fields
