"""Fig. 6.5 and 6.6: what one job saves by choosing among spot prices, from the prices that were published.

The figures print no values. Those of Fig. 6.5 are in a table that the study's notebook printed; it is read
from the folder of the prices, as they are.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.config.options import OptionError, require_path
from experiments.reproduce.item import Claim, Item, Row, Trend, chosen_cases
from placements.meaning import option
from schedsearch.cluster.prices.price_files import read_market, read_speeds
from schedsearch.cluster.prices.reductions import Reduction, study
from schedsearch.cluster.prices.strategies import DYNAMIC, MULTI_CLOUD
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.panels import Panel, Point, draw_panels

MODELS = (
    "A3C",
    "CycleGAN",
    "LM (batch size 80)",
    "Recommendation (batch size 8192)",
    "ResNet-50 (batch size 128)",
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
class PriceItemOptions:
    """Options of both figures."""

    data: str | None = option(None, "folder with prices, speeds and the published table")
    only: tuple[str, ...] = option((), "cases to make, as [A3C]; empty: all")


def _cases(options: PriceItemOptions) -> list[str]:
    chosen = chosen_cases(MODELS, options.only)
    folder = _folder(options)
    _published(folder)
    return [model for model in chosen if model in read_speeds(folder / "throughputs.csv")]


def _folder(options: PriceItemOptions) -> Path:
    if options.data is None:
        raise OptionError("data: has no value; give the folder of spot prices, as in data=FOLDER")
    return Path(require_path("data", options.data))


def _published(folder: Path) -> dict[tuple[str, float, str], float]:
    """Return what the notebook printed, by model, length and strategy.

    Raises:
        OptionError: The table is not there, or is another one.
    """
    path = folder / TABLE
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {
                (row["model"], float(row["job_days_on_v100"]), row["strategy"]): float(row["cost_reduction"])
                for row in csv.DictReader(file)
            }
    except (OSError, KeyError, ValueError, TypeError) as cause:
        raise OptionError(f"{path}: is not the published table ({cause}); give it in the folder") from None


def _reductions(folder: Path, model: str, days: Sequence[float]) -> list[Reduction]:
    speeds = read_speeds(folder / "throughputs.csv")
    return list(study(read_market(folder), {model: speeds[model]}).reductions(days))


def _ladder_rows(options: PriceItemOptions, case: str) -> list[Row]:
    folder = _folder(options)
    published = _published(folder)
    return [
        Row(
            case,
            f"{each.days:g} days, {each.strategy}",
            REDUCTION,
            each.reduction,
            published.get((case, each.days, each.strategy)),
            digits=2,
        )
        for each in _reductions(folder, case, DAYS)
    ]


def _ladder_trends(rows: Sequence[Row]) -> list[Trend]:
    dynamic = {row.case: row.ours or 0.0 for row in rows if row.label == f"{DAYS[0]} days, {DYNAMIC.name}"}
    shown = ", ".join(f"{case} {ratio:.2f} times" for case, ratio in dynamic.items())
    most, least = max(dynamic, key=lambda case: dynamic[case]), min(dynamic, key=lambda case: dynamic[case])
    return [
        Trend("costs fall by up to 3.5 times", round(dynamic[most], 1) == 3.5, shown),
        Trend("those of ResNet-50 fall the least", least.startswith("ResNet-50"), shown),
    ]


def _draw_ladder(rows: Sequence[Row]) -> Any:
    panels = []
    for days in DAYS:
        groups: dict[str, dict[str, float | None]] = {}
        for row in rows:
            length, _, strategy = row.label.partition(" days, ")
            if length == f"{days}":
                groups.setdefault(row.case.replace(" (", "\n("), {})[strategy] = row.ours
        panels.append(BarPanel(f"{days} days on a V100", groups))
    return draw_bars(panels, "baseline's cost / cost", width=9.0)


def _moving_rows(options: PriceItemOptions, case: str) -> list[Row]:
    found = {(each.days, each.strategy): each for each in _reductions(_folder(options), case, DURATIONS)}
    rows = []
    for days in DURATIONS:
        staying, moving = found[days, MULTI_CLOUD.name], found[days, DYNAMIC.name]
        label, ratio = f"{days:g} days", staying.mean_dollars / moving.mean_dollars
        rows += [Row(case, label, MOVING, ratio), Row(case, label, MOVES, moving.mean_moves)]
    return rows


def _moving_trends(rows: Sequence[Row]) -> list[Trend]:
    ratios = _curves(rows, MOVING)
    moves = [point.value for curve in _curves(rows, MOVES).values() for point in curve]
    grows = all(
        later.value >= earlier.value - 1e-9
        for curve in ratios.values()
        for earlier, later in itertools.pairwise(curve)
    )
    short = [point.value for curve in ratios.values() for point in curve if point.place < 2]
    long = {case: curve[-1].value for case, curve in ratios.items()}
    shown = ", ".join(f"{case} {ratio:.2f} times" for case, ratio in long.items())
    return [
        Trend("longer jobs save more", grows, f"with 8 days {shown}"),
        Trend("little is saved by jobs of less than two days (a tenth)", max(short) < 1.1, _range(short)),
        Trend("long jobs save up to 1.4 times (1.3 to 1.5)", 1.3 <= max(long.values()) <= 1.5, shown),
        Trend("fewer than 3 moves are needed", max(moves) < 3, f"{max(moves):.1f} moves on average"),
    ]


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f} times"


def _curves(rows: Sequence[Row], metric: str) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for row in rows:
        if row.metric == metric:
            place = float(row.label.removesuffix(" days"))
            curves.setdefault(row.case, []).append(Point(place, row.ours or 0.0))
    return curves


def _draw_moving(rows: Sequence[Row]) -> Any:
    panel = Panel("", _curves(rows, MOVING))
    return draw_panels(
        [panel], "days on a V100", "cost of staying / cost of moving", "Moving against staying"
    )


_RULES = "Only prices of the very day are chosen, moves are free and nothing is preempted, as in the study. "

PRICE_ITEMS = (
    Item(
        "dissertation_figure6_5",
        "Narayanan's dissertation, Fig. 6.5",
        "Cost of a job by five ways of choosing among spot prices",
        Claim.EXACT,
        PriceItemOptions,
        PriceItemOptions(only=(MODELS[0], MODELS[4])),
        _cases,
        _ladder_rows,
        _ladder_trends,
        _draw_ladder,
        inputs={"data": "spot_prices"},
        because=_RULES
        + "The figure prints no values; published are those of the study's notebook, of 4 and 8 days.",
    ),
    Item(
        "dissertation_figure6_6",
        "Narayanan's dissertation, Fig. 6.6",
        "Cost of a job that moves and of one that stays, by its length",
        Claim.TREND,
        PriceItemOptions,
        PriceItemOptions(only=MODELS[-1:]),
        _cases,
        _moving_rows,
        _moving_trends,
        _draw_moving,
        inputs={"data": "spot_prices"},
        because=_RULES + "The figure's values and its lengths of jobs are not in the text.",
    ),
)
