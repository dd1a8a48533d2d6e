"""Tables II to VI of Galvatron-BMW by our planner, column by column, as an item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from experiments.reproduce.galvatron.best_batches import RememberedCosts, best_batches
from experiments.reproduce.galvatron.columns import (
    FIGURES,
    ReproducedColumn,
    same_memory,
    same_order,
    same_winners,
)
from experiments.reproduce.galvatron.published_columns import TABLES, PublishedColumn, published_columns
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names
from experiments.reproduce.rows import grouped
from placements.cluster import CLUSTERS
from placements.forms.meaning import option
from placements.forms.texts import csv_text
from placements.models.zoo import MODELS
from placements.planners.hybrid.shape_costs import ShapeCosts

LEAST_RANK_CORRELATION = 0.8
"""From which on the methods are said to be in the paper's order."""


@dataclass(frozen=True)
class TrendOptions:
    """Options of the tables."""

    tables: tuple[str, ...] = option(
        TABLES, "tables of the paper; II and VI take some three minutes, all five take twelve"
    )
    models: tuple[str, ...] | None = option(None, "some of the tables' models, as [BERT-Huge-32]; null: all")


def _cases(options: TrendOptions) -> dict[str, PublishedColumn]:
    check_names("tables", options.tables, TABLES)
    known = dict.fromkeys(column.model for column in published_columns(options.tables))
    if options.models is not None:
        check_names("models", options.models, tuple(known))
    return {
        column.name: column
        for column in published_columns(options.tables)
        if options.models is None or column.model in options.models
    }


def _rows(_: TrendOptions, column: PublishedColumn) -> Iterator[Row]:
    costs, cluster = costs_of(column.model_name, column.cluster), CLUSTERS[column.cluster]
    found = best_batches(costs, cluster, column.memory_gb, column.best)
    return ReproducedColumn(column, found).rows()


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    """Yield in what our columns and the paper's agree."""
    columns = _read(rows)
    broken = [
        f"{column.published.name}: {larger} is below {smaller}"
        for column in columns
        for larger, smaller in column.broken
    ]
    compared = sum(len(column.compared) for column in columns)
    yield Trend(
        "a method that may choose all that another one may is not worse",
        not broken,
        "; ".join([f"{compared - len(broken)} of {compared} pairs", *broken]),
    )
    yield same_memory(columns)
    yield from same_winners(columns)
    yield from same_order(columns, LEAST_RANK_CORRELATION)


def _files(rows: Sequence[Row]) -> Mapping[str, str]:
    """Return the columns as ``trends.csv``."""
    lines = [
        (own.table, own.model, own.cluster, own.memory_gb, method, *figures)
        for own, column in ((column.published, column) for column in _read(rows))
        for method, figures in column.lines
    ]
    header = ("table", "model", "cluster", "memory_gb", "method", *FIGURES)
    return {"trends.csv": csv_text(header, lines)}


def _read(rows: Sequence[Row]) -> list[ReproducedColumn]:
    own = grouped(rows)
    return [
        ReproducedColumn.read(column, own[column.name], column.name)
        for column in published_columns()
        if column.name in own
    ]


@lru_cache(maxsize=2)
def costs_of(model_name: str, cluster: str) -> RememberedCosts:
    """Return the costs of a model, to be used on one cluster only."""
    return RememberedCosts(ShapeCosts(MODELS[model_name]))


TRENDS = Item(
    name="galvatron_trends",
    paper="Galvatron-BMW",
    part="Tables II to VI",
    title="the best batch of each method, by our planner",
    claim=Claim.TREND,
    known=_cases,
    make=_rows,
    conclude=_trends,
    small=TrendOptions(tables=("VI",), models=("GPT3-65B",)),
    files=_files,
    because=(
        "costs are of data sheets where the paper measured, so that only the order of methods is compared; "
        "PP alone has the best number of micro-batches here, which the paper tuned by hand"
    ),
)
"""Tables II to VI."""
