"""Fig. 6.5 and 6.6: what one job saves by choosing among spot prices, from the prices that were published.

The figures print no values. Those of Fig. 6.5 are in a table that the study's notebook printed; it is read
from the folder of the prices, as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.options import OptionError, require_path
from experiments.reproduce.dissertation.figure import figure
from experiments.reproduce.item import CaseOptions, Claim, Row, Trend
from experiments.reproduce.rows import (
    bars,
    by_case,
    by_series,
    curves,
    listed,
    numbers,
    rows_with,
    span,
    value_of,
)
from placements.forms.meaning import Verbatim, option
from placements.forms.tables import csv_records
from schedsearch.cluster.prices.price_files import read_market, read_speeds
from schedsearch.cluster.prices.study import DYNAMIC, MULTI_CLOUD, Reduction, study
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.panels import Panel, draw_panels

RESNET = "ResNet-50 (batch size 128)"

MODELS = (
    "A3C",
    "CycleGAN",
    "LM (batch size 80)",
    "Recommendation (batch size 8192)",
    RESNET,
    "Transformer (batch size 256)",
)
"""Of both figures."""

DAYS = (4, 8)
"""Lengths of a job that the notebook printed; Fig. 6.5 has the first."""

DURATIONS = (0.5, 1, 2, 4, 8)
"""Ours for Fig. 6.6, whose places are not in the text."""

TABLE = "published_cost_reduction.csv"

REDUCTION, MOVING, MOVES = "cost_reduction", "staying_over_moving", "mean_moves"


@dataclass(frozen=True)
class PriceItemOptions(CaseOptions):
    """Options of both figures."""

    data: Verbatim | None = option(None, "folder with prices, speeds and the published table")
    only: tuple[str, ...] = option((), "cases to make, as [A3C]; empty: all")


def _models(options: PriceItemOptions) -> list[str]:
    folder = data_folder(options)
    _published(folder)
    speeds = read_speeds(folder / "throughputs.csv")
    return [model for model in MODELS if model in speeds]


def data_folder(options: PriceItemOptions) -> Path:
    """Return the folder of prices.

    Raises:
        OptionError: None is given, or it is not there.
    """
    if options.data is None:
        raise OptionError("data: has no value; give the folder of spot prices, as in data=FOLDER")
    return Path(require_path("data", options.data))


class _Published(NamedTuple):
    """A row of what the notebook printed."""

    model: str
    job_days_on_v100: float
    strategy: str
    cost_reduction: float


def _published(folder: Path) -> dict[tuple[str, float, str], float]:
    """Return what the notebook printed, by model, length and strategy.

    Raises:
        OptionError: The table is not there, or is another one.
    """
    rows = csv_records(folder / TABLE, "reduction", OptionError, _Published, others=True)
    return {(row.model, row.job_days_on_v100, row.strategy): row.cost_reduction for _, row in rows}


def _reductions(folder: Path, model: str, days: Sequence[float]) -> list[Reduction]:
    speeds = read_speeds(folder / "throughputs.csv")
    return list(study(read_market(folder), {model: speeds[model]}).reductions(days))


def _ladder_rows(options: PriceItemOptions, model: str) -> Iterator[Row]:
    folder = data_folder(options)
    published = _published(folder)
    for each in _reductions(folder, model, DAYS):
        paper = published.get((model, each.days, each.strategy))
        label = f"{each.days:g} days, {each.strategy}"
        yield Row(label, REDUCTION, each.reduction, paper, 2, series=each.strategy, at=each.days)


def _ladder_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    dynamic = value_of(rows_with(rows, series=DYNAMIC.name, at=DAYS[0]), "case")
    least = min(dynamic, key=lambda case: dynamic[case])
    yield Trend("costs fall by up to 3.5 times", round(max(dynamic.values()), 1) == 3.5, listed(dynamic))
    yield Trend("those of ResNet-50 fall the least", least == RESNET, listed(dynamic))


def _draw_ladder(rows: Sequence[Row]) -> Any:
    panels = [
        BarPanel(
            f"{days} days on a V100",
            bars(rows_with(rows, at=days), lambda row: row.case.replace(" (", "\n("), by_series),
        )
        for days in DAYS
    ]
    return draw_bars(panels, "baseline's cost / cost", width=9.0)


def _moving_rows(options: PriceItemOptions, model: str) -> Iterator[Row]:
    found = {(each.days, each.strategy): each for each in _reductions(data_folder(options), model, DURATIONS)}
    for days in DURATIONS:
        staying, moving = found[days, MULTI_CLOUD.name], found[days, DYNAMIC.name]
        yield Row(f"{days:g} days", MOVING, staying.mean_dollars / moving.mean_dollars, at=days)
        yield Row(f"{days:g} days", MOVES, moving.mean_moves, at=days)


def _moving_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = curves(rows_with(rows, metric=MOVING), by_case)
    moves = numbers(rows_with(rows, metric=MOVES))
    grows = all(
        later.value >= earlier.value - 1e-9
        for curve in ratios.values()
        for earlier, later in itertools.pairwise(curve)
    )
    short = [point.value for curve in ratios.values() for point in curve if point.place < 2]
    long = {case: curve[-1].value for case, curve in ratios.items()}
    yield Trend("longer jobs save more", grows, f"with 8 days {listed(long)}")
    says = "little is saved by jobs of less than two days (a tenth)"
    yield Trend(says, max(short) < 1.1, span(short))
    says = "long jobs save up to 1.4 times (1.3 to 1.5)"
    yield Trend(says, 1.3 <= max(long.values()) <= 1.5, listed(long))
    yield Trend("fewer than 3 moves are needed", max(moves) < 3, f"{max(moves):.1f} moves on average")


def _draw_moving(rows: Sequence[Row]) -> Any:
    panel = Panel("", curves(rows_with(rows, metric=MOVING), by_case))
    labels = "days on a V100", "cost of staying / cost of moving", "Moving against staying"
    return draw_panels([panel], *labels)


_RULES = "Only prices of the very day are chosen, moves are free and nothing is preempted, as in the study. "

PRICE_ITEMS = (
    figure(
        "6.5",
        "Cost of a job by five ways of choosing among spot prices",
        Claim.EXACT,
        _models,
        _ladder_rows,
        _ladder_trends,
        _draw_ladder,
        small=PriceItemOptions((MODELS[0], RESNET)),
        inputs={"data": "spot_prices"},
        because=_RULES
        + "The figure prints no values; published are those of the study's notebook, of 4 and 8 days.",
    ),
    figure(
        "6.6",
        "Cost of a job that moves and of one that stays, by its length",
        Claim.TREND,
        _models,
        _moving_rows,
        _moving_trends,
        _draw_moving,
        small=PriceItemOptions(MODELS[-1:]),
        inputs={"data": "spot_prices"},
        because=_RULES + "The figure's values and its lengths of jobs are not in the text.",
    ),
)
