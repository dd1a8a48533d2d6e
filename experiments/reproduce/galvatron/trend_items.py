"""Tables II to VI of Galvatron-BMW by our planner, column by column, as an item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from experiments.reproduce.galvatron.best_batches import RememberedCosts, best_batches
from experiments.reproduce.galvatron.cell_rows import best_in, rows_of, values_of
from experiments.reproduce.galvatron.published_columns import TABLES, PublishedColumn, published_columns
from experiments.reproduce.galvatron.trend_agreement import (
    TrendColumn,
    trend_agreement,
    trends_to_csv,
)
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names
from placements.cluster import CLUSTERS
from placements.meaning import option
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


def cases(options: TrendOptions) -> list[str]:
    """Return the names of the columns.

    Raises:
        OptionError: There is no such table or model.
    """
    check_names("tables", options.tables, TABLES)
    known = dict.fromkeys(column.model for column in published_columns(options.tables))
    if options.models is not None:
        check_names("models", options.models, tuple(known))
    return [column.name for column in _columns(options)]


def make(options: TrendOptions, case: str) -> list[Row]:
    """Return the rows of one column, two for each method."""
    column = next(each for each in _columns(options) if each.name == case)
    costs, cluster = _costs(column.model_name, column.cluster), CLUSTERS[column.cluster]
    found = best_batches(costs, cluster, column.memory_gb, column.best)
    return [
        row for method, paper in column.best.items() for row in rows_of(case, method, found[method], paper)
    ]


def trends(rows: Sequence[Row]) -> list[Trend]:
    """Return in what our columns and the paper's agree."""
    columns = _trend_columns(rows)
    found = trend_agreement(columns)
    broken = [
        f"{column.published.name}: {larger} is below {smaller}"
        for column in columns
        for larger, smaller in column.broken
    ]
    trends = [
        Trend(
            "a method that may choose all that another one may is not worse",
            not broken,
            "; ".join([f"{found.inclusions_held} of {found.inclusions} pairs", *broken]),
        ),
        Trend(
            "what fits is what fits in the paper",
            found.same_out_of_memory == found.num_cells,
            f"{found.same_out_of_memory} of {found.num_cells} cells",
        ),
    ]
    if found.winners:
        trends.append(
            Trend(
                "the best kind of parallelism alone is the paper's",
                found.same_winner == found.winners,
                f"{found.same_winner} of {found.winners} columns",
            )
        )
    if not math.isnan(found.rank_correlation):
        trends.append(
            Trend(
                f"methods are in the paper's order: a rank correlation of {LEAST_RANK_CORRELATION:g} or more",
                found.rank_correlation >= LEAST_RANK_CORRELATION,
                f"{found.rank_correlation:.2f} on average, {found.least_rank_correlation:.2f} at least",
            )
        )
    return trends


def files(rows: Sequence[Row]) -> Mapping[str, str]:
    """Return the columns as ``trends.csv``."""
    return {"trends.csv": trends_to_csv(_trend_columns(rows))}


def _trend_columns(rows: Sequence[Row]) -> list[TrendColumn]:
    values, made = values_of(rows), {row.case for row in rows}
    return [
        TrendColumn(column, {method: best_in(values, column.name, method) for method in column.best})
        for column in published_columns()
        if column.name in made
    ]


def _columns(options: TrendOptions) -> list[PublishedColumn]:
    columns = published_columns(options.tables)
    return [each for each in columns if options.models is None or each.model in options.models]


@lru_cache(maxsize=2)
def _costs(model_name: str, cluster: str) -> RememberedCosts:
    """Return the costs of a model, to be used on one cluster only."""
    return RememberedCosts(ShapeCosts(MODELS[model_name]))


TRENDS = Item(
    "galvatron_trends",
    "Galvatron-BMW, Tables II to VI",
    "the best batch of each method, by our planner",
    Claim.TREND,
    TrendOptions,
    TrendOptions(tables=("VI",), models=("GPT3-65B",)),
    cases,
    make,
    trends,
    files=files,
    because=(
        "costs are of data sheets where the paper measured, so that only the order of methods is compared; "
        "PP alone has the best number of micro-batches here, which the paper tuned by hand"
    ),
)
"""Tables II to VI."""
