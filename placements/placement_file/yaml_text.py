"""YAML text as plain data, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """YAML without its silent rule that of two equal keys the last one counts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is there twice."""
        keys = [key.value for key, _ in node.value]
        for i, key in enumerate(keys):
            if key in keys[:i]:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key!r} is given twice", problem_mark=node.value[i][0].start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path, error: type[ValueError]) -> object:
    """Return the plain data of a YAML file.

    Raises:
        ValueError: It cannot be read or is no YAML; the error is of the given kind, and its message begins
            with the path.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        reason = getattr(cause, "strerror", None) or "it is not UTF-8 text"
        raise error(f"{path}: cannot be read ({reason}); give the path of a YAML file") from None
    try:
        return yaml.load(text, Loader=_Loader)
    except (RecursionError, ValueError):
        raise error(f"{path}: is nested too deep, or has a number too long; write it shorter") from None
    except yaml.YAMLError as cause:
        raise error(f"{path}: is not YAML ({_one_line(cause)}); correct it there") from None


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if mark else str(problem)


def to_yaml(data: object) -> str:
    """Return plain data as YAML, keys in the order that they have."""
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)
