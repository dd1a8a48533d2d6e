"""Files that are whole or absent, written under a temporary name, then renamed; YAML, JSON, tables as text.

YAML is that of version 1.2, whose scalars are those of its core schema: 010 is ten, 0o10 eight, 5e-05 a
number, 1:30, yes and 2020-04-01 are text, and booleans are true and false. JSON in it is read as such. Of two
equal keys none counts: they are refused.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML was built without libyaml, which is four times as fast
    from yaml import SafeLoader  # type: ignore[assignment]


def write_bytes(path: str | Path, data: bytes, *, durable: bool = False) -> Path:
    """Write a file by a rename, creating its folder, so that no reader sees half of it; return its path.

    With `durable` the file is on disk when the function returns, so it survives a power cut.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        flush_folder(path.parent)
    return path


def flush_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk as they are now: written, replaced or removed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | Path, text: str) -> Path:
    """Write text as UTF-8 by `write_bytes`; return the path."""
    return write_bytes(path, text.encode())


def write_json(path: str | Path, data: object) -> Path:
    """Write plain data as JSON; return the path."""
    return write_text(path, to_json(data) + "\n")


def csv_text(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return comma-separated text; None leaves a cell empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def text_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns, the first column to the left.

    >>> text_columns([["plan", "ms"], ["a", "10"]])
    ['plan  ms', 'a     10']
    """
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in rows]


def markdown_table(heads: Collection[str], rows: Iterable[Iterable[object]]) -> str:
    r"""Return a table in Markdown, without a line break at its end.

    >>> print(markdown_table(["name", "value"], [["a|b", 1]]))
    | name | value |
    |---|---|
    | a\|b | 1 |
    """
    head, *lines = (
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in (heads, *rows)
    )
    return "\n".join([head, "|" + "---|" * len(heads), *lines])


def to_json(data: Any, indent: int = 0, width: int = 110) -> str:
    """Return JSON with all that fits in `width`, and flat lists, on one line, for people to read and diff."""
    flat = json.dumps(data, allow_nan=False)
    is_nested = isinstance(data, dict)
    if isinstance(data, (list, tuple)):
        is_nested = any(isinstance(entry, (dict, list, tuple)) for entry in data)
    if not is_nested or len(flat) + indent <= width:
        return flat
    if isinstance(data, dict):
        rows = [f"{json.dumps(str(key))}: {to_json(value, indent + 2)}" for key, value in data.items()]
    else:
        rows = [to_json(entry, indent + 2) for entry in data]
    lines = ",".join(f"\n{' ' * (indent + 2)}{row}" for row in rows) + "\n" + " " * indent
    return f"{{{lines}}}" if isinstance(data, dict) else f"[{lines}]"


def _text_of(path: str | Path, wanted: str, error: type[ValueError]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        reason = getattr(cause, "strerror", None) or "it is not UTF-8 text"
        raise error(f"{path}: cannot be read ({reason}); give {wanted}") from None


def read_json(path: str | Path, wanted: str, error: type[ValueError]) -> object:
    """Return the plain data of a JSON file; an error has one line that begins with the path.

    `wanted` is what to give instead of a file that cannot be read, such as "a schedule.json".
    """
    text = _text_of(path, wanted, error)
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as cause:
        raise error(f"{path}: is not JSON ({cause}); give {wanted}") from None


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the fields of a JSON object; raise an error for a key given twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is given twice")
    return fields


_SCALARS: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("null", r"~|null|Null|NULL|", lambda text: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9]+", int),
    ("int", r"0o[0-7]+|0x[0-9a-fA-F]+", lambda text: int(text, 0)),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", lambda text: float(text.replace(".", ""))),
)
"""Type, form and value of each plain scalar; all others are text."""

_TAG = "tag:yaml.org,2002:"


class _Loader(SafeLoader):
    """A YAML loader with the core schema alone, which rejects a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; raise an error for a key given twice."""
        names = list[Any]()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else []:
            name = key.value if key.tag == f"{_TAG}merge" else self.construct_object(key, deep=True)
            if name in names:
                raise _mistake(f"{key.value!r} is given twice", key)
            names.append(name)
        return super().construct_mapping(node, deep)

    def construct_core(self, node: yaml.ScalarNode) -> Any:
        """Return a scalar by its type, checked against the type's form, also under an explicit tag."""
        text, kind = self.construct_scalar(node), node.tag.removeprefix(_TAG)
        for name, form, read in _SCALARS:
            if name == kind and re.fullmatch(form, text):
                return read(text)
        raise _mistake(f"{text!r} is not of the type {kind}", node)


class _Dumper(yaml.SafeDumper):
    """YAML in which text is quoted that is a number in either version."""


def _mistake(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in known if resolver[0] == f"{_TAG}merge"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_constructors = {
    tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (f"{_TAG}map", f"{_TAG}seq", f"{_TAG}str", None)
}
for _kind, _form, _ in _SCALARS:
    for _each in (_Loader, _Dumper):
        _each.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"(?:{_form})$"), None)
    _Loader.add_constructor(f"{_TAG}{_kind}", _Loader.construct_core)


_DEEPEST = 500
"""Levels of nested lists and mappings in YAML that is read."""


def read_yaml(path: str | Path, error: type[ValueError]) -> object:
    """Return the plain data of a YAML file; an error has one line that begins with the path."""
    text = _text_of(path, "the path of a YAML file", error)
    try:
        if text.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):  # YAML says on which line it is wrong
                return json.loads(text, object_pairs_hook=_without_doubles)
        depth = 0
        for event in yaml.parse(text, Loader=SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise RecursionError  # at some ten thousand libyaml would end the process
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as cause:
        problem = getattr(cause, "problem", None) or str(cause).splitlines()[0]
        mark = getattr(cause, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise error(f"{path}: is not YAML ({problem}{line}); correct it there") from None
    except (RecursionError, ValueError):
        raise error(f"{path}: is nested too deep, or has a number too long; write it shorter") from None


def to_yaml(data: object) -> str:
    """Return plain data as YAML, keys in the order that they have."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110)
