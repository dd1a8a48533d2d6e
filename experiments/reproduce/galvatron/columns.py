"""Columns of Galvatron-BMW's tables, ours beside the paper's: as rows, as CSV, and what both agree in.

The module does not search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from experiments.reproduce.galvatron.published_columns import Best, PublishedColumn
from experiments.reproduce.item import Row, Trend
from experiments.reproduce.rows import in_all, value_of

BATCH, RATE = "batch", "samples_per_s"
"""Metrics of the two rows of a cell."""

PURE = ("DP", "TP", "PP", "SDP")
"""One kind of parallelism alone."""

LARGER = (
    ("Galvatron-BMW", "1F1B+Bi-obj"),
    ("Galvatron-BMW", "Galvatron-Base"),
    ("1F1B+Bi-obj", "1F1B+Time"),
    ("1F1B+Bi-obj", "Galvatron"),
    ("Galvatron-Base", "Galvatron"),
    ("Galvatron", "DP+TP"),
    ("Galvatron", "DP+PP"),
    ("Galvatron", "SDP"),
    ("DP+TP", "DP"),
    ("DP+TP", "TP"),
    ("DP+PP", "DP"),
    ("DP+PP", "PP"),
)
"""Pairs of methods of which the first may choose all that the second may."""

FIGURES = ("out_of_memory", "batch", "throughput", "paper_out_of_memory", "paper_batch", "paper_throughput")
"""Of a cell, in CSV."""

_ROUNDING = 1e-9
"""Relative: what sums of floats may differ by."""


@dataclass(frozen=True)
class ReproducedColumn:
    """A model on a cluster under a memory limit, with the methods of its table.

    Attributes:
        published: The paper's.
        found: Ours, of the same methods; None where nothing fits.
    """

    published: PublishedColumn
    found: Mapping[str, Best | None]

    @classmethod
    def read(cls, published: PublishedColumn, rows: Sequence[Row], case: str) -> ReproducedColumn:
        """Return the column of rows that `rows` made."""
        value = value_of(rows)
        found = dict[str, Best | None]()
        for method in published.best:
            fits = (case, method, BATCH) in value
            found[method] = Best(int(value[case, method, BATCH]), value[case, method, RATE]) if fits else None
        return cls(published, found)

    def rows(self) -> Iterator[Row]:
        """Yield the batch and the throughput of each cell."""
        for method, ours, paper in self.cells:
            here, there = ours is None, paper is None
            where = "both" if here and there else "ours" if here else "the paper"
            note = f"out of memory in {where}" if here or there else ""
            for metric, digits in ((BATCH, 0), (RATE, 2)):
                found = None if ours is None else float(getattr(ours, metric))
                published = None if paper is None else float(getattr(paper, metric))
                yield Row(method, metric, found, published, digits, note=note, series=method)

    @property
    def cells(self) -> Iterator[tuple[str, Best | None, Best | None]]:
        """Methods with ours and the paper's."""
        return ((method, self.found[method], paper) for method, paper in self.published.best.items())

    @property
    def lines(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Methods with the `FIGURES` of their cells."""
        return ((method, (*_figures(ours), *_figures(paper))) for method, ours, paper in self.cells)

    @property
    def compared(self) -> list[tuple[str, str]]:
        """The pairs of `LARGER` that the table has."""
        return [pair for pair in LARGER if all(method in self.found for method in pair)]

    @property
    def broken(self) -> list[tuple[str, str]]:
        """Those of them whose first method is worse."""
        return [
            (larger, smaller)
            for larger, smaller in self.compared
            if _rate(self.found[larger]) < _rate(self.found[smaller]) * (1 - _ROUNDING)
        ]

    @property
    def rank_correlation(self) -> float:
        """Of the methods' throughputs, ours and the paper's; NaN where all are equal."""
        both = [(_rate(ours), _rate(paper)) for _, ours, paper in self.cells]
        return rank_correlation([ours for ours, _ in both], [paper for _, paper in both])

    @property
    def winners(self) -> tuple[str | None, str] | None:
        """The best of `PURE`, ours and the paper's; None where the paper has none that fits."""
        paper = _winner(self.published.best)
        return None if paper is None else (_winner(self.found), paper)


def same_memory(columns: Sequence[ReproducedColumn]) -> Trend:
    """Return whether the same cells fit in ours and in the paper."""
    same = [(ours is None) == (paper is None) for column in columns for _, ours, paper in column.cells]
    return in_all("what fits is what fits in the paper", same, "cells", start="")


def same_winners(columns: Sequence[ReproducedColumn]) -> Iterator[Trend]:
    """Yield whether the same kind of parallelism is the best, where one of them fits in the paper."""
    same = [ours == paper for ours, paper in (each.winners for each in columns if each.winners is not None)]
    if same:
        yield in_all("the best kind of parallelism alone is the paper's", same, "columns", start="")


def same_order(columns: Sequence[ReproducedColumn], least: float) -> Iterator[Trend]:
    """Yield whether methods are in the paper's order, by their mean rank correlation."""
    found = [each for column in columns if not math.isnan(each := column.rank_correlation)]
    if found:
        yield Trend(
            f"methods are in the paper's order: a rank correlation of {least:g} or more",
            fmean(found) >= least,
            f"{fmean(found):.2f} on average, {min(found):.2f} at least",
        )


def rank_correlation(ours: Sequence[float], papers: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values share their mean rank; NaN where all are equal.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    a, b = _ranks(ours), _ranks(papers)
    mean = (len(a) - 1) / 2
    spread = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    both = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    return both / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def _winner(best: Mapping[str, Best | None]) -> str | None:
    """Return the best of `PURE`; None where none is there or fits."""
    rates = {method: _rate(best.get(method)) for method in PURE}
    winner = max(rates, key=rates.__getitem__)
    return winner if rates[winner] else None


def _rate(best: Best | None) -> float:
    return 0.0 if best is None else best.samples_per_s


def _figures(best: Best | None) -> tuple[str, str, str]:
    return ("true", "", "") if best is None else ("false", str(best.batch), f"{best.samples_per_s:.6g}")
