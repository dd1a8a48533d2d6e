"""Cells of Galvatron-BMW's Tables II to VI as they are published in ``published_columns.csv``.

Samples per second and batches of all rows that a method here has a name for; Table V repeats Table III's
bi-objective rows. The module computes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from placements.forms.tables import Row, csv_rows

PATH = Path(__file__).with_name("published_columns.csv")
"""From the paper's tables; a cell without a batch is out of memory."""

TABLES = ("II", "III", "IV", "V", "VI")
"""By their numbers in the paper."""

DEEPSPEED, MEMORY_BALANCED = "DeepSpeed 3D", "1F1B+Mem"
"""Rows that have items of their own: degrees by experts in all tables, and balanced memory in Table V."""


class Best(NamedTuple):
    """The batch with the most samples per second.

    Attributes:
        batch: Samples of an iteration.
        samples_per_s: With it.
    """

    batch: int
    samples_per_s: float


@dataclass(frozen=True)
class PublishedColumn:
    """A model on a cluster under a memory limit: one column of a table, with all its methods.

    Attributes:
        table: One of `TABLES`.
        model: As in the paper (Table I).
        cluster: One of `placements.cluster.CLUSTERS`.
        memory_gb: Memory of each GPU.
        best: By method; None where nothing fits.
    """

    table: str
    model: str
    cluster: str
    memory_gb: int
    best: dict[str, Best | None]

    @property
    def name(self) -> str:
        """As people call it, unlike that of any other column."""
        return f"{self.table}, {self.model}, {self.cluster}, {self.memory_gb} GB"

    @property
    def model_name(self) -> str:
        """In `placements.models.zoo.MODELS`.

        >>> PublishedColumn("III", "T5-512/4-32", "galvatron_a100_16", 8, {}).model_name
        't5_512_4_32'
        """
        return self.model.lower().replace("-", "_").replace("/", "_")


def published_columns(
    tables: Sequence[str] = TABLES, *, only: Collection[str] | None = None
) -> list[PublishedColumn]:
    """Return the columns of some tables, in the paper's order.

    Args:
        tables: Names of tables, as in `TABLES`.
        only: Methods; where none are given, all but those that have items of their own.
    """

    def is_wanted(method: str) -> bool:
        return method in only if only is not None else method not in (DEEPSPEED, MEMORY_BALANCED)

    table = csv_rows(PATH, "value", ValueError)
    rows = [row for row in table if row.text("table") in tables and is_wanted(row.text("method"))]
    places = ("table", "model", "cluster", "memory_gb")
    return [
        PublishedColumn(table, model, cluster, int(gb), {row.text("method"): _best(row) for row in methods})
        for (table, model, cluster, gb), methods in itertools.groupby(
            rows, key=lambda row: tuple(row.text(each) for each in places)
        )
    ]


def _best(row: Row) -> Best | None:
    return Best(row["batch"].whole(), row["samples_per_s"].number()) if "batch" in row else None
