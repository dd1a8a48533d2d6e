"""Tables 6.1 to 6.3 and Fig. 6.5: speeds and prices of GPUs at clouds, and savings of a job that chooses.

The figure prints no values. Its published ones are in a table that the study's notebook printed; it is read
from the folder of the prices, as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.options import OptionError
from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import by_series, draw_metrics, grouped, listed, rows_with, value_of
from placements.forms.meaning import Verbatim, option
from placements.forms.tables import csv_records
from schedsearch.cluster.prices.market import PriceSeries
from schedsearch.cluster.prices.price_files import read_market, read_speeds
from schedsearch.cluster.prices.study import DYNAMIC, study
from schedsearch.figures.bars import BarPanel, draw_bars

TABLE_6_1 = {
    "Transformer": ("Transformer (batch size 256)", ((3.3, 1.0), (3.3, 0.8))),
    "A3C": ("A3C", ((1.2, 0.4), (2.2, 0.4))),
    "CycleGAN": ("CycleGAN", ((4.5, 1.4), (9.3, 1.7))),
    "ResNet-18": ("ResNet-18 (batch size 256)", ((4.0, 1.2), (6.8, 1.2))),
    "ResNet-50": ("ResNet-50 (batch size 128)", ((3.7, 1.1), (9.6, 1.8))),
}
"""Name in the published speeds; speed and speed by dollar over a K80, on P100 and V100 (Table 6.1)."""

DATA_MOVEMENT = {
    "ResNet-50": ((("dataset", 150.0), ("model", 0.098)), (9.13, 0.006)),
    "BERT-Base": ((("dataset", 17.0), ("model", 0.408)), (0.98, 0.025)),
}
"""GB, and cost in percent of 160 hours of a V100 (Table 6.2)."""

SPOT_REDUCTIONS = {
    "aws": {"k80": 2.7, "v100": 3.3},
    "gcp": {"k80": 3.4, "p100": 3.4, "v100": 3.3},
    "azure": {"k80": 7.3, "p100": 8.0, "v100": 5.1},
}
"""Price on demand over the lowest spot price, of one GPU (Table 6.3)."""

GCP_DOLLARS_PER_HOUR = {"k80": (0.45, 0.135), "p100": (1.46, 0.43), "v100": (2.48, 0.74)}
"""Prices of one GPU without its host, on demand and preemptible, in 2020."""

ON_DEMAND = {
    ("aws", "k80"): 0.90,
    ("aws", "v100"): 3.06,
    ("azure", "k80"): 0.90,
    ("azure", "p100"): 2.07,
    ("azure", "v100"): 3.06,
}
"""Dollars per hour of an instance with one GPU in 2020: p2.xlarge, p3.2xlarge, NC6, NC6s v2 and NC6s v3."""

EGRESS_DOLLARS_PER_GB, COMPUTE_HOURS = 0.09, 160
"""To the Internet, from AWS; hours of a V100 that moves are compared with."""

RESNET = "ResNet-50 (batch size 128)"

MODELS = (
    "A3C",
    "CycleGAN",
    "LM (batch size 80)",
    "Recommendation (batch size 8192)",
    RESNET,
    "Transformer (batch size 256)",
)
"""Models of Fig. 6.5."""

DAYS = (4, 8)
"""Lengths of a job that the notebook printed; Fig. 6.5 has the first."""

SPEED, PER_DOLLAR = "speedup_over_k80", "speedup_per_dollar_over_k80"


@dataclass(frozen=True)
class PriceItemOptions(CaseOptions):
    """Options of all of them."""

    data: Verbatim | None = option(None, "folder with prices, speeds and the published table")


def _folder(options: PriceItemOptions) -> Path:
    if options.data is None:
        raise OptionError("data: has no value; give the folder of spot prices, as in data=FOLDER")
    return Path(options.data)


def _given(cases: Sequence[str], options: PriceItemOptions) -> Sequence[str]:
    """Return the cases of an item, once its folder is given."""
    _folder(options)
    return cases


def _lowest(series: Iterable[PriceSeries]) -> float:
    """Return the lowest price of several offers, of the whole instance."""
    return min(float(each.dollars_per_hour.min()) for each in series)


def _speed_rows(options: PriceItemOptions, model: str) -> Iterator[Row]:
    speeds = read_speeds(_folder(options) / "throughputs.csv")[TABLE_6_1[model][0]]
    for number, gpu in enumerate(("p100", "v100")):
        ratio, (speed, per_dollar) = speeds[gpu] / speeds["k80"], TABLE_6_1[model][1][number]
        cost = GCP_DOLLARS_PER_HOUR[gpu][0] / GCP_DOLLARS_PER_HOUR["k80"][0]
        yield Row(gpu, SPEED, ratio, speed, 1, series=gpu)
        note = f"the printed {speed:g} times gives {speed / cost:.2f} at these prices"
        yield Row(gpu, PER_DOLLAR, ratio / cost, per_dollar, 1, series=gpu, note=note)


def _speed_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    speeds = value_of(rows_with(rows, metric=SPEED, series="v100"), "case")
    per_dollar = value_of(rows_with(rows, metric=PER_DOLLAR), "case", "series")
    older = [case for case in speeds if per_dollar[case, "p100"] >= 0.95 * per_dollar[case, "v100"]]
    says = "the gain of a later GPU differs much from model to model (2.2 to 9.6 times)"
    yield Trend(says, max(speeds.values()) > 4 * min(speeds.values()), listed(speeds))
    shown = f"for {', '.join(older)}, within a twentieth"
    yield Trend("for some models the older P100 is as good by dollar, or better", bool(older), shown)


def _draw_speeds(rows: Sequence[Row]) -> Any:
    titles = {SPEED: SPEED, PER_DOLLAR: PER_DOLLAR}
    return draw_metrics(rows, "times a K80", titles, bar=by_series, width=9.0)


def _movement_rows(options: PriceItemOptions, model: str) -> Iterator[Row]:
    series = read_market(_folder(options), ("aws",)).series
    dollars = COMPUTE_HOURS * _lowest(each for each in series if each.offer.instance == "p3.2xlarge")
    for (what, gigabytes), percent, digits in zip(*DATA_MOVEMENT[model], (2, 3), strict=True):
        ours = 100 * gigabytes * EGRESS_DOLLARS_PER_GB / dollars
        yield Row(what, "percent_of_compute", ours, percent, digits, note=f"{gigabytes:g} GB")


def _reduction_rows(options: PriceItemOptions, cloud: str) -> Iterator[Row]:
    for gpu, published in SPOT_REDUCTIONS[cloud].items():
        if cloud == "gcp":
            on_demand, lowest = GCP_DOLLARS_PER_HOUR[gpu]
            note = "of the GPU alone: the host of the table is not given"
        else:
            region = "us-east-1" if cloud == "aws" else "us_east"
            series = read_market(_folder(options), ("aws", cloud)).series
            on_demand, note = ON_DEMAND[cloud, gpu], ""
            lowest = _lowest(
                each
                for each in series
                if (each.offer.cloud, each.offer.gpu_type, each.offer.num_gpus) == (cloud, gpu, 1)
                and each.offer.zone.startswith(region)
            )
        yield Row(gpu, "cost_reduction", on_demand / lowest, published, 1, note=note)


class _Published(NamedTuple):
    """A row of the notebook's table."""

    model: str
    job_days_on_v100: float
    strategy: str
    cost_reduction: float


def _published(folder: Path) -> dict[tuple[str, float, str], float]:
    """Return the notebook's cost reductions, by model, length and strategy.

    Raises:
        OptionError: The table is not there, or is another one.
    """
    table = folder / "published_cost_reduction.csv"
    rows = csv_records(table, "reduction", OptionError, _Published, others=True)
    return {row[:3]: row.cost_reduction for _, row in rows}


def _ladder_cases(options: PriceItemOptions) -> list[str]:
    _published(_folder(options))
    speeds = read_speeds(_folder(options) / "throughputs.csv")
    return [model for model in MODELS if model in speeds]


def _ladder_rows(options: PriceItemOptions, model: str) -> Iterator[Row]:
    folder = _folder(options)
    published, speeds = _published(folder), read_speeds(folder / "throughputs.csv")
    for each in study(read_market(folder), {model: speeds[model]}).reductions(DAYS):
        paper = published.get((model, each.days, each.strategy))
        label = f"{each.days:g} days, {each.strategy}"
        yield Row(label, "cost_reduction", each.reduction, paper, 2, series=each.strategy, at=each.days)


def _ladder_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    dynamic = value_of(rows_with(rows, series=DYNAMIC.name, at=DAYS[0]), "case")
    least = min(dynamic, key=lambda case: dynamic[case])
    yield Trend("costs fall by up to 3.5 times", round(max(dynamic.values()), 1) == 3.5, listed(dynamic))
    yield Trend("those of ResNet-50 fall the least", least == RESNET, listed(dynamic))


def _draw_ladder(rows: Sequence[Row]) -> Any:
    panels = []
    for days in DAYS:
        groups = grouped(rows_with(rows, at=days), lambda row: row.case.replace(" (", "\n("))
        bars = {name: {row.series: row.ours for row in own} for name, own in groups.items()}
        panels.append(BarPanel(f"{days} days on a V100", bars))
    return draw_bars(panels, "baseline's cost / cost", width=9.0)


ITEMS = (
    described(
        "dissertation_table6_1",
        partial(_given, tuple(TABLE_6_1)),
        _speed_rows,
        _speed_trends,
        _draw_speeds,
        PriceItemOptions(),
    ),
    described(
        "dissertation_table6_2",
        partial(_given, tuple(DATA_MOVEMENT)),
        _movement_rows,
        small=PriceItemOptions(),
    ),
    described(
        "dissertation_table6_3",
        partial(_given, tuple(SPOT_REDUCTIONS)),
        _reduction_rows,
        small=PriceItemOptions(),
    ),
    described(
        "dissertation_figure6_5",
        _ladder_cases,
        _ladder_rows,
        _ladder_trends,
        _draw_ladder,
        PriceItemOptions((MODELS[0], RESNET)),
    ),
)
