"""The commands of a bash script, word by word as the shell would make them. Nothing is run.

Variables, arrays, sums, sourced files and here-documents of shells are followed. Conditions are not decided:
every branch may run, and what branches and loops set is not known from there on. Functions are read where
they stand, without values. A variable that is set nowhere counts as unset in ``${TP:-4}``; elsewhere it stays
in its word as a mark, like all that only a run can tell. Who reads the word may refuse it. Quotes in the text
of a variable count where it is split into words: the shell would keep them, but they are meant as quotes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

_PARENTHESES, _BRACES = r"[^()]*", r"[^{}]*"
for _ in range(4):
    _PARENTHESES, _BRACES = rf"(?:[^()]|\({_PARENTHESES}\))*+", rf"(?:[^{{}}]|\{{{_BRACES}\}})*+"
_COMMAND = rf"[$<>]\({_PARENTHESES}\)|`[^`]*`"
_EXPANSION = (
    rf"\$\(\((?P<sum>{_PARENTHESES})\)\)|{_COMMAND}|\$\{{(?P<braced>{_BRACES})\}}"
    r"|\$(?P<name>[A-Za-z_]\w*|[0-9@*#?$!-])"
)
_PIECE = re.compile(rf"\\.|\$?'[^']*'|\$?\"(?P<quoted>(?:\\.|{_COMMAND}|[^\"])*+)\"|{_EXPANSION}", re.S)
_PIECE_IN_QUOTES = re.compile(rf"\\.|(?P<quoted>(?!))|{_EXPANSION}", re.S)
_ARRAY = rf"\((?:'[^']*'|\"(?:\\.|[^\"])*\"|(?<=\s)#[^\n]*|\\.|\$\({_PARENTHESES}\)|[^()'\"\\])*+\)"
_WORD = rf"(?:\w\+?={_ARRAY}|{re.sub('[?]P<[a-z]+>', '?:', _PIECE.pattern)}|[^\s;&|()<>])+"
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|(?<![^\s;&|()])#[^\n]*)|(?P<target>(?:\d+|&)?(?:<<<|>>|[<>]&|>\||[<>](?!\()))"
    rf"|(?P<word>\(\({_PARENTHESES}\)\)|\[\[\s.*?\s\]\]|[\w-]+[ \t]*\(\)|{_WORD})"
    r"|(?P<end>\n|;;&?|;&?|&&|\|\||\|&?|&|\(|\))",
    re.S | re.A,
)
_HEREDOC = re.compile(
    r"^([^\n#]*?)(?<!<)<<-?[ \t]*['\"\\]?(\w+)['\"]?([^\n]*\n)((?:.*?\n)??)[ \t]*\2[ \t]*$", re.M | re.S
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=(.*)", re.S)
_PARAMETER = re.compile(r"(\w+|[@*])(?:\[[@*]\])?(?:(:?)([-=?])(.*))?", re.S)
_SETS = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)")
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_MARK = re.compile("\ue000([0-9]+)\ue001")
_ENDS = {"if": "fi", "for": "done", "while": "done", "until": "done", "case": "esac", "{": "}"}
_KEYWORDS = (*_ENDS, *_ENDS.values(), "then", "elif", "else", "do", "!", "time")
_DECLARE = ("export", "readonly", "local", "declare", "typeset")
_SETTERS = ("read", "mapfile", "readarray", "getopts", "let", "unset")
_NO_COMMANDS = ("echo", "printf", "cat", "tee", "logger", "[", "[[", "test", "exit", "break")


class Word(str):
    """A word of a command.

    Attributes:
        line: Line on which its command begins, from 1.
        unknown: Expansion in it that only a run can tell, with its line; empty where there is none.
    """

    line: int
    unknown: str

    def __new__(cls, text: str, line: int = 1, unknown: str = "") -> Word:
        """Return a word of a text."""
        word = super().__new__(cls, text)
        word.line, word.unknown = line, unknown
        return word


def commands_of(text: str, folder: Path = Path()) -> list[tuple[Word, ...]]:
    """Return the commands of a script that may run, in order, without those that only print.

    A text in quotes with arguments in it, as of ``bash -c`` and ``eval``, is such a script too. Of a script
    without any command the words of all variables are given. Files that it sources are looked for in a
    folder.

    >>> script = '''TP=2
    ... ARGS="--tp $TP --pp $((TP * 2)) --layers $LAYERS"
    ... torchrun train.py $ARGS 2>&1 | sort'''
    >>> words = commands_of(script)[0]
    >>> words[2:], words[-1].unknown
    (('--tp', '2', '--pp', '4', '--layers', '$LAYERS'), '$LAYERS of line 2')
    """
    script = _Script(folder)
    script.run(text, 1)
    if not script.commands:
        script.run(" ".join(f"${name}" for name in script.variables), 1)
    return script.commands


def _statements(text: str, line: int) -> Iterator[tuple[str, int, list[Word]]]:
    """Yield what stands before each simple command, its line, and its words as they are written."""
    before, words, first, is_target = "\n", list[Word](), line, False
    for token in _TOKEN.finditer(text + "\n"):
        kind, written = token.lastgroup, token[0]
        if kind == "word" and not is_target:
            first = first if words else line
            words.append(Word(written, line))
        elif kind == "end" and (words or written != "\n"):
            yield before, first, words
            before, words = written, []
        is_target = kind == "target" or (is_target and kind == "space")
        line += written.count("\n") + written.count("\r")


def _without_heredoc(found: re.Match[str]) -> str:
    """Return a line without its here-document, which stays where a shell runs it."""
    is_run = re.search(r"(?<!\S)(bash|sh|zsh|sbatch|ssh)(?!\S)", found[1])
    return found[1] + found[3] + (found[4] if is_run else "\n" * found[4].count("\n"))


class _Script:
    """A script on the way through its text, with its variables and commands so far."""

    def __init__(self, folder: Path) -> None:
        self.variables: dict[str, str] = {}
        self.commands: list[tuple[Word, ...]] = []
        self._folder, self._is_open, self._in_function = folder, False, False
        self._functions, self._set_by_functions = set[str](), set[str]()
        self._unknowns: list[tuple[str, str]] = []

    def run(self, text: str, line: int) -> None:
        """Follow a script that begins on a line."""
        text = re.sub(r"`#[^`\n]*`", "", text.replace("\r\n", "\n").replace("\\\n", "\r"))
        statements = list(_statements(_HEREDOC.sub(_without_heredoc, text), line))
        inside, is_test, may_run_not, is_function = list[str](), False, False, False
        for i, (before, first, words) in enumerate(statements):
            if before in "()":
                inside = [*inside, ")"] if before == "(" else inside[: -1 if inside[-1:] == [")"] else None]
            if words and (words[0] == "function" or words[0].endswith("()")):
                name, *words = words[words[0] == "function" :]
                self._functions.add(name.removesuffix("()").rstrip())
                is_function = True
            while words and words[0] in _KEYWORDS:
                keyword, *words = words
                if keyword in ("for", "while", "until"):
                    last = max(j for j, each in enumerate(statements) if each[2][:1] == ["done"] or j == i)
                    loop = " ".join(word for each in statements[i:last] for word in each[2])
                    named = re.findall(r"([A-Za-z_]\w*)(?:\[[^]]*\])?\+?=", loop)
                    self._forget(" ".join([*named, *words[: keyword == "for"]]), first)
                words = [] if keyword in ("for", "case") else words
                if keyword in _ENDS:
                    inside.append("function }" if is_function else _ENDS[keyword])
                    is_function = False
                elif inside and inside[-1].endswith(keyword):
                    inside.pop()
            self._in_function = "function }" in inside
            may_run_not = before in ("&&", "||") and (may_run_not or is_test or before == "||")
            is_test = words[:1] != [] and words[0].startswith(("[", "((", "test"))
            if is_test and words[0].startswith("(("):
                self._forget(words[0] if _SETS.search(words[0]) else "", first)
            elif words[:1] and (words[0] in _DECLARE or all(map(_ASSIGNED.match, words))):
                for assigned in filter(None, map(_ASSIGNED.match, words)):
                    self._assign(assigned, first, bool(inside) or may_run_not)
            elif words:
                self._command([part for word in words for part in self._words(word)], first)

    def _assign(self, assigned: re.Match[str], line: int, may_run_not: bool) -> None:
        name, is_element, adds, text = assigned.groups()
        before, found = self.variables.get(name) or "", self._filled(text, line)
        if text.startswith("("):
            found = (f"{before} " if adds else "") + re.sub(r"(?<!\S)#.*", "", found[1:-1])
        else:
            found = (before if adds else "") + " ".join(_split(found))
        if may_run_not and self.variables.get(name) != found:
            words = before.split(), found.split()
            pairs = takewhile(lambda pair: pair[0] == pair[1], zip(*words, strict=False))
            common = [word for word, _ in pairs]
            mark = self._unknown(f"${name}", line, shown="")
            others = [word + mark for each in words for word in each[len(common) :]]
            found = " ".join([*common, *(others or [mark])])
        self._set_by_functions |= {name} if self._in_function else set()
        is_unknown = is_element or name in self._set_by_functions
        self.variables[name] = self._unknown(f"${name}", line) if is_unknown else found

    def _forget(self, text: str, line: int) -> None:
        """Note that a run may set the variables in a text."""
        self.variables |= {name: self._unknown(f"${name}", line) for name in _NAME.findall(text)}

    def _command(self, words: list[str], line: int) -> None:
        name = " ".join(words[:1])
        if name in _SETTERS or words[:2] == ["printf", "-v"]:
            self._forget(" ".join(words[1:]), line)
        elif words[:2] == ["set", "--"] or name == "shift":
            self._is_open = True
        elif name in ("source", ".") and words[1:]:
            self._source(words[1].rpartition("\ue001/")[2], line)
        elif words and name not in (*_NO_COMMANDS, *self._functions):
            self.commands.append(tuple(self._word(word, line) for word in words))
            for text in filter(re.compile(r"\s--\w").search, words):
                self.run(text, line)

    def _source(self, name: str, line: int) -> None:
        """Follow a file that lies beside the script; where there is none, it may set any variable."""
        try:
            self.run((self._folder / name).read_text(encoding="utf-8-sig"), line)
        except (OSError, ValueError):
            if not name.startswith(("/", "~")) and not name.endswith("/activate"):
                self._is_open = True
                self._forget(" ".join(self.variables), line)

    def _unknown(self, source: str, line: int, shown: str | None = None) -> str:
        """Return the mark for what only a run can tell."""
        short = re.sub(r"^(.{57}).{4,}", r"\1...", " ".join(source.split()))
        self._unknowns.append((source if shown is None else shown, f"{short} of line {line}"))
        return f"\ue000{len(self._unknowns) - 1}\ue001"

    def _word(self, text: str, line: int) -> Word:
        found = _MARK.search(text)
        shown = _MARK.sub(lambda mark: self._unknowns[int(mark[1])][0], text)
        return Word(shown, line, self._unknowns[int(found[1])][1] if found else "")

    def _words(self, word: Word) -> list[str]:
        return _split(self._filled(word, word.line))

    def _filled(self, text: str, line: int, pieces: re.Pattern[str] = _PIECE) -> str:
        """Return a text with its expansions in their places."""

        def filled(piece: re.Match[str]) -> str:
            here = line + len(re.findall(r"[\n\r]", text[: piece.start()]))
            if piece["quoted"] is not None:
                inner = self._filled(piece["quoted"], here, _PIECE_IN_QUOTES)
                is_array = re.fullmatch(r"\$(?:@|\{@\}|\{\w+\[@\]\})", piece["quoted"])
                return inner.replace('\\"', '"') if is_array else f'"{inner}"'
            if piece[0][0] in "\\'" or piece[0].startswith("$'"):
                return piece[0].removeprefix("$")
            found = self._value(piece, here)
            return found.replace('"', '\\"') if pieces is _PIECE_IN_QUOTES else found

        return pieces.sub(filled, text)

    def _value(self, piece: re.Match[str], line: int) -> str:
        """Return what an expansion stands for: its mark where only a run can tell."""
        parameter = _PARAMETER.fullmatch(piece["name"] or piece["braced"] or "")
        if self._in_function:
            return self._unknown(piece[0], line)
        if parameter:
            name, or_empty, rule, word = parameter.groups()
            value = self.variables.get(name)
            if (value is None or (or_empty and not value)) and rule in ("-", "=") and not self._is_open:
                value = " ".join(_split(self._filled(word, line)))
                self.variables |= {name: value} if rule == "=" else {}
            if value is not None:
                return value
        if piece["sum"] and _SETS.search(piece["sum"]):
            self._forget(piece["sum"], line)
        elif piece["sum"]:
            text = _NAME.sub(lambda name: self.variables.get(name[0], "?"), self._filled(piece["sum"], line))
            if re.fullmatch(r"[\d\s()+*/%-]+", text) and "**" not in text:
                with suppress(SyntaxError, ZeroDivisionError):
                    return str(eval(text.strip().replace("/", "//")))  # nothing but numbers and signs
        return self._unknown(piece[0], line)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
