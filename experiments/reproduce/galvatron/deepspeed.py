"""DeepSpeed 3D in Tables II to VI: two stages, pairs of tensor-parallel GPUs and replicas for every model.

Beside it are the kinds of parallelism alone, of which the paper says whether it is better (Sec. VII-B).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from experiments.reproduce.galvatron.best_batches import best_batches
from experiments.reproduce.galvatron.columns import PURE, ReproducedColumn, same_memory
from experiments.reproduce.galvatron.published_columns import (
    DEEPSPEED,
    TABLES,
    Best,
    PublishedColumn,
    published_columns,
)
from experiments.reproduce.galvatron.trend_items import costs_of
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names
from experiments.reproduce.rows import grouped, numbers, rows_with
from placements.cluster import CLUSTERS
from placements.forms.meaning import option

_TABLES = tuple(table for table in TABLES if table != "V")
_SDP, _OTHERS = "SDP", tuple(method for method in PURE if method != "SDP")
_OVER = "over_"

_columns = partial(published_columns, only=(*PURE, DEEPSPEED))


@dataclass(frozen=True)
class DeepSpeedOptions:
    """Options of the item: the tables to compare."""

    tables: tuple[str, ...] = option(_TABLES, "tables of the paper")


def _cases(options: DeepSpeedOptions) -> dict[str, PublishedColumn]:
    check_names("tables", options.tables, _TABLES)
    return {column.name: column for column in _columns(options.tables)}


def _rows(_: DeepSpeedOptions, column: PublishedColumn) -> Iterator[Row]:
    """Yield the cell of DeepSpeed 3D, and its throughput over that of others alone, where both fit."""
    costs, cluster = costs_of(column.model_name, column.cluster), CLUSTERS[column.cluster]
    found = best_batches(costs, cluster, column.memory_gb, column.best)
    yield from ReproducedColumn(_only(column), {DEEPSPEED: found[DEEPSPEED]}).rows()
    for name, methods in ((_SDP, (_SDP,)), ("others", _OTHERS)):
        ours, paper = _over(found, methods), _over(column.best, methods)
        note = "" if ours else "one of both is out of memory"
        yield Row(f"{DEEPSPEED} / {name}", _OVER + name, ours, paper, digits=2, note=note)


def _only(column: PublishedColumn) -> PublishedColumn:
    own = {DEEPSPEED: column.best[DEEPSPEED]}
    return PublishedColumn(column.table, column.model, column.cluster, column.memory_gb, own)


def _over(best: dict[str, Best | None], methods: Sequence[str]) -> float | None:
    fixed = best[DEEPSPEED]
    rates = [found.samples_per_s for method in methods if (found := best[method]) is not None]
    return None if fixed is None or not rates else fixed.samples_per_s / max(rates)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    own = grouped(rows)
    columns = [
        ReproducedColumn.read(_only(column), own[column.name], column.name)
        for column in _columns()
        if column.name in own
    ]
    yield same_memory(columns)
    for name, says, is_more in (
        ("others", "it is faster than the best of DP, TP and PP in most columns", True),
        (_SDP, "it is slower than SDP in most columns", False),
    ):
        ratios = numbers(rows_with(rows, metric=_OVER + name))
        papers = [row.published for row in rows_with(rows, metric=_OVER + name) if row.published is not None]
        good, printed = (sum((each > 1) is is_more for each in found) for found in (ratios, papers))
        shown = f"{good} of {len(ratios)}; in the paper's cells {printed} of {len(papers)}"
        yield Trend(says, 2 * good > len(ratios), shown)


DEEPSPEED_ITEM = Item(
    name="galvatron_deepspeed",
    paper="Galvatron-BMW",
    part="Tables II to VI, DeepSpeed 3D",
    title="two stages, pairs of tensor-parallel GPUs and replicas",
    claim=Claim.TREND,
    known=_cases,
    make=_rows,
    conclude=_trends,
    small=DeepSpeedOptions(tables=("VI",)),
    because=(
        "costs are of data sheets where the paper measured. The paper says '2-way DP/TP/PP' of 8 GPUs; on "
        "more, all others are replicas here. Micro-batches are held as in GPipe; their number is the best one"
    ),
)
"""63 columns."""
