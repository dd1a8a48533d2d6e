"""The commands of a bash script, word by word as the shell would make them. Nothing is run.

Variables, arrays and functions are followed; of branches all are, and a variable that they set otherwise is
not known after them. A variable that is set nowhere counts as unset in ``${TP:-4}``. Elsewhere it stays in
its word as a mark, like all that only a run can tell; who reads the word may refuse it. A string that is
split into words may have quotes: the shell would keep them, but they are meant as quotes.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

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
_PARAMETER = re.compile(r"(\w+|[@*#?$!-])(?:\[([@*]|\d+)\])?(?:(:?)([-=+?])(.*))?", re.S)
_MARK = re.compile("\ue000([0-9]+)\ue001")
_END = "\ue002"
_VALUE = rf"(?:\"[^\"\n]*\"|'[^'\n]*'|\$\({_PARENTHESES}\)|[^\s;&|()\\'\"#$]|\$(?!\())*+"
_ASSIGNMENTS = re.compile(rf"^[ \t]*(?:\w+={_VALUE}(?:[ \t]+|$)){{2,}}+$", re.MULTILINE)
"""A line of several assignments; without an end the parser takes it for a part of the next line's command."""

_NO_WORDS = ("variable_assignment", "comment", "heredoc_redirect", "herestring_redirect")
"""Parts of a command that are no words of it."""

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
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


def commands_of(text: str) -> list[tuple[Word, ...]]:
    """Return the commands of a script that may run, in order, without those that only print.

    A text in quotes with arguments in it, as of ``bash -c`` and ``eval``, is such a script too. Of a script
    without any command the words of all variables are given.

    >>> script = '''TP=2
    ... ARGS="--tp $TP --pp $((TP * 2)) --layers $LAYERS"
    ... torchrun train.py $ARGS 2>&1 | sort'''
    >>> words = commands_of(script)[0]
    >>> words[2:], words[-1].unknown
    (('--tp', '2', '--pp', '4', '--layers', '$LAYERS'), '$LAYERS of line 2')
    """
    script = _Script()
    script.run_text(text, 1)
    if not script.commands:
        script.run_text(" ".join(f"${{{name}[@]}}" for name in script.variables), 1)
    return script.commands


class _Script:
    """A script on the way through its text; a method ``_run_KIND`` for each kind of node that matters.

    Attributes:
        variables: Those set so far.
        commands: Those found so far.
    """

    def __init__(self) -> None:
        self.variables: dict[str, _Value] = {}
        self.commands: list[tuple[Word, ...]] = []
        self._functions: dict[str, Node] = {}
        self._unknowns: list[tuple[str, str]] = []
        self._first_line, self._runs = 1, 0

    def run_text(self, text: str, line: int) -> None:
        """Follow a script that begins on a line."""
        self._count()
        outer, self._first_line = self._first_line, line
        text = _ASSIGNMENTS.sub(r"\g<0>;", text)
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
                self._forget(_text(node), node)
            else:
                self._run(*node.named_children)

    def _run_function_definition(self, node: Node) -> None:
        self._functions[_text(node.named_children[0])] = node.named_children[-1]

    def _run_while_statement(self, node: Node) -> None:
        self._run_branches([node.named_children], node)

    def _forget(self, text: str, node: Node) -> None:
        """Note that a run may set the variables in a text."""
        for name in re.findall(r"\b[A-Za-z_]\w*", text):
            self.variables[name] = self._unknown(f"${name}", self._line(node))

    def _run_variable_assignment(self, node: Node) -> None:
        name, is_element, _ = _text(node.named_children[0]).partition("[")
        value, before = node.child_by_field_name("value"), self.variables.get(name, "")
        adds = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            first = () if not adds else (before,) if isinstance(before, str) and before else before
            self.variables[name] = (*first, *self._words(value.children[1:-1]))
        elif is_element or (adds and isinstance(before, tuple)):
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
        if name in self._functions:
            given = {"@": tuple(words[1:])} | {str(i): word for i, word in enumerate(words) if i}
            self.variables |= given
            self._count()
            self._run(self._functions[name])
            self.variables = {each: value for each, value in self.variables.items() if each not in given}
        elif name in ("read", "mapfile", "readarray", "getopts", "let"):
            self._forget(" ".join(words[1:]), node)
        elif words and name not in _PRINTING:
            self.commands.append(tuple(self._word(word, line) for word in words))
            for text in filter(re.compile(r"\s--\w").search, words):
                self.run_text(text, line)
        return None

    _run_redirected_statement = _run_command

    def _count(self) -> None:
        self._runs += 1
        if self._runs > _MOST:
            raise RecursionError

    def _run_list(self, node: Node) -> None:
        """Follow ``a && b`` and ``a || b``; a command on the left of ``&&`` is taken to succeed."""
        left, right = node.children[0], node.children[-1]
        self._run(left)
        is_sure = left.type != "test_command" and not any(child.type == "||" for child in node.children)
        self._run_branches([[right]], node, is_sure)

    def _run_if_statement(self, node: Node) -> None:
        """Follow all branches; a condition is not looked at."""
        others = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        first = [child for child in node.named_children if child not in others]
        is_sure = any(clause.type == "else_clause" for clause in others)
        self._run_branches([first, *([clause] for clause in others)], node, is_sure)

    def _run_case_statement(self, node: Node) -> None:
        items = node.named_children[1:]
        is_sure = any(_text(item).startswith("*") for item in items)
        self._run_branches([[item] for item in items], node, is_sure)

    def _run_for_statement(self, node: Node) -> None:
        variable, *_, body = node.named_children
        self._forget(_text(variable), node)
        self._run_branches([[body]], node)

    def _run_branches(self, bodies: Sequence[Sequence[Node]], node: Node, is_sure: bool = False) -> None:
        """Run each body alone, then keep of the variables what all ends have in common."""
        before = self.variables
        ends = [] if is_sure else [before]
        for body in bodies:
            self.variables = dict(before)
            self._run(*body)
            ends.append(self.variables)
        names = dict.fromkeys(name for end in ends for name in end)
        self.variables = {name: self._joined(name, [end.get(name) for end in ends], node) for name in names}

    def _joined(self, name: str, values: Sequence[_Value | None], node: Node) -> _Value:
        """Return the words that all values begin with, then those of any value, as unknown."""
        if values[0] is not None and all(value == values[0] for value in values):
            return values[0]
        words = [value if isinstance(value, tuple) else (value or "").split() for value in values]
        common = [each[0] for each in takewhile(lambda each: len(set(each)) == 1, zip(*words, strict=False))]
        mark = self._unknown(f"${name}", self._line(node), shown="")
        joined = (*common, *(word + mark for each in words for word in each[len(common) :]))
        return joined if any(isinstance(value, tuple) for value in values) else " ".join(joined)

    def _unknown(self, source: str, line: int, shown: str | None = None) -> str:
        """Return the mark for what only a run can tell."""
        self._unknowns.append((source if shown is None else shown, f"{source} of line {line}"))
        return f"\ue000{len(self._unknowns) - 1}\ue001"

    def _word(self, text: str, line: int) -> Word:
        found = _MARK.search(text)
        shown = _MARK.sub(lambda mark: self._unknowns[int(mark[1])][0], text)
        return Word(shown, line, self._unknowns[int(found[1])][1] if found else "")

    def _fields(self, text: str, line: int) -> list[str]:
        """Return the words that the text of one becomes."""
        filled = self._filled(text, line, is_split=True)
        return filled.split(_END) if filled else []

    def _filled(self, text: str, line: int, pieces: re.Pattern[str] = _PIECE, is_split: bool = False) -> str:
        """Return the text of a word; where it is split, with an end behind each but the last of its words."""
        found = ""
        for piece in pieces.finditer(text):
            kind, at = str(piece.lastgroup), line + text.count("\n", 0, piece.start())
            whole = _ALL_ELEMENTS.fullmatch(piece["quoted"] or "") if is_split else None
            if kind == "quoted" and not whole:
                found += self._filled(piece[kind], at, _PIECE_IN_QUOTES)
            elif kind in ("plain", "escaped", "raw"):
                found += piece[kind] if piece[0] != "\\\n" else ""
            else:
                value = self._value(next(_PIECE.finditer(whole[0])) if whole else piece, at)
                values = (value,) if isinstance(value, str) else value
                parts = values if whole else (part for each in values for part in _split(each))
                found += _END.join(parts) if is_split else " ".join(values)
        return found

    def _value(self, piece: re.Match[str], line: int) -> _Value:
        """Return what an expansion stands for."""
        if piece.lastgroup == "sum":
            text = self._filled(piece["sum"], line)
            text = re.sub(r"[A-Za-z_]\w*", lambda name: self._filled(f"${name[0]}", line), text)
            try:
                return str(_number(ast.parse(text.strip(), mode="eval").body))
            except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
                return self._unknown(piece[0], line)
        found = _PARAMETER.fullmatch(piece["name"] or piece["braced"] or "")
        if found is None:
            return self._unknown(piece[0], line)
        name, index, or_empty, rule, word = found.groups()
        value = self.variables.get(name)
        if isinstance(value, tuple) and name != "@" and index not in ("@", "*"):
            value = next(iter(value[int(index or 0) :]), None)
        is_set = value is not None and not (or_empty and value == "")
        if rule in ("-", "=") and not is_set:
            value = self._filled(word, line)
            self.variables |= {name: value} if rule == "=" else {}
        elif rule == "+":
            value = self._filled(word, line) if is_set else ""
        return self._unknown(piece[0], line) if value is None else value


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        return text.split()


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_number(node.left), _number(node.right))
    raise ValueError
