"""Our rows of Galvatron-BMW's tables beside the published ones: as CSV, and in what both agree.

The module does not search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.reproduce.galvatron.constant_tables import COLUMNS as CELL_COLUMNS
from experiments.reproduce.galvatron.published_columns import Best, PublishedColumn
from placements.files import csv_text

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

COLUMNS = ("table", "model", "cluster", *CELL_COLUMNS[1:])
"""Of the CSV."""

_ROUNDING = 1e-9
"""Relative: what sums of floats may differ by."""


@dataclass(frozen=True)
class TrendColumn:
    """A model on a cluster under a memory limit, with the methods of its table.

    Attributes:
        published: The paper's.
        found: Ours, of the same methods; None where nothing fits.
    """

    published: PublishedColumn
    found: Mapping[str, Best | None]

    @property
    def rows(self) -> Iterator[tuple[object, ...]]:
        """The values of `COLUMNS`, a row for each method; empty where nothing fits."""
        own = self.published
        for method, paper in own.best.items():
            place = own.table, own.model, own.cluster, own.memory_gb, method
            yield (*place, *_figures(self.found[method]), *_figures(paper))

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
        paper = self.published.best
        return rank_correlation(
            [_rate(self.found[method]) for method in paper], [_rate(each) for each in paper.values()]
        )

    @property
    def winners(self) -> tuple[str | None, str] | None:
        """The best of `PURE`, ours and the paper's; None where the paper has none that fits."""
        paper = _winner(self.published.best)
        return None if paper is None else (_winner(self.found), paper)


@dataclass(frozen=True)
class TrendAgreement:
    """In what our rows and the paper's agree.

    Attributes:
        num_cells: Methods of all columns.
        same_out_of_memory: Cells in which both have a batch, or both none.
        inclusions: Pairs of methods of which the first may choose all that the second may.
        inclusions_held: Those in which it is not worse.
        winners: Columns in which one of the pure kinds fits in the paper.
        same_winner: Those of them in which the same one is ours.
        rank_correlation: Spearman's, the mean over columns; NaN where there is none.
        least_rank_correlation: The least of all columns; likewise.
    """

    num_cells: int
    same_out_of_memory: int
    inclusions: int
    inclusions_held: int
    winners: int
    same_winner: int
    rank_correlation: float
    least_rank_correlation: float


def trend_agreement(columns: Sequence[TrendColumn]) -> TrendAgreement:
    """Compare some columns with the paper's."""
    cells = [
        (column.found[method], paper) for column in columns for method, paper in column.published.best.items()
    ]
    winners = [column.winners for column in columns if column.winners is not None]
    correlations = [each for column in columns if not math.isnan(each := column.rank_correlation)]
    pairs = sum(len(column.compared) for column in columns)
    return TrendAgreement(
        len(cells),
        sum((ours is None) == (paper is None) for ours, paper in cells),
        pairs,
        pairs - sum(len(column.broken) for column in columns),
        len(winners),
        sum(ours == paper for ours, paper in winners),
        fmean(correlations) if correlations else math.nan,
        min(correlations, default=math.nan),
    )


def trends_to_csv(columns: Sequence[TrendColumn]) -> str:
    """Return the cells as CSV with `COLUMNS`."""
    return csv_text(COLUMNS, (row for column in columns for row in column.rows))


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
