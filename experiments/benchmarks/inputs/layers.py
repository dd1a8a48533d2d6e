"""Layers of transformers measured on an H100, where the file is there: for one sample, by operation."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.benchmarks.comparison import SHARED_DATA
from placements.forms.tables import csv_rows

HIDDEN = {"llama3_8b": 4096, "llama3_70b": 8192, "gpt3_6.7b": 4096, "gpt3_13b": 5120}


def layer_rows() -> list[Mapping[str, str]]:
    """Return the rows of the file: ms of an operation, MiB that a forward keeps, parameters."""
    text = (SHARED_DATA / "h100_layers" / "h100_layers.csv").read_text(encoding="utf-8")
    table = "\n".join(line for line in text.splitlines() if line[:1] != "#")
    return [row.cells for row in csv_rows(table, "operation", ValueError)]
