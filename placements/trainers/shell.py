"""The commands of a bash script, word by word as the shell would make them. Nothing is run.

Variables, arrays, quotes and defaults as ``${TP:-4}`` are followed; a variable that is set nowhere counts as
unset there. Else it stays in its word as a mark, like sums and all values known only at run time: a reader of
the word may refuse it. Conditions are not decided: every branch may run, and words that a branch sets are
marked. Variables set by loops or ``read`` are never known. Functions, here-documents and sourced files are
refused. Quotes in the text of a variable count where it is split into words: the shell would keep them, but
they are meant as quotes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile

from placements.trainers.layout import LayoutError

_PARENTHESES, _BRACES = r"[^()]*", r"[^{}]*"
for _ in range(4):
    _PARENTHESES, _BRACES = rf"(?:[^()]|\({_PARENTHESES}\))*+", rf"(?:[^{{}}]|\{{{_BRACES}\}})*+"
_COMMAND = rf"[$<>]\({_PARENTHESES}\)|`[^`]*`"
_EXPANSION = rf"{_COMMAND}|\$\{{{_BRACES}\}}|\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])"
_QUOTED = rf"\$?'[^']*'|\$?\"(?:\\.|{_COMMAND}|[^\"])*+\""
_PIECE = re.compile(rf"\\.|{_QUOTED}|{_EXPANSION}", re.S)
_PIECE_IN_QUOTES = re.compile(rf"\\.|{_EXPANSION}", re.S)
_ARRAY = rf"\((?:{_QUOTED}|(?<=\s)#[^\n]*|\\.|\$\({_PARENTHESES}\)|[^()'\"\\])*+\)"
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|(?<![^\s;&|()])#[^\n]*)|(?P<target>(?:\d+|&)?(?:<<<|<<|>>|[<>]&|>\||[<>](?!\()))"
    rf"|(?P<word>\(\({_PARENTHESES}\)\)|\[\[\s.*?\s\]\]|[\w-]+[ \t]*\(\)"
    rf"|(?:\w\+?={_ARRAY}|{_PIECE.pattern}|[^\s;&|()<>])+)|(?P<end>\n|;;&?|;&?|&&|\|\||\|&?|&|\(|\))",
    re.S | re.A,
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=(.*)", re.S)
_PARAMETER = re.compile(r"\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?(?::-(.*?))?\}?", re.S)
_SETS = re.compile(
    r"\$?\(\(.*(\+\+|--|(?<![=!<>])=(?!=))|\$\{\w+:?=|(read\w*|mapfile|getopts|let|unset|printf -v)\s", re.S
)
_FIRST_MARK = 0xF0000
_ENDS = {"if": "fi", "for": "done", "while": "done", "until": "done", "case": "esac", "{": "}", "(": ")"}
_KEYWORDS = (*_ENDS, *_ENDS.values(), "then", "elif", "else", "do", "!", "time")
_DECLARE = ("export", "readonly", "declare", "typeset")
_NO_COMMANDS = ("echo", "printf", "cat", "tee", "[", "[[", "test", "exit", "break")


class Word(str):
    """A word of a command.

    Attributes:
        line: Line on which it begins, from 1.
        unknown: Expansion in it that only a run can tell, with its line; empty where there is none.
    """

    line: int
    unknown: str

    def __new__(cls, text: str, line: int = 1, unknown: str = "") -> Word:
        """Return a word of a text."""
        word = super().__new__(cls, text)
        word.line, word.unknown = line, unknown
        return word


def commands_of(text: str) -> list[tuple[Word, ...]]:
    """Return the commands of a script that may run, in order, except commands that only print.

    A text in quotes with arguments in it, as of ``bash -c`` and ``eval``, is such a script too.

    Raises:
        LayoutError: The script has a function or a here-document, or reads another file.

    >>> script = '''TP=2
    ... ARGS="--tp $TP --pp ${PP:-4} --layers $LAYERS"
    ... torchrun train.py $ARGS 2>&1 | sort'''
    >>> words = commands_of(script)[0]
    >>> words[2:], words[-1].unknown
    (('--tp', '2', '--pp', '4', '--layers', '$LAYERS'), '$LAYERS of line 2')
    """
    script = _Script()
    for _ in range(2):  # once to find what is never known
        script.variables, script.commands = {}, []
        script.run(text, 1)
    return script.commands


def _statements(text: str, line: int) -> Iterator[tuple[str, list[Word]]]:
    """Yield the separator before each simple command, and the command's words as written."""
    before, words, is_target = "\n", list[Word](), False
    text = re.sub(r"`#[^`\n]*`", "", text.replace("\r\n", "\n").replace("\\\n", "\r"))
    for token in _TOKEN.finditer(text + "\n"):
        kind, written = token.lastgroup, token[0]
        if written.endswith("<<"):
            raise LayoutError(f"line {line}: a here-document is not followed; write its text as a command")
        if kind == "word" and not is_target:
            words.append(Word(written, line))
        elif kind == "end" and (words or written != "\n"):
            yield before, words
            before, words = written, []
        is_target = kind == "target" or (is_target and kind == "space")
        line += written.count("\n") + written.count("\r")


class _Script:
    """State of the walk through a script: its variables, and its commands so far."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self.commands: list[tuple[Word, ...]] = []
        self._never_known, self._unknowns = set[str](), list[tuple[str, str]]()

    def run(self, text: str, line: int) -> None:
        """Follow a script that begins on a line."""
        inside = list[str]()
        for before, words in _statements(text, line):
            words = [Word(before)] * (before in ("(", ")")) + words
            while words and words[0] in _KEYWORDS:
                keyword, *words = words
                if keyword in _ENDS:
                    inside.append(_ENDS[keyword])
                elif inside and inside[-1] == keyword:
                    inside.pop()
                if keyword in ("for", "case"):
                    self._never_known |= set(words[: keyword == "for"])
                    words = []
            is_branch = bool(inside) or before in ("&&", "||")
            if words and (words[0] in _DECLARE or all(map(_ASSIGNED.match, words))):
                for word in words:
                    self._assign(word, is_branch, "done" in inside)
            elif words:
                self._command(words)

    def _assign(self, word: Word, is_branch: bool, is_loop: bool) -> None:
        if not (assigned := _ASSIGNED.match(word)):
            return
        name, is_element, adds, text = assigned.groups()
        self._never_known |= {name} if is_element or is_loop else set()
        before, found, is_array = self.variables.get(name, ""), self._filled(text, word.line), text[:1] == "("
        found = re.sub(r"(?<!\S)#.*", "", found[1:-1]) if is_array else " ".join(_split(found))
        if adds:
            found = f"{before} {found}" if is_array else before + found
        if is_branch:
            words, mark = (before.split(), found.split()), self._unknown("", f"${name}", word.line)
            pairs = takewhile(lambda pair: pair[0] == pair[1], zip(*words, strict=False))
            same = [one for one, _ in pairs]
            found = " ".join([*same, *(one + mark for each in words for one in each[len(same) :])])
        self.variables[name] = found

    def _command(self, words: list[Word]) -> None:
        name, line, text = words[0], words[0].line, " ".join(words)
        if re.match(r"function |\S+\(\)|(source|\.) (?!['\"]?[/~]|.*/activate\b)", text):
            raise LayoutError(f"line {line}: {' '.join(words[:2])!r} is not followed; write its commands out")
        self._note_set(text)
        filled = [part for word in words for part in _split(self._filled(word, word.line))]
        if filled and name not in _NO_COMMANDS and name[:2] not in ("((", "[["):
            self.commands.append(tuple(self._word(word, line) for word in filled))
            for text in filter(re.compile(r"\s--\w").search, filled):
                self.run(text, line)

    def _note_set(self, text: str) -> None:
        """Note the names of variables that a text sets."""
        self._never_known |= set(re.findall(r"\b[A-Za-z_]\w*", text)) if _SETS.match(text) else set()

    def _unknown(self, shown: str, source: str, line: int) -> str:
        """Return the mark of an expansion whose value is known only at run time."""
        self._unknowns.append((shown, f"{' '.join(source.split())[:60]} of line {line}"))
        return chr(_FIRST_MARK + len(self._unknowns) - 1)

    def _word(self, text: str, line: int) -> Word:
        marks = {mark: self._unknowns[ord(mark) - _FIRST_MARK] for mark in text if ord(mark) >= _FIRST_MARK}
        for mark, (shown, _) in marks.items():
            text = text.replace(mark, shown)
        return Word(text, line, next((source for _, source in marks.values()), ""))

    def _filled(self, text: str, line: int, pieces: re.Pattern[str] = _PIECE) -> str:
        """Return a text with its expansions replaced by their values or marks."""

        def filled(piece: re.Match[str]) -> str:
            written = piece[0].removeprefix("$") if piece[0][:2] in ("$'", '$"') else piece[0]
            if written[0] == '"':
                inner = self._filled(written[1:-1], line, _PIECE_IN_QUOTES)
                is_array = re.fullmatch(r"\"\$\{\w+\[@\]\}\"", written)
                return inner.replace('\\"', '"') if is_array else f'"{inner}"'
            if written[0] in "\\'":
                return written
            found = self._value(written, line)
            return found.replace('"', '\\"') if pieces is _PIECE_IN_QUOTES else found

        return pieces.sub(filled, text)

    def _value(self, written: str, line: int) -> str:
        """Return the value of an expansion, or its mark if the value is known only at run time."""
        self._note_set(written)
        parameter = _PARAMETER.fullmatch(written)
        if parameter is None or parameter[1] in self._never_known:
            return self._unknown(written, written, line)
        if value := self.variables.get(parameter[1]):
            return value
        if parameter[2] is not None:
            return " ".join(_split(self._filled(parameter[2], line)))
        return self._unknown(written, written, line) if value is None else value


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
