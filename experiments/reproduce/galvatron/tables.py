"""Tables II to VI of Galvatron-BMW by our planner, column by column, and the divisions of Table V.

``published_columns.csv`` has the paper's cells: samples per second and batches of all rows that a method here
has a name for. Table V repeats Table III's bi-objective rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

from scipy.stats import spearmanr

from experiments.reproduce.galvatron.best_batches import (
    MEMORY_BALANCED,
    METHODS,
    RESERVE_GIB,
    RememberedCosts,
    best_batches,
)
from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import grouped, in_all, published_table, rows_with, uninterrupted, value_of
from placements.cluster import CLUSTERS
from placements.forms.meaning import option
from placements.models.transformer import TransformerLayer
from placements.models.zoo import MODELS
from placements.planners.hybrid.search.plan_search import search_plans

TABLES = ("II", "III", "IV", "V", "VI")
"""Numbers in the paper."""

PURE = ("DP", "TP", "PP", "SDP")
"""One kind of parallelism alone."""

MIN_RANK_CORRELATION = 0.8
"""Correlation from which on the methods are said to be in the paper's order."""

_BATCH, _RATE = "batch", "samples_per_s"


class Cell(NamedTuple):
    """A method in a column: a model on a cluster under a memory limit; without a batch nothing fits."""

    table: str
    model: str
    cluster: str
    memory_gb: int
    method: str
    batch: int | None = None
    samples_per_s: float | None = None

    @property
    def column(self) -> str:
        """Name of the column."""
        return f"{self.table}, {self.model}, {self.cluster}, {self.memory_gb} GB"

    @property
    def costs(self) -> RememberedCosts:
        """Costs of the model's layers on the cluster."""
        return _costs(self.model.lower().replace("-", "_").replace("/", "_"), self.cluster)


@lru_cache(maxsize=2)
def _costs(model_name: str, cluster: str) -> RememberedCosts:
    return RememberedCosts(MODELS[model_name])


def published_columns(
    tables: Collection[str] = TABLES, methods: Collection[str] = METHODS.keys() - {MEMORY_BALANCED}
) -> dict[str, list[Cell]]:
    """Return the columns of some tables with some methods, by name and in the paper's order."""
    columns: dict[str, list[Cell]] = {}
    for cell in published_table(__file__, "published_columns.csv", Cell):
        if cell.table in tables and cell.method in methods:
            columns.setdefault(cell.column, []).append(cell)
    return columns


@dataclass(frozen=True)
class TableOptions(CaseOptions):
    """Options of the tables; a case is a column."""

    tables: tuple[str, ...] = option(
        TABLES, "tables of the paper; II and VI take some three minutes, all five take twelve", choices=TABLES
    )


def _rows(_: TableOptions, cells: Sequence[Cell]) -> Iterator[Row]:
    first, methods = cells[0], [cell.method for cell in cells]
    best = best_batches(first.costs, CLUSTERS[first.cluster], first.memory_gb, methods)
    for cell in cells:
        ours = best[cell.method]
        lacking = [who for who, value in (("ours", ours), ("the paper", cell.batch)) if value is None]
        note = f"out of memory in {'both' if len(lacking) == 2 else lacking[0]}" if lacking else ""
        for metric, digits in ((_BATCH, 0), (_RATE, 2)):
            value, published = (getattr(side, metric, None) for side in (ours, cell))
            yield Row(cell.method, metric, value, published, digits, note=note, series=cell.method)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ours, paper = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for case, group in grouped(rows_with(rows, metric=_RATE)).items():
        ours[case] = {row.series: row.ours or 0.0 for row in group}
        paper[case] = {row.series: row.published or 0.0 for row in group}
    same = [(rate == 0) == (paper[case][name] == 0) for case in ours for name, rate in ours[case].items()]
    yield in_all("the same methods fit in memory", same, "cells")
    winners = [(_winner(ours[case]), _winner(paper[case])) for case in ours]
    if same := [winner == theirs for winner, theirs in winners if theirs is not None]:
        yield in_all("the same kind of parallelism is the best alone", same, "columns")
    both = [([*ours[case].values()], [*paper[case].values()]) for case in ours]
    if correlations := [
        spearmanr(*pair).statistic for pair in both if min(len({*rates}) for rates in pair) > 1
    ]:
        yield Trend(
            f"the same order of methods: a rank correlation of {MIN_RANK_CORRELATION:g} or more",
            fmean(correlations) >= MIN_RANK_CORRELATION,
            f"{fmean(correlations):.2f} on average, {min(correlations):.2f} at least",
        )


def _winner(rates: Mapping[str, float]) -> str | None:
    """Return the fastest method of `PURE`; None if none has a rate."""
    winner = max(PURE, key=lambda method: rates.get(method, 0.0))
    return winner if rates.get(winner) else None


_DIVIDING = (MEMORY_BALANCED, "1F1B+Time", "1F1B+Bi-obj")
_BOTH_OBJECTIVES = _DIVIDING[-1]


class PublishedPartition(NamedTuple):
    """Layers of each stage of a plan of Table V."""

    model: str
    memory_gb: int
    method: str
    stage_layers: tuple[int, ...]


PARTITIONS = {
    row[:3]: row.stage_layers for row in published_table(__file__, "partitions.csv", PublishedPartition)
}

NEAR = 0.1
"""Part of all layers by which a partition may differ from the paper's."""

_LAYERS, _MOVED = "layers", "moved_layers"


def _partition_rows(_: CaseOptions, cells: Sequence[Cell]) -> Iterator[Row]:
    """Yield the plan of each method with the paper's batch and number of stages."""
    for cell in sorted(cells, key=lambda cell: _DIVIDING.index(cell.method)):
        method, published = cell.method, PARTITIONS[cell.model, cell.memory_gb, cell.method]
        options = replace(METHODS[method], memory_gib=cell.memory_gb, reserve_gib=RESERVE_GIB)
        options = replace(options, num_stages=(len(published),))
        assert cell.batch is not None, "the paper has a plan"
        plans = uninterrupted(search_plans(cell.costs, CLUSTERS[cell.cluster], cell.batch, options)).plans
        if not plans:
            yield Row(method, _MOVED, None, note="nothing fits with the paper's batch and stages")
            continue
        plan, layers = plans[0].plan, cell.costs.model.layers
        counts = [sum(isinstance(layers[i], TransformerLayer) for i in stage.layers) for stage in plan.stages]
        pairs = [*zip(counts, published, strict=True)]
        for number, (ours, printed) in enumerate(pairs, 1):
            yield Row(f"{method}, stage {number}", _LAYERS, ours, printed, 0, series=method)
        moved, whole = sum(abs(ours - printed) for ours, printed in pairs) / 2, sum(published)
        yield Row(method, _MOVED, moved, note=f"of {whole} layers", series=method, bound=whole)
        yield Row(method, _RATE, plans[0].samples_per_s, cell.samples_per_s, 2, series=method)


def _partition_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for method in _DIVIDING:
        moved = rows_with(rows, metric=_MOVED, series=method)
        near = [row.ours <= NEAR * (row.bound or 0) for row in moved if row.ours is not None]
        conclusion = f"{method}: at most {NEAR:.0%} of the layers are in another stage"
        yield in_all(conclusion, near, "plans")
    rate = value_of(rows_with(rows, metric=_RATE), "series", "case")
    cases = [case for method, case in rate if method == _BOTH_OBJECTIVES]
    for other in _DIVIDING[:2]:
        pairs = [(rate[_BOTH_OBJECTIVES, case], rate[other, case]) for case in cases if (other, case) in rate]
        better = [both >= one * (1 - 1e-9) for both, one in pairs]
        yield in_all(f"both objectives are not slower than {other}", better, "columns")


ITEMS = (
    described(
        "galvatron_trends",
        lambda options: published_columns(options.tables),
        _rows,
        _trends,
        small=TableOptions(("VI, GPT3-65B, galvatron_a100_32, 80 GB",), tables=("VI",)),
    ),
    described(
        "galvatron_table5",
        published_columns(("V",), _DIVIDING),
        _partition_rows,
        _partition_trends,
        small=CaseOptions(only=("V, BERT-Huge-32, galvatron_a100_16, 8 GB",)),
    ),
)
