"""The commands of a bash script, word by word as the shell would make them. Nothing is run.

Variables, arrays, functions, loops over known words, and files that the script itself writes are followed.
Of branches the one whose condition holds is followed; where only a run can tell, all are, and a variable that
they set otherwise is not known after them. A variable that is set nowhere counts as unset in ``${TP:-4}``,
and where ``[ -z "$TP" ]`` leads to its value. Elsewhere it stays in its word as a mark, like all that only a
run can tell; who reads the word may refuse it. A string that is split into words may have quotes: the shell
would keep them, but they are meant as quotes.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_PARENTHESES, _BRACES = r"[^()]*", r"[^{}]*"
for _ in range(4):
    _PARENTHESES, _BRACES = rf"(?:[^()]|\({_PARENTHESES}\))*+", rf"(?:[^{{}}]|\{{{_BRACES}\}})*+"
_COMMAND = rf"[$<>]\({_PARENTHESES}\)|`[^`]*`"
_EXPANSION = (
    rf"\$\(\((?P<sum>{_PARENTHESES})\)\)|(?P<command>{_COMMAND})|\$\{{(?P<braced>{_BRACES})\}}"
    r"|\$(?P<name>[A-Za-z_]\w*|[0-9@*#?$!-])|(?P<plain>.)"
)
_QUOTED = rf"\$?'(?P<raw>[^']*)'|\$?\"(?P<quoted>(?:\\.|{_COMMAND}|[^\"])*+)\""
_PIECE = re.compile(rf"\\(?P<escaped>.)|{_QUOTED}|{_EXPANSION}", re.S)
_PIECE_IN_QUOTES = re.compile(rf"\\(?P<escaped>[\\\"$`\n])|{_EXPANSION}", re.S)
_ALL_ELEMENTS = re.compile(r"\$(?:@|\{@\}|\{\w+\[@\]\})")
_PARAMETER = re.compile(r"(#?)(\w+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.S)
_DEFAULT = re.compile(r"(:?)([-=+?])(.*)", re.S)
_SLICE = re.compile(r":([^:]+)(?::(.+))?")
_CASES = {"^^": str.upper, ",,": str.lower, "^": str.capitalize}
_MARK = re.compile("\ue000([0-9]+)\ue001")
_END = "\ue002"
_VALUE = rf"(?:\"[^\"\n]*\"|'[^'\n]*'|\$\({_PARENTHESES}\)|[^\s;&|()\\'\"#$]|\$(?!\())*+"
_ASSIGNMENTS = re.compile(rf"^[ \t]*(?:\w+={_VALUE}(?:[ \t]+|$)){{2,}}+$", re.MULTILINE)
"""A line of several assignments; without an end the parser takes it for a part of the next line's command."""

_NO_WORDS = ("variable_assignment", "comment", "heredoc_redirect", "herestring_redirect")
"""Parts of a command that are no words of it."""

_OPERATORS = {"mult": "mul", "div": "floordiv", "noteq": "ne", "lte": "le", "gte": "ge"}
"""Functions of `operator` for the operators of `ast` that are called otherwise."""

_COMPARED = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_SUM = re.compile(r"(?:[\s()<>=!+*/%-]|\b(?:\d+|and|or)\b)*")
_BACKTICK_COMMENT = re.compile(r"`#[^`\n]*`")
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)(?:\[[^]]*\])?(?:\+\+|--|[-+*/]?=(?!=))")
_SHELLS = ("bash", "sh", "zsh", "sbatch", "ssh")
_PRINTING = ("echo", "printf", "cat", "tee", "logger")
_MOST, _LONGEST = 1000, 100_000
"""Functions and scripts within a script that are followed, and characters of a variable."""

_Value = str | tuple[str, ...]
"""Text of a variable, or the elements of an array."""


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
    without any command the words of all variables are given. A file that it sources is looked
    for in a folder.

    >>> script = '''TP=2
    ... ARGS="--tp $TP --pp $((TP * 2)) --layers $LAYERS"
    ... torchrun train.py $ARGS 2>&1 | sort'''
    >>> words = commands_of(script)[0]
    >>> words[2:], words[-1].unknown
    (('--tp', '2', '--pp', '4', '--layers', '$LAYERS'), '$LAYERS of line 2')
    """
    script = _Script(folder)
    script.run_text(text, 1)
    if not script.commands:
        script.run_text(" ".join(f"${{{name}[@]}}" for name in script.variables), 1)
    return script.commands


class _Left(Exception):  # noqa: N818 - it is no error
    """The script, a function or a loop is left here."""


class _Script:
    """A script on the way through its text; a method ``_run_KIND`` for each kind of node that matters.

    Attributes:
        variables: Those set so far; the arguments of a function are ``@``.
        commands: Those found so far.
    """

    def __init__(self, folder: Path = Path()) -> None:
        self.variables: dict[str, _Value] = {}
        self.commands: list[tuple[Word, ...]] = []
        self._folder, self._files = folder, dict[str, str]()
        self._functions: dict[str, Node] = {}
        self._unknowns: list[tuple[str, str]] = []
        self._first_line, self._runs = 1, 0
        self._ends: dict[str, list[list[dict[str, _Value]]]] = {"return": [], "break": [], "continue": []}
        self._locals: list[dict[str, _Value | None]] = []
        self._optional: set[str] = set()
        self._is_open = False

    def run_text(self, text: str, line: int) -> None:
        """Follow a script that begins on a line."""
        self._count()
        outer, self._first_line = self._first_line, line
        text = _ASSIGNMENTS.sub(r"\g<0>;", _BACKTICK_COMMENT.sub("", text))
        with contextlib.suppress(_Left):
            self._run(Parser(Language(tree_sitter_bash.language())).parse(text.encode()).root_node)
        self._first_line = outer

    def _line(self, node: Node) -> int:
        return self._first_line + node.start_point.row

    def _run(self, *nodes: Node) -> None:
        for node in nodes:
            run = getattr(self, f"_run_{node.type}", None)
            if run is not None:
                run(node)
            elif node.type == "compound_statement" and _text(node).startswith("(("):
                self._sum(_text(node)[2:-2], self._line(node))
            else:
                self._run(*node.named_children)

    def _run_function_definition(self, node: Node) -> None:
        self._functions[_text(node.named_children[0])] = node.named_children[-1]

    def _run_subshell(self, node: Node) -> None:
        """Follow what has variables of its own."""
        before = self.variables
        for nodes in [node.named_children] if node.type == "subshell" else zip(node.named_children):
            self.variables = dict(before)
            with contextlib.suppress(_Left):
                self._run(*nodes)
        self.variables = before

    _run_pipeline = _run_subshell

    def _run_unset_command(self, node: Node) -> None:
        for child in node.named_children:
            self.variables.pop(_text(child), None)

    def _run_declaration_command(self, node: Node) -> None:
        if self._locals and _text(node).startswith(("local", "declare", "typeset")):
            for child in node.named_children:
                name = re.split(r"\W", _text(child))[0]
                self._locals[-1].setdefault(name, self.variables.get(name))
        self._run(*node.named_children)

    def _forget(self, text: str, node: Node) -> None:
        """Note that a run may set the variables in a text."""
        for name in re.findall(r"\b[A-Za-z_]\w*", text):
            self.variables[name] = self._unknown(f"${name}", self._line(node))

    def _run_variable_assignment(self, node: Node) -> None:
        name, is_element, _ = _text(node.named_children[0]).partition("[")
        value, before = node.child_by_field_name("value"), self.variables.get(name, "")
        adds = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array" and "[" not in _text(value)[:5]:
            first = () if not adds else (before,) if isinstance(before, str) and before else before
            self.variables[name] = (*first, *self._words(value.children[1:-1]))
        elif (
            is_element
            or (value is not None and value.type == "array")
            or (not isinstance(before, str) and adds)
        ):
            self._forget(name, node)
        else:
            text = "" if value is None else self._filled(_text(value), self._line(value))
            self.variables[name] = f"{before}{text}" if adds else text
        if sum(map(len, self.variables[name])) > _LONGEST:
            self._forget(name, node)

    def _words(self, nodes: Iterable[Node]) -> list[str]:
        """Return the words that parts of a command become; what stands together without a space is one."""
        raw: list[tuple[str, int]] = []
        end = -1
        for node in nodes:
            is_file = node.type == "file_redirect"
            for part in node.children_by_field_name("destination")[1:] if is_file else [node]:
                if part.type not in _NO_WORDS:
                    text, line = raw.pop() if part.start_byte == end else ("", self._line(part))
                    raw.append((text + _text(part), line))
                    end = part.end_byte
        return [word for text, line in raw for word in self._fields(text, line)]

    def _run_command(self, node: Node) -> None:
        body, *redirects = node.children if node.type == "redirected_statement" else [node]
        if body.type != "command":
            return self._run(body)
        words, line = self._words([*body.children, *redirects]), self._line(node)
        name = words[0] if words else ""
        written = "".join(self._heredoc(each) for each in redirects if each.type == "heredoc_redirect")
        if name in self._functions:
            self._call(name, words[1:], node)
        elif name == "exit" or name in self._ends:
            if self._ends.get(name):
                self._ends[name][-1].append(self.variables)
            raise _Left
        elif name == "read" and written:
            self.variables[words[-1]] = written
        elif name in ("read", "mapfile", "readarray", "getopts", "let") or words[:2] == ["printf", "-v"]:
            self._forget(" ".join(words[1:]), node)
        elif name == "set" and words[1:2] == ["--"]:
            self.variables["@"] = tuple(words[2:])
        elif name == "shift" and isinstance(given := self.variables.get("@"), tuple):
            self.variables["@"] = given[int(words[1]) if words[1:] and words[1].isdecimal() else 1 :]
        elif name in ("source", ".") and words[1:]:
            self._source(words[1], line)
        elif name in ("cat", "tee") and written:
            target = re.search(r">\s*(\S+)", _text(node).partition("\n")[0])
            self._files[self._filled(target[1], line) if target else words[-1]] = written
        elif words and name not in _PRINTING:
            self.commands.append(tuple(self._word(word, line) for word in words))
            for text in filter(re.compile(r"\s--\w").search, words):
                self.run_text(text, line)
            if written and any(word in _SHELLS for word in words):
                self.run_text(written, line + 1)
            for word in words[:3]:
                self.run_text(self._files.get(word.removeprefix("./"), ""), line)
        return None

    _run_redirected_statement = _run_command

    def _heredoc(self, node: Node) -> str:
        parts = {each.type: each for each in node.children}
        start, body = parts.get("heredoc_start", node), parts.get("heredoc_body", node)
        is_raw = set(_text(start)) & {"'", '"', "\\"}
        return _text(body) if is_raw else self._filled(_text(body), self._line(body), _PIECE_IN_QUOTES)

    def _source(self, word: str, line: int) -> None:
        """Follow a file that lies beside the script; where there is none, it may set any variable."""
        name = word.rpartition("\ue001/")[2]
        try:
            self.run_text((self._folder / name).read_text(encoding="utf-8-sig"), line)
        except (OSError, ValueError):
            self._is_open = self._is_open or not name.startswith(("/", "~"))

    def _call(self, name: str, words: Sequence[str], node: Node) -> None:
        self._count()
        self._locals.append({"@": self.variables.get("@")})
        self.variables["@"] = tuple(words)
        self._until("return", node, lambda: self._run(self._functions[name]))
        for local, value in self._locals.pop().items():
            self.variables.pop(local, None)
            self.variables |= {} if value is None else {local: value}

    def _until(self, kind: str, node: Node, run: Callable[[], object]) -> None:
        """Run something that can be left, and keep of the variables what all ends of it have in common."""
        self._ends[kind].append([])
        end = self._end(run)
        self._join([*self._ends[kind].pop(), *end], node)

    def _end(self, run: Callable[[], object]) -> list[dict[str, _Value]]:
        """Return the variables after something; none where it leaves what is around it."""
        try:
            run()
        except _Left:
            return []
        return [self.variables]

    def _count(self) -> None:
        self._runs += 1
        if self._runs > _MOST:
            raise RecursionError

    def _status(self, node: Node) -> bool | None:
        """Follow a command, and return whether it succeeds; None where only a run can tell."""
        text, line = _text(node), self._line(node)
        if node.type == "negated_command":
            status = self._status(node.named_children[0])
            return None if status is None else not status
        if node.type == "list":
            return self._run_list(node)
        if node.type == "compound_statement" and text.startswith("(("):
            number = self._sum(text[2:-2], line)
            return None if number is None else number != 0
        if node.type == "test_command" or re.match(r"test\s", text):
            if text.startswith("[["):
                return self._holds([self._filled(each, line) for each in _raw_words(text[2:-2])], True)
            inside = text[1:-1] if text.startswith("[") else text[4:]
            return self._holds([word for each in _raw_words(inside) for word in self._fields(each, line)])
        words = self._words(node.children) if node.type == "command" else []
        if words in (["true"], [":"], ["false"]):
            return words != ["false"]
        self._run(node)
        return True if node.type in ("variable_assignment", "declaration_command") else None

    def _holds(self, words: Sequence[str], is_double: bool = False) -> bool | None:
        """Return whether a test holds; None where only a run can tell.

        Args:
            words: Its words, without the brackets.
            is_double: Whether there are two brackets, so that words on the right are patterns.
        """
        for names, decides in ((("||", "-o"), True), (("&&", "-a"), False)):
            depth = 0
            for i, word in enumerate(words):
                depth += (word == "(") - (word == ")")
                if i and not depth and word in names:
                    sides = self._holds(words[:i], is_double), self._holds(words[i + 1 :], is_double)
                    return decides if decides in sides else None if None in sides else not decides
        if words[:1] == ["!"] and len(words) > 1:
            status = self._holds(words[1:], is_double)
            return None if status is None else not status
        if len(words) > 2 and (words[0], words[-1]) == ("(", ")"):
            return self._holds(words[1:-1], is_double)
        return self._compared(words, is_double)

    def _compared(self, words: Sequence[str], is_double: bool) -> bool | None:
        kind = words[0] if len(words) == 2 else words[1] if len(words) == 3 else ""
        if kind in ("-z", "-n") and (mark := _MARK.fullmatch(words[1])):
            name = self._unknowns[int(mark[1])][0].strip("${}")
            is_unset = name in self._optional - {*self.variables} and not self._is_open
            return (kind == "-z") if is_unset else None
        if any(map(_MARK.search, words)):
            return None
        if len(words) < 2:
            return bool("".join(words))
        left, right = words[0], words[-1]
        if kind in ("-z", "-n"):
            return (kind == "-z") == (right == "")
        try:
            if kind in _COMPARED:
                return bool(_COMPARED[kind](int(left), int(right)))
            if kind == "=~":
                return re.search(right, left) is not None
        except (ValueError, re.error):
            return None
        if kind in ("=", "==", "!="):
            return (fnmatchcase(left, right) if is_double else left == right) == (kind != "!=")
        return {"<": left < right, ">": left > right}.get(kind)

    def _run_list(self, node: Node) -> bool | None:
        """Follow ``a && b`` and ``a || b``; a command on the left of ``&&`` is taken to succeed."""
        left, right = node.children[0], node.children[-1]
        status = self._status_before(left, right)
        is_or = any(child.type == "||" for child in node.children)
        goes_on = None if status is None else status != is_or
        if status is None and not is_or and left.type not in ("test_command", "compound_statement", "list"):
            goes_on = True
        last: list[bool | None] = []
        self._branch(goes_on, lambda: last.append(self._status(right)), lambda: None, node)
        if status is None or goes_on is None:
            return None
        return last[0] if goes_on else status

    def _status_before(self, condition: Node, *body: Node) -> bool | None:
        """Return the status of a condition; a variable that the body sets may be unset before it."""
        outer = self._optional
        self._optional = outer | {name for node in body for name in _ASSIGNED.findall(_text(node))}
        status = self._status(condition)
        self._optional = outer
        return status

    def _run_if_statement(self, node: Node) -> None:
        others = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        self._run_clauses([child for child in node.children if child not in others], others, node)

    def _run_clauses(self, parts: Sequence[Node], others: Sequence[Node], node: Node) -> None:
        """Follow a condition and its body, or the other clauses."""
        then = next((i for i, child in enumerate(parts) if child.type == "then"), 0)
        status: bool | None = True
        for condition in parts[1:then]:
            status = self._status_before(condition, *parts[then:]) if condition.is_named else status
        self._branch(
            status,
            lambda: self._run(*parts[then:]),
            lambda: self._run_clauses(others[0].children, others[1:], node) if others else None,
            node,
        )

    def _branch(
        self, status: bool | None, first: Callable[[], object], other: Callable[[], object], node: Node
    ) -> None:
        """Run one of two branches; both where it is not known which."""
        if status is not None:
            (first if status else other)()
            return
        before = self.variables
        self.variables = dict(before)
        ends = self._end(first)
        self.variables = before
        self._join([*ends, *self._end(other)], node)

    def _run_case_statement(self, node: Node) -> None:
        subject = self._filled(_text(node.named_children[0]), self._line(node))
        self._run_items(subject, [each for each in node.children if each.type == "case_item"], node)

    def _run_items(self, subject: str, items: Sequence[Node], node: Node) -> None:
        if not items:
            return
        values = items[0].children_by_field_name("value")
        patterns = [self._filled(_text(each), self._line(each)) for each in values]
        is_known = not _MARK.search("".join([subject, *patterns])) and _text(items[0].children[-1])[-1] != "&"
        status = "*" in patterns or (
            any(fnmatchcase(subject, each) for each in patterns) if is_known else None
        )
        body = [child for child in items[0].named_children if child not in values]
        self._branch(
            status, lambda: self._run(*body), lambda: self._run_items(subject, items[1:], node), node
        )

    def _run_for_statement(self, node: Node) -> None:
        name, body = _text(node.named_children[0]), node.named_children[-1]
        values = self._words(node.children_by_field_name("value"))
        if not values or re.search("[*?{\ue000]", "".join(values)):
            self._run_while_statement(node)
            return

        def turns() -> None:
            for value in values:
                self.variables[name] = value
                self._count()
                self._until("continue", node, lambda: self._run(body))

        self._until("break", node, turns)

    def _run_while_statement(self, node: Node) -> None:
        """Follow a loop once, without what it sets in each turn."""
        first, body = node.named_children[0], node.named_children[-1]
        names = _text(first) if node.type == "for_statement" else ""
        self._forget(" ".join([names, *_ASSIGNED.findall(_text(node))]), node)

        def turn() -> None:
            self._until("break", node, lambda: self._until("continue", node, lambda: self._run(body)))

        self._run(first)
        self._branch(None, turn, lambda: None, node)

    _run_c_style_for_statement = _run_while_statement

    def _join(self, ends: Sequence[dict[str, _Value]], node: Node) -> None:
        """Keep of the variables what all ends have in common.

        Raises:
            _Left: There are none.
        """
        if not ends:
            raise _Left
        names = dict.fromkeys(name for end in ends for name in end)
        self.variables = {name: self._joined(name, [end.get(name) for end in ends], node) for name in names}

    def _joined(self, name: str, values: Sequence[_Value | None], node: Node) -> _Value:
        """Return the words that all values begin with, then those of any value, as unknown."""
        if values[0] is not None and all(value == values[0] for value in values):
            return values[0]
        words = [value.split() if isinstance(value, str) else [*(value or ())] for value in values]
        common = [each[0] for each in takewhile(lambda each: len(set(each)) == 1, zip(*words, strict=False))]
        mark = self._unknown(f"${name}", self._line(node), shown="")
        joined = (*common, *(word + mark for each in words for word in each[len(common) :]))
        return joined if any(isinstance(value, tuple) for value in values) else " ".join(joined)

    def _unknown(self, source: str, line: int, shown: str | None = None) -> str:
        """Return the mark for what only a run can tell."""
        short = re.sub(r"^(.{57}).{4,}", r"\1...", " ".join(source.split()))
        self._unknowns.append((source if shown is None else shown, f"{short} of line {line}"))
        return f"\ue000{len(self._unknowns) - 1}\ue001"

    def _word(self, text: str, line: int) -> Word:
        found = _MARK.search(text)
        shown = _MARK.sub(lambda mark: self._unknowns[int(mark[1])][0], text)
        return Word(shown, line, self._unknowns[int(found[1])][1] if found else "")

    def _fields(self, text: str, line: int) -> list[str]:
        """Return the words that the text of one becomes."""
        filled = self._filled(text, line, is_split=True)
        is_empty = text in ('""', "''") or (text[:1] == '"' and not _ALL_ELEMENTS.fullmatch(text.strip('"')))
        return filled.split(_END) if filled or is_empty else []

    def _filled(self, text: str, line: int, pieces: re.Pattern[str] = _PIECE, is_split: bool = False) -> str:
        """Return the text of a word; where it is split, with an end behind each but the last of its words."""
        found = ""
        for piece in pieces.finditer(text):
            kind = str(piece.lastgroup)
            if kind in ("plain", "escaped", "raw"):
                found += piece[kind] if piece[0] != "\\\n" else ""
                continue
            at = line + text.count("\n", 0, piece.start())
            whole = _ALL_ELEMENTS.fullmatch(piece["quoted"] or "") if is_split else None
            if kind == "quoted" and not whole:
                found += self._filled(piece[kind], at, _PIECE_IN_QUOTES)
            else:
                value = self._value(next(_PIECE.finditer(whole[0])) if whole else piece, at)
                values = (value,) if isinstance(value, str) else (*value,)
                parts = values if whole else (part for each in values for part in _split(each))
                found += _END.join(parts) if is_split else " ".join(values)
        return found

    def _value(self, piece: re.Match[str], line: int) -> _Value:
        """Return what an expansion stands for."""
        found: _Value | None = None
        if piece.lastgroup == "sum":
            number = self._sum(piece["sum"], line)
            found = None if number is None else str(number)
        elif parameter := _PARAMETER.fullmatch(piece["name"] or piece["braced"] or ""):
            found = self._parameter(line, *parameter.groups())
        return self._unknown(piece[0], line) if found is None else found

    def _parameter(self, line: int, prefix: str, name: str, index: str | None, rest: str) -> _Value | None:
        """Return what ``${PREFIX NAME [INDEX] REST}`` stands for; None where only a run can tell."""
        value = self._variable(name, index, line)
        if default := _DEFAULT.fullmatch(rest):
            or_empty, rule, word = default.groups()
            is_set = value is not None and not (or_empty and value == "")
            if rule in ("-", "=") and not is_set:
                if self._is_open and value is None and not name.isdecimal():
                    return None
                value = self._filled(word, line)
                self.variables |= {name: value} if rule == "=" else {}
            elif rule == "+":
                value = self._filled(word, line) if is_set else ""
            return value if is_set or rule != "?" else None
        if value is None or not (rest or prefix == "#"):
            return value
        if any(map(_MARK.search, [value] if isinstance(value, str) else value)):
            return None
        if prefix == "#":
            return None if rest else str(len(value))
        if part := _SLICE.fullmatch(rest):
            first = self._sum(part[1], line)
            length = self._sum(part[2] or str(_LONGEST), line)
            if first is None or length is None:
                return None
            return value[first - (name == "@" and first > 0) :][:length]
        return self._changed(value, rest, line) if isinstance(value, str) else None

    def _variable(self, name: str, index: str | None, line: int) -> _Value | None:
        """Return a variable, or an element of it; None where it is not known."""
        given = self.variables.get("@")
        if isinstance(given, tuple) and (name == "#" or (name.isdecimal() and name != "0")):
            return str(len(given)) if name == "#" else next(iter(given[int(name) - 1 :]), None)
        value = self.variables.get("@" if name == "*" else name)
        if value is None or isinstance(value, str) or name in "@*" or index in ("@", "*"):
            return value
        number = self._sum(index or "0", line)
        return None if number is None else next(iter(value[number:]), None)

    def _changed(self, text: str, rest: str, line: int) -> str | None:
        """Return a text without what a pattern takes off, or with something else in its place."""
        if rest in _CASES:
            return _CASES[rest](text)
        change = re.fullmatch(r"(%%|##|//|[%#/])([^/[]*)/?(.*)", rest, re.S)
        if change is None or len(text) > 1000:
            return None
        kind, pattern, other = (self._filled(each, line) for each in change.groups())
        if _MARK.search(pattern + other):
            return None
        most = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        least = most.replace(".*", ".*?")
        found = {"#": f"^{least}", "##": f"^{most}", "%": f"^(.*){least}$", "%%": f"^(.*?){most}$"}.get(
            kind, most
        )
        by = r"\1" if kind[0] == "%" else other.replace("\\", r"\\") if kind[0] == "/" else ""
        return re.sub(found, by, text, count=0 if kind == "//" else 1, flags=re.S)

    def _sum(self, text: str, line: int) -> int | None:
        """Return the value of an arithmetic expression, and set its variables; None where it is not known."""
        assigned = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*([-+*/%]?)=(?!=)(.*)", text, re.S)
        if assigned:
            name, sign, right = assigned.groups()
            number = self._sum(f"{name} {sign} ({right})" if sign else right, line)
            self.variables[name] = self._unknown(f"${name}", line) if number is None else str(number)
            return number
        choice = re.fullmatch(r"([^?]*)\?(.*):([^:]*)", text, re.S)
        if choice:
            number = self._sum(choice[1], line)
            return None if number is None else self._sum(choice[2 if number else 3], line)
        filled = self._filled(text, line)
        filled = re.sub(r"\b[A-Za-z_]\w*", lambda name: self._filled(f"${name[0]}", line), filled)
        filled = filled.replace("&&", " and ").replace("||", " or ")
        try:
            if not _SUM.fullmatch(filled):
                raise ValueError
            return _number(ast.parse(filled.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            self.variables |= {name: self._unknown(f"${name}", line) for name in _ASSIGNED.findall(text)}
            return None


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _raw_words(text: str) -> Iterator[str]:
    """Yield the words of a text as they are written."""
    word = ""
    for piece in _PIECE.finditer(text):
        is_space = piece.lastgroup == "plain" and piece[0].isspace()
        if is_space and word:
            yield word
        word = "" if is_space else word + piece[0]
    if word:
        yield word


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        return text.split()


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            name, sides = type(op).__name__.lower(), (_number(left), _number(right))
            if (name in ("div", "mod") and min(sides) < 0) or (name in ("pow", "lshift") and sides[1] > 63):
                raise ValueError
            return int(getattr(operator, _OPERATORS.get(name, name))(*sides))
        case ast.BoolOp(op, values):
            return int((all if isinstance(op, ast.And) else any)(map(_number, values)))
        case ast.UnaryOp(ast.USub(), operand):
            return -_number(operand)
    raise ValueError
