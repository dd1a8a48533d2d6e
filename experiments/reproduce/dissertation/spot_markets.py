"""Tables 6.1 to 6.3 and Fig. 6.1, 6.3 and 6.4: speeds and prices of GPUs at clouds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from experiments.reproduce.dissertation.figure import SOURCE
from experiments.reproduce.dissertation.published import DATA_MOVEMENT, SPOT_REDUCTIONS, TABLE_6_1
from experiments.reproduce.dissertation.spot_prices import PriceItemOptions, data_folder
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.rows import bars, by_series, listed, numbers, rows_with, value_of
from schedsearch.cluster.prices.market import PriceSeries
from schedsearch.cluster.prices.price_files import CLOUDS, read_market, read_speeds
from schedsearch.figures.bars import BarPanel, draw_bars

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

SPEED, PER_DOLLAR = "speedup_over_k80", "speedup_per_dollar_over_k80"
LOWEST, HIGHEST, SPREAD = "lowest_dollars_per_hour", "highest_dollars_per_hour", "relative_spread"


def _series(options: PriceItemOptions, *clouds: str) -> list[PriceSeries]:
    return list(read_market(data_folder(options), clouds or CLOUDS).series)


def _ends(series: Iterable[PriceSeries]) -> tuple[float, float]:
    """Return the lowest and the highest price of several offers, of the whole instance."""
    prices = np.concatenate([each.dollars_per_hour for each in series])
    return float(prices.min()), float(prices.max())


def _speed_rows(options: PriceItemOptions, model: str) -> Iterator[Row]:
    speeds = read_speeds(data_folder(options) / "throughputs.csv")[TABLE_6_1[model][0]]
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


def _movement_rows(options: PriceItemOptions, model: str) -> Iterator[Row]:
    offers = [each for each in _series(options, "aws") if each.offer.instance == "p3.2xlarge"]
    dollars = COMPUTE_HOURS * _ends(offers)[0]
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
            offers = [
                each
                for each in _series(options, "aws", cloud)
                if (each.offer.cloud, each.offer.gpu_type, each.offer.num_gpus) == (cloud, gpu, 1)
                and each.offer.zone.startswith(region)
            ]
            on_demand, lowest, note = ON_DEMAND[cloud, gpu], _ends(offers)[0], ""
        yield Row(gpu, "cost_reduction", on_demand / lowest, published, 1, note=note)


def _price_rows(options: PriceItemOptions, instance: str) -> Iterator[Row]:
    for each in _series(options, "aws"):
        if each.offer.instance == instance:
            lowest, highest = _ends([each])
            yield Row(f"{each.offer.zone}, lowest", LOWEST, lowest, digits=4, series=each.offer.zone)
            yield Row(f"{each.offer.zone}, highest", HIGHEST, highest, digits=4, series=each.offer.zone)
            prices = each.dollars_per_hour
            spread = float(prices.std() / prices.mean())
            yield Row(f"{each.offer.zone}, spread", SPREAD, spread, digits=4, series=each.offer.zone)


def _price_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    stable = numbers(rows_with(rows, case="p3.16xlarge", metric=SPREAD))
    yield Trend("the price of p3.16xlarge does not change", max(stable) < 1e-9, f"in {len(stable)} zones")
    capped = rows_with(rows, case="p2.xlarge", series="us-east-1f")
    ends = {row.ours for row in capped if row.metric != SPREAD}
    says = "that of p2.xlarge in us-east-1f is the price on demand"
    yield Trend(says, ends == {ON_DEMAND["aws", "k80"]}, ", ".join(f"{end:g} $ an hour" for end in ends))


def _stability_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for sizes in (("p2.xlarge", "p2.8xlarge", "p2.16xlarge"), ("p3.2xlarge", "p3.8xlarge", "p3.16xlarge")):
        spreads = {case: fmean(numbers(rows_with(rows, case=case, metric=SPREAD))) for case in sizes}
        says = f"with more GPUs in an instance the price is more stable, {' to '.join(sizes[::2])}"
        falling = all(after <= before for before, after in pairwise(spreads.values()))
        yield Trend(says, falling, listed(spreads, ".3f", " of its mean"))


def _cloud_rows(options: PriceItemOptions, gpu: str) -> Iterator[Row]:
    offers = [each for each in _series(options) if each.offer.gpu_type == gpu]
    for cloud, count in sorted({(each.offer.cloud, each.offer.num_gpus) for each in offers}):
        own = [each for each in offers if (each.offer.cloud, each.offer.num_gpus) == (cloud, count)]
        for metric, price in zip((LOWEST, HIGHEST), _ends(own), strict=True):
            yield Row(f"{cloud}, {count} GPUs", metric, price, digits=3, series=cloud, at=count)


def _cloud_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ends = value_of(rows_with(rows, series="gcp"), "case", "at", "metric")
    static = all(ends[case, at, LOWEST] == ends[case, at, HIGHEST] for case, at, _ in ends)
    yield Trend("GCP's prices do not change", static, f"{len(ends) // 2} instances")
    lowest = value_of(rows_with(rows, metric=LOWEST), "case", "at", "series")
    places = {(case, at) for case, at, _ in lowest}
    cheapest = {
        place: min((price, cloud) for (*key, cloud), price in lowest.items() if tuple(key) == place)[1]
        for place in places
    }
    counts = Counter(cheapest.values())
    shown = ", ".join(f"{cloud} {count} times" for cloud, count in counts.most_common())
    yield Trend("which cloud is the cheapest changes with the instance", len(counts) > 1, shown)


def _draw(metrics: Sequence[str], label: str, rows: Sequence[Row]) -> Any:
    panels = [BarPanel(metric, bars(rows_with(rows, metric=metric), bar=by_series)) for metric in metrics]
    return draw_bars(panels, label, width=9.0)


def _item(
    part: str, title: str, claim: Claim, known: Iterable[str], make: Callable[..., Any], **others: Any
) -> Item:
    kind, number = part.split(",")[0].split()
    name = f"dissertation_{'table' if kind == 'Table' else 'figure'}{number.replace('.', '_')}"
    cases = tuple(known)

    def checked(options: PriceItemOptions) -> Sequence[str]:
        data_folder(options)
        return cases

    inputs = {"data": "spot_prices"}
    small = PriceItemOptions()
    return Item(name, SOURCE, part, title, claim, checked, make, small=small, inputs=inputs, **others)


_INSTANCES = ("p2.xlarge", "p2.8xlarge", "p2.16xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge")
_DRAWN = "The figure prints no values. "

MARKET_ITEMS = (
    _item(
        "Table 6.1, Fig. 1.4 and 5.1",
        "Speed of models on later GPUs, and by dollar",
        Claim.EXACT,
        TABLE_6_1,
        _speed_rows,
        conclude=_speed_trends,
        draw=lambda rows: _draw((SPEED, PER_DOLLAR), "times a K80", rows),
        because="Batches are those whose ratios are the printed ones. Two of the values by dollar do not "
        "follow from the printed speeds at Google Cloud's prices of 2020, and CycleGAN's published speeds "
        "give 4.6 for the printed 4.5 on a P100",
        supported_by="test_two_values_by_dollar_do_not_follow_from_the_printed_speeds",
    ),
    _item(
        "Table 6.2",
        "Cost of moving data and models, of that of computing",
        Claim.WITHIN,
        DATA_MOVEMENT,
        _movement_rows,
        tolerance=0.07,
        because="Sizes are the table's, rounded to whole GB for data. 9 cents for each GB and the lowest "
        "price of a V100 in us-east-1 are taken, which the table does not print",
    ),
    _item(
        "Table 6.3",
        "Lowest spot price beside that on demand, of one GPU",
        Claim.EXACT,
        SPOT_REDUCTIONS,
        _reduction_rows,
        because="Prices on demand are those of 2020, which the table does not print. Google's are of the GPU "
        "alone, since the host is not given",
        supported_by="test_reductions_of_aws_and_azure_are_as_printed",
    ),
    _item(
        "Fig. 6.1",
        "Spot prices of AWS by zone",
        Claim.TREND,
        _INSTANCES,
        _price_rows,
        conclude=_price_trends,
        draw=lambda rows: _draw((LOWEST, HIGHEST), "dollars per hour", rows),
        because=_DRAWN + "Ours are the ends of each zone's prices",
    ),
    _item(
        "Fig. 6.3",
        "Lowest and highest spot prices of three clouds",
        Claim.TREND,
        ("k80", "p100", "v100"),
        _cloud_rows,
        conclude=_cloud_trends,
        because=_DRAWN + "Azure is there with three regions and a month",
    ),
    _item(
        "Fig. 6.4",
        "How stable prices are with more GPUs in an instance",
        Claim.TREND,
        _INSTANCES,
        _price_rows,
        conclude=_stability_trends,
        draw=lambda rows: _draw((SPREAD,), "standard deviation / mean", rows),
        because=_DRAWN + "Ours is the mean of the zones' standard deviations over their means",
    ),
)
