"""The best batch of a method as rows of an item, and back: ours beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from experiments.reproduce.galvatron.published_columns import Best
from experiments.reproduce.item import Row

BATCH, RATE = "batch", "samples_per_s"
"""Metrics of the two rows of a cell."""

Values = Mapping[tuple[str, str, str], float | None]
"""Ours, by case, label and metric."""


def rows_of(case: str, label: str, ours: Best | None, paper: Best | None) -> Iterator[Row]:
    """Yield a cell's batch and throughput; both are None where nothing fits."""
    here, there = ours is None, paper is None
    where = "both" if here and there else "ours" if here else "the paper"
    note = f"out of memory in {where}" if here or there else ""
    for metric, digits in ((BATCH, 0), (RATE, 2)):
        found, published = (None if best is None else float(getattr(best, metric)) for best in (ours, paper))
        yield Row(case, label, metric, found, published, digits, note=note)


def values_of(rows: Sequence[Row]) -> Values:
    """Return our values of some rows."""
    return {(row.case, row.label, row.metric): row.ours for row in rows}


def best_in(values: Values, case: str, label: str) -> Best | None:
    """Return our best batch of a cell; None where nothing fits."""
    batch, rate = (values[case, label, metric] for metric in (BATCH, RATE))
    return None if batch is None or rate is None else Best(int(batch), rate)
