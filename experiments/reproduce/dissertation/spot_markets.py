"""Fig. 6.5: savings of a job that chooses among spot prices.

The figure prints no values. The published ones are in a table that the study's notebook printed; it is read
from the folder of the prices, as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.options import OptionError
from experiments.reproduce.item import DataOptions, Row, described
from experiments.reproduce.rows import grouped, rows_with
from placements.forms.tables import csv_records
from schedsearch.cluster.prices.price_files import read_market, read_speeds
from schedsearch.cluster.prices.study import Study
from schedsearch.figures.bars import BarPanel, draw_bars

RESNET = "ResNet-50 (batch size 128)"

SPEEDS = "throughputs.csv"
"""File in the folder of the prices."""

DAYS = (4, 8)
"""Lengths of a job that the notebook printed; Fig. 6.5 has the first."""


class _Published(NamedTuple):
    """A row of the notebook's table."""

    model: str
    job_days_on_v100: float
    strategy: str
    cost_reduction: float


def _cases(options: DataOptions) -> dict[str, list[_Published]]:
    """Return the published rows of each model that has speeds."""
    cases, path = dict[str, list[_Published]](), options.file("published_cost_reduction.csv")
    speeds = read_speeds(options.file(SPEEDS))
    for _, row in csv_records(path, "reduction", OptionError, _Published, others=True):
        if row.model in speeds:
            cases.setdefault(row.model, []).append(row)
    return cases


def _rows(options: DataOptions, rows: list[_Published]) -> Iterator[Row]:
    folder, model = Path(str(options.data)), rows[0].model
    published = {(row.job_days_on_v100, row.strategy): row.cost_reduction for row in rows}
    speeds = {model: read_speeds(folder / SPEEDS)[model]}
    for reduction in Study(read_market(folder), speeds).reductions(DAYS):
        label, paper = (
            f"{reduction.days:g} days, {reduction.strategy}",
            published.get((reduction.days, reduction.strategy)),
        )
        yield Row(
            label,
            "cost_reduction",
            reduction.reduction,
            paper,
            2,
            series=reduction.strategy,
            at=reduction.days,
        )


def _draw(rows: Sequence[Row]) -> Any:
    panels = []
    for days in DAYS:
        groups = grouped(rows_with(rows, at=days), lambda row: row.case.replace(" (", "\n("))
        bars = {name: {row.series: row.ours for row in group} for name, group in groups.items()}
        panels.append(BarPanel(f"{days} days on a V100", bars))
    return draw_bars(panels, "baseline's cost / cost", width=9.0)


SMALL = DataOptions(("A3C", RESNET))

ITEMS = (described("dissertation_figure6_5", _cases, _rows, draw=_draw, small=SMALL),)
