"""Tables of fields in the pages, generated from the declared fields of records.

``python docs/field_tables.py`` rewrites each table below a comment with a record's name, and the table of
GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from placements.forms.meaning import Meaning, declared_fields, without_none
from placements.gpus import GPUS

PAGES = sorted(Path(__file__).parent.rglob("*.md"))

_TABLE = re.compile(r"^<!-- fields of (\S+) -->\n\n(?:\|.*\n)*\n*", re.MULTILINE)

_GPUS = re.compile(r"^<!-- gpus -->\n\n(?:\|.*\n)*\n*", re.MULTILINE)


def with_tables(text: str) -> str:
    """Return a page with the current tables of the records named in its comments."""
    return _GPUS.sub(f"<!-- gpus -->\n\n{_gpus()}\n\n", _TABLE.sub(_table, text))


def _table(comment: re.Match[str]) -> str:
    module, name = comment[1].rsplit(".", 1)
    rows = ["| field | values | meaning |", "|---|---|---|"]
    for _, key, kind, meaning, default in declared_fields(getattr(import_module(module), name)):
        assert meaning is not None, f"{name}.{key} has no meaning"
        rows.append(f"| `{key}` | {_values(kind, meaning, default)} | {meaning.text} |")
    return "\n".join([f"<!-- fields of {comment[1]} -->", "", *rows, "", ""])


def _values(kind: Any, meaning: Meaning, default: Any) -> str:
    """Return the allowed values of a field and its default, in words."""
    kind, _ = without_none(kind)
    origin, noun = get_origin(kind), {int: "whole number", str: "text", bool: "true or false"}.get(kind, "")
    if origin is Literal:
        noun = ", ".join(f"`{value}`" for value in get_args(kind))
    elif origin is Mapping:
        noun = "mapping"
    elif origin is tuple:
        noun = "list"
    parts = [noun, meaning.unit, meaning.range]
    if meaning.may_be_empty:
        parts.append("may be empty")
    if default is None or default == ():
        parts.append("optional")
    elif default is not MISSING:
        parts.append(f"default `{default}`")
    return ", ".join(filter(None, parts))


def _gpus() -> str:
    lines = [
        "| name | GPU | GiB | TB/s | TFLOPS in 16 bits | 8 | 4 | link | in a node | between nodes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, gpu in GPUS.items():
        peaks = (gpu.peak_tflops, gpu.peak_fp8_tflops, gpu.peak_fp4_tflops)
        cells = (
            f"`{name}`",
            gpu.name,
            f"{gpu.memory_gib:g}",
            f"{gpu.memory_bandwidth_gb_s / 1000:.2f}",
            *("" if peak is None else f"{peak:.0f}" for peak in peaks),
            f"{gpu.link_bandwidth_gb_s:g}",
            str(gpu.gpus_per_node),
            "" if gpu.node_bandwidth_gb_s is None else f"{gpu.node_bandwidth_gb_s:g}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
