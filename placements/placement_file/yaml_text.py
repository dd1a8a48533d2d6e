"""YAML text as plain data, and back, for all rooms: scalars are those of YAML 1.2's core schema.

So 010 is ten, 0o10 eight, 5e-05 a number, 1:30, yes and 2020-04-01 are text, and booleans are true and false.
JSON is read as such. Of two equal keys none counts: they are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from placements.files import without_doubles

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML was built without libyaml, which is four times as fast
    from yaml import SafeLoader  # type: ignore[assignment]

_Scalar = tuple[str, str, Callable[[str], Any]]

_SCALARS: tuple[_Scalar, ...] = (
    ("null", r"~|null|Null|NULL|", lambda text: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9]+", int),
    ("int", r"0o[0-7]+|0x[0-9a-fA-F]+", lambda text: int(text, 0)),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", lambda text: float(text.replace(".", ""))),
)
"""Type, form and value of each plain scalar; all others are text."""

_TABS = re.compile(r"(?<=[:,-])[ \t]*\t[ \t]*")
"""Tabs that YAML allows, between a mark and a value."""

_TAG = "tag:yaml.org,2002:"


class _Loader(SafeLoader):
    """YAML with the core schema alone, and without the silent rule that of two equal keys the last counts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is there twice."""
        keys = [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        names = [
            key.value if key.tag == f"{_TAG}merge" else self.construct_object(key, deep=True) for key in keys
        ]
        for i, key in enumerate(keys):
            if names[i] in names[:i]:
                raise _mistake(f"{key.value!r} is given twice", key)
        return super().construct_mapping(node, deep)

    def construct_core(self, node: yaml.ScalarNode) -> Any:
        """Return a scalar, which is of the form of its type also where that is written before it."""
        text = self.construct_scalar(node)
        kind = node.tag.removeprefix(_TAG)
        for name, form, read in _SCALARS:
            if name == kind and re.fullmatch(form, text):
                return read(text)
        raise _mistake(f"{text!r} is not of the type {kind}", node)

    def construct_unknown(self, node: yaml.Node) -> Any:
        """Refuse a type that is not known."""
        raise _mistake(f"the type {node.tag.replace(_TAG, '!!')!r} is not known", node)


class _Dumper(yaml.SafeDumper):
    """YAML in which text is quoted that is a number in either version."""


def _mistake(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [each for each in known if each[0] == f"{_TAG}merge"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_constructors = {
    f"{_TAG}{kind}": yaml.SafeLoader.yaml_constructors[f"{_TAG}{kind}"] for kind in ("map", "seq", "str")
} | {None: _Loader.construct_unknown}
for _kind, _form, _ in _SCALARS:
    for _each in (_Loader, _Dumper):
        _each.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"(?:{_form})$"), None)
    _Loader.add_constructor(f"{_TAG}{_kind}", _Loader.construct_core)


def read_yaml(path: str | Path, error: type[ValueError]) -> object:
    """Return the plain data of a YAML file.

    Raises:
        ValueError: It cannot be read or is no YAML; the error is of the given kind, and its message begins
            with the path.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        reason = getattr(cause, "strerror", None) or "it is not UTF-8 text"
        raise error(f"{path}: cannot be read ({reason}); give the path of a YAML file") from None
    try:
        if text.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):  # it is YAML, or YAML says on which line it is wrong
                return json.loads(text, object_pairs_hook=without_doubles)
            text = text.expandtabs(1)
        return yaml.load(_TABS.sub(" ", text), Loader=_Loader)
    except yaml.YAMLError as cause:
        raise error(f"{path}: is not YAML ({_one_line(cause)}); correct it there") from None
    except (RecursionError, ValueError):
        raise error(f"{path}: is nested too deep, or has a number too long; write it shorter") from None


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if mark else str(problem)


def to_yaml(data: object) -> str:
    """Return plain data as YAML, keys in the order that they have."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110)
