"""The commands of a bash script, word by word as the shell would make them. Nothing is run.

Variables, arrays and functions are followed. Of branches the one whose condition holds is followed; where
only a run can tell, all are, and a variable that they set otherwise is not known after them. A loop is read
once, without what it sets. A variable that is set nowhere counts as unset in ``${TP:-4}``, and one set later
in ``[ -z "$TP" ]``. Elsewhere it stays in its word as a mark, like all that only a run can tell and all
that is not followed; who reads the word may refuse it. A string that is split into words may have quotes: the
shell would keep them, but they are meant as quotes.
"""

from __future__ import annotations

import ast
import contextlib
import glob
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
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
    r"|\$(?P<name>[A-Za-z_]\w*|[0-9@*#?$!-])|(?P<plain>\s+|.)"
)
_QUOTED = rf"\$?'(?P<raw>[^']*)'|\$?\"(?P<quoted>(?:\\.|{_COMMAND}|[^\"])*+)\""
_PIECE = re.compile(rf"\\(?P<escaped>.)|{_QUOTED}|{_EXPANSION}", re.S)
_PIECE_IN_QUOTES = re.compile(rf"\\(?P<escaped>[\\\"$`\n])|{_EXPANSION}", re.S)
_ALL_ELEMENTS = re.compile(r"\$(?:@|\{@\}|\{\w+\[@\]\})")
_PARAMETER = re.compile(r"(#?)(\w+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.S)
_DEFAULT = re.compile(r"(:?)([-=+?])(.*)", re.S)
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
_BACKTICK_COMMENT = re.compile(r"`#[^`\n]*`")
_ASSIGNED = re.compile(
    r"(?<![$\w{])[A-Za-z_]\w*(?=(?:\[[^]]*\])?(?:\+\+|--|\s*[-+*/%]?=(?!=)))|(?<=\+\+)\w+|(?<=\(\(--)\w+"
)
_SHELLS = ("bash", "sh", "zsh", "sbatch", "ssh")
_NO_COMMANDS = ("echo", "printf", "cat", "tee", "logger", "break", "continue")
_MOST, _LONGEST = 100_000, 100_000
"""Parts of a script that are followed, and characters of a variable."""

_Value = str | tuple[str, ...]
"""Text of a variable, or the elements of an array."""

_Variables = dict[str, _Value]
_Run = Callable[[], None]
_Option = tuple[Callable[[], bool | None], Sequence[Node]]
_CLAUSES = ("elif_clause", "else_clause")


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
        self.variables: _Variables = {}
        self.commands: list[tuple[Word, ...]] = []
        self._folder = folder
        self._functions: dict[str, Node] = {}
        self._unknowns: list[tuple[str, str]] = []
        self._first_line, self._runs = 1, 0
        self._returns: list[list[_Variables]] = []
        self._assigned: set[str] = set()
        self._is_open = False

    def run_text(self, text: str, line: int) -> None:
        """Follow a script that begins on a line."""
        outer, self._first_line = self._first_line, line
        self._assigned |= {*_ASSIGNED.findall(text)}
        text = _ASSIGNMENTS.sub(r"\g<0>;", _BACKTICK_COMMENT.sub("", text))
        with contextlib.suppress(_Left):
            self._run(Parser(Language(tree_sitter_bash.language())).parse(text.encode()).root_node)
        self._first_line = outer

    def _line(self, node: Node) -> int:
        return self._first_line + node.start_point.row

    def _run(self, *nodes: Node) -> None:
        self._runs += 1
        if self._runs > _MOST:
            raise RecursionError
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

    def _forget(self, text: str, line: int) -> None:
        """Note that a run may set the variables in a text."""
        for name in re.findall(r"\b[A-Za-z_]\w*", text):
            self.variables[name] = self._unknown(f"${name}", line)

    def _run_variable_assignment(self, node: Node) -> None:
        name, is_element, _ = _text(node.named_children[0]).partition("[")
        value, before = node.child_by_field_name("value") or node, self.variables.get(name, "")
        adds, is_array = any(child.type == "+=" for child in node.children), value.type == "array"
        has_keys = is_array and "[" in _text(value)[:5]
        if is_element or has_keys or (adds and not is_array and isinstance(before, tuple)):
            self._forget(name, self._line(node))
        elif is_array:
            first = () if not adds else (before,) if isinstance(before, str) and before else before
            self.variables[name] = (*first, *self._words(value.children[1:-1]))
        else:
            text = "" if value is node else self._filled(_text(value), self._line(value))
            self.variables[name] = f"{before}{text}" if adds else text
            if len(self.variables[name]) > _LONGEST:
                self._forget(name, self._line(node))

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
        words = []
        for text, line in raw:
            filled = self._filled(text, line, how="split")
            is_quoted = text[0] in "\"'" and not _ALL_ELEMENTS.fullmatch(text.strip('"'))
            words += filled.split(_END) if filled or is_quoted else []
        return words

    def _run_command(self, node: Node) -> None:
        body, *redirects = node.children if node.type == "redirected_statement" else [node]
        if body.type != "command":
            return self._run(body)
        words, line = self._words([*body.children, *redirects]), self._line(node)
        name = words[0] if words else ""
        written = "".join(self._heredoc(each) for each in redirects if each.type == "heredoc_redirect")
        if name in self._functions:
            self._call(name, words[1:], node)
        elif name in ("exit", "return"):
            if name == "return" and self._returns:
                self._returns[-1].append(self.variables)
            raise _Left
        elif name in ("read", "mapfile", "readarray", "getopts", "let") or words[:2] == ["printf", "-v"]:
            self._forget(" ".join(words[1:]), line)
        elif name == "set" and words[1:2] == ["--"]:
            self.variables["@"] = tuple(words[2:])
        elif name == "shift" and isinstance(given := self.variables.get("@"), tuple):
            self.variables["@"] = given[int(words[1]) if words[1:] and words[1].isdecimal() else 1 :]
        elif name in ("source", ".") and words[1:]:
            self._source(words[1], line)
        elif name == "cat" and "--" in written and ">" in _text(node).partition("\n")[0]:
            script = f"the script of line {line}"
            self.commands.append(tuple(Word("", line, script) for _ in written.split()))
        elif words and name not in _NO_COMMANDS:
            self.commands.append(tuple(self._word(word, line) for word in words))
            for text in filter(re.compile(r"\s--\w").search, words):
                self.run_text(text, line)
            if written and any(word in _SHELLS for word in words):
                self.run_text(written, line + 1)
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
            if not name.startswith(("/", "~")) and not name.endswith("/activate"):
                self._is_open = True
                self._forget(" ".join(self.variables), line)

    def _call(self, name: str, words: Sequence[str], node: Node) -> None:
        body, before = self._functions[name], self.variables
        self.variables = before | {"@": tuple(words)}
        self._returns.append([])
        self._branch(None, [lambda: self._run(body)], node, self._returns[-1])
        self._returns.pop()
        declared = re.findall(r"\b(?:local|declare|typeset)\b([^;\n]*)", _text(body))
        for local in {"@", *re.findall(r"\b[A-Za-z_]\w*", " ".join(declared))}:
            self.variables.pop(local, None)
            self.variables |= {local: before[local]} if local in before else {}

    def _status(self, node: Node) -> bool | None:
        """Follow a command, and return whether it succeeds; None where only a run can tell."""
        text, line = _text(node).replace("\\\n", " "), self._line(node)
        if node.type == "negated_command":
            status = self._status(node.named_children[0])
            return None if status is None else not status
        if node.type == "list":
            return self._run_list(node)
        if node.type == "compound_statement" and text.startswith("(("):
            number = self._sum(text[2:-2], line)
            return None if number is None else number != 0
        if node.type == "test_command" or re.match(r"test\s", text):
            inside = text.strip("[]") if text.startswith("[") else text[4:]
            words = self._filled(inside.strip(), line, how="pattern").split(_END)
            is_odd = words[-2:] == ["-n", ""] and re.match(r"(\[|test)\s.*-n\s+\$", text)
            return None if is_odd else self._holds(words)
        if text in ("true", ":", "false"):
            return text != "false"
        self._run(node)
        return True if node.type in ("variable_assignment", "declaration_command") else None

    def _holds(self, words: Sequence[str]) -> bool | None:
        """Return whether a test of some words, as patterns, holds; None where only a run can tell."""
        if any("(" in word for word in words):
            return None
        for names, decides in ((("||", "-o"), True), (("&&", "-a"), False)):
            if i := next((i for i, word in enumerate(words) if i and word in names), 0):
                sides = self._holds(words[:i]), self._holds(words[i + 1 :])
                return decides if decides in sides else None if None in sides else not decides
        if words[0] == "!" and len(words) > 1:
            status = self._holds(words[1:])
            return None if status is None else not status
        kind = words[0] if len(words) == 2 else words[1] if len(words) == 3 else ""
        if kind in ("-z", "-n") and (mark := _MARK.fullmatch(words[1])):
            name = self._unknowns[int(mark[1])][0].strip("${}")
            is_unset = name in self._assigned - {*self.variables} and not self._is_open
            return (kind == "-z") if is_unset else None
        if any(map(_MARK.search, words)):
            return None
        left, right = (re.sub(r"\[([*?[])\]", r"\1", word) for word in (words[0], words[-1]))
        try:
            if kind in _COMPARED:
                return bool(_COMPARED[kind](int(left), int(right)))
            if kind == "=~":
                return re.search(right, left) is not None
        except (ValueError, re.error):
            return None
        if kind in ("-z", "-n"):
            return (kind == "-z") == (right == "")
        if kind in ("=", "==", "!="):
            is_equal = _matches(left, [words[-1]])
            return None if is_equal is None else is_equal == (kind != "!=")
        return left != "" if len(words) == 1 else None

    def _run_list(self, node: Node) -> bool | None:
        """Follow ``a && b`` and ``a || b``; a command on the left of ``&&`` is taken to succeed."""
        left, right = node.children[0], node.children[-1]
        status = self._status(left)
        is_or = any(child.type == "||" for child in node.children)
        goes_on = None if status is None else status != is_or
        if status is None and not is_or and left.type not in ("test_command", "compound_statement", "list"):
            goes_on = True
        last: list[bool | None] = []
        self._branch(goes_on, [lambda: last.append(self._status(right)), lambda: None], node)
        if status is None or goes_on is None:
            return None
        return last[0] if goes_on else status

    def _run_if_statement(self, node: Node) -> None:
        options: list[_Option] = []
        for clause in [node, *(each for each in node.children if each.type in _CLAUSES)]:
            parts = [child for child in clause.children if child.type not in _CLAUSES]
            then = next((i for i, part in enumerate(parts) if part.type == "then"), 0)
            options.append((partial(self._last_status, parts[1:then]), parts[then:]))
        self._choose(options, node)

    def _last_status(self, conditions: Sequence[Node]) -> bool | None:
        return [True, *(self._status(each) for each in conditions if each.is_named)][-1]

    def _run_case_statement(self, node: Node) -> None:
        subject = self._filled(_text(node.named_children[0]), self._line(node))
        options: list[_Option] = []
        for item in (each for each in node.children if each.type == "case_item"):
            values = item.children_by_field_name("value")
            patterns = [self._filled(_text(each), self._line(each), how="pattern") for each in values]
            body = [child for child in item.named_children if child not in values]
            goes_on = _text(item.children[-1]).endswith("&")
            options.append((partial(_matches, subject, patterns, goes_on), body))
        self._choose(options, node)

    def _choose(self, options: Sequence[_Option], node: Node) -> None:
        """Follow the first option that holds."""
        if options:
            (holds, body), *others = options
            runs = [partial(self._run, *body), partial(self._choose, others, node)]
            self._branch(holds(), runs, node)

    def _branch(
        self, status: bool | None, runs: Sequence[_Run], node: Node, ends: Sequence[_Variables] = ()
    ) -> None:
        """Run the first or the second; where it is not known which, all, and join all ends' variables."""
        if status is not None:
            return runs[not status]()
        before, found = self.variables, list[_Variables]()
        for run in runs:
            self.variables = dict(before)
            with contextlib.suppress(_Left):
                run()
                found.append(self.variables)
        found += ends
        if not found:
            raise _Left
        names = dict.fromkeys(name for end in found for name in end)
        self.variables = {name: self._joined(name, [end.get(name) for end in found], node) for name in names}
        return None

    def _run_while_statement(self, node: Node) -> None:
        """Follow a loop once, without what it sets in each turn."""
        first, body = node.named_children[0], node.named_children[-1]
        names = _text(first) if node.type == "for_statement" else ""
        self._forget(" ".join([names, *_ASSIGNED.findall(_text(node))]), self._line(node))
        self._run(first)
        self._branch(None, [lambda: self._run(body), lambda: None], node)

    _run_for_statement = _run_c_style_for_statement = _run_while_statement

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

    def _filled(self, text: str, line: int, pieces: re.Pattern[str] = _PIECE, how: str = "") -> str:
        """Return the text of a word that begins on a line.

        If ``split``, an end stands between the words of its expansions; in a ``pattern`` what is quoted is
        escaped, and ends stand for spaces.
        """
        found, quoted = "", glob.escape if how == "pattern" else str
        for piece in pieces.finditer(text):
            kind = str(piece.lastgroup)
            whole = _ALL_ELEMENTS.fullmatch(piece["quoted"]) if how == "split" and kind == "quoted" else None
            if kind == "plain":
                found += _END if how == "pattern" and piece[kind].isspace() else piece[kind]
            elif kind in ("escaped", "raw"):
                found += quoted(piece[kind] if kind == "raw" else piece[kind].strip("\n"))
            elif kind == "quoted" and not whole:
                found += quoted(self._filled(piece[kind], _line_at(piece, line), _PIECE_IN_QUOTES))
            else:
                expansion = next(_PIECE.finditer(whole[0])) if whole else piece
                value = self._value(expansion, _line_at(piece, line))
                values = (value,) if isinstance(value, str) else value
                parts = values if whole else (part for each in values for part in _split(each))
                found += _END.join(parts) if how == "split" else " ".join(values)
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
            if self._is_open and value is None and not name.isdecimal():
                return None
            if rule in ("-", "=") and not is_set:
                value = self._filled(word, line)
                self.variables |= {name: value} if rule == "=" else {}
            elif rule == "+":
                value = self._filled(word, line) if is_set else ""
            return value if is_set or rule != "?" else None
        if prefix and value is not None:
            return None if rest or _MARK.search("".join(value)) else str(len(value))
        return None if rest else value

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

    def _sum(self, text: str, line: int) -> int | None:
        """Return the value of an arithmetic expression; None where it is not known or sets a variable."""
        filled = self._filled(text, line)
        filled = re.sub(r"\b[A-Za-z_]\w*", lambda name: self._filled(f"${name[0]}", line), filled)
        try:
            return _number(ast.parse(filled.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            self._forget(" ".join(_ASSIGNED.findall(text)), line)
            return None


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _line_at(piece: re.Match[str], line: int) -> int:
    return line + piece.string.count("\n", 0, piece.start())


def _matches(text: str, patterns: Sequence[str], goes_on: bool = False) -> bool | None:
    """Return whether a text matches a pattern; None where only a run can tell."""
    if "*" in patterns:
        return True
    is_known = not goes_on and not re.search("\ue000|[@+!?*][(]", text + "".join(patterns))
    return any(fnmatchcase(text, each) for each in patterns) if is_known else None


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
        case ast.UnaryOp(ast.USub(), operand):
            return -_number(operand)
    raise ValueError
