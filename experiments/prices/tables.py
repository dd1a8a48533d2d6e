"""Tables of what strategies save: as CSV, and for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from experiments.prices.disturbances import Disturbed
from placements.forms.texts import csv_text
from schedsearch.cluster.prices.market import Market
from schedsearch.cluster.prices.study import Reduction

COLUMNS = ("model", "days", "strategy", "reduction")
"""Of ``reductions.csv`` and ``durations.csv``."""

_COST_COLUMNS = ("model", "days", "strategy", "mean_dollars", "mean_hours", "mean_moves")

_DISTURBED_COLUMNS = (
    *("model", "days", "strategy", "restart_s", "preemptions_per_day"),
    *("reduction", "reduction_of_undisturbed_baseline", "mean_moves"),
)

_PRICE_COLUMNS = ("time_utc", "gpu", "dollars_per_gpu_hour")

_HOUR_S = 3600.0


def reductions_csv(found: Iterable[Reduction]) -> str:
    """Return what each strategy saves, as a factor."""
    return csv_text(COLUMNS, ([*_case(each), f"{each.reduction:.6f}"] for each in found))


def costs_csv(found: Iterable[Reduction]) -> str:
    """Return what a job costs on average over the start days; empty where the bound has no such figure."""
    rows = (
        [
            *_case(each),
            *(_figure(value) for value in (each.mean_dollars, each.mean_hours, each.mean_moves)),
        ]
        for each in found
    )
    return csv_text(_COST_COLUMNS, rows)


def disturbances_csv(found: Iterable[Disturbed]) -> str:
    """Return what is left under restarts and preemptions."""
    rows = (
        [
            *_case(each.found),
            *(f"{value:g}" for value in (each.restart_s, each.preemptions_per_day)),
            *(_figure(value) for value in (each.found.reduction, each.of_undisturbed, each.found.mean_moves)),
        ]
        for each in found
    )
    return csv_text(_DISTURBED_COLUMNS, rows)


def hourly_prices_csv(market: Market) -> str:
    """Return the least price of a GPU of each type in every hour, from the first quote's to the last's."""
    series = market.series
    first, last = min(each.times_s[0] for each in series), max(each.times_s[-1] for each in series)
    times_s = np.arange(_HOUR_S * math.ceil(first / _HOUR_S), last + _HOUR_S, _HOUR_S)
    prices = market.min_prices(times_s)
    rows = (
        [f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%dT%H:%M:%SZ}", gpu, _figure(float(dollars))]
        for gpu in sorted(prices)
        for time_s, dollars in zip(times_s, prices[gpu], strict=True)
    )
    return csv_text(_PRICE_COLUMNS, rows)


def to_table(found: Sequence[Reduction]) -> str:
    """Return what each strategy saves as text: a line per model, a column per strategy."""
    names = list(dict.fromkeys(each.strategy for each in found))
    ratios = {(each.days, each.model, each.strategy): each.reduction for each in found}
    wide = max(len(each.model) for each in found)
    lines = [f"{'days':>5} {'model':<{wide}} " + " ".join(f"{name:>11}" for name in names)]
    for days, model in dict.fromkeys((each.days, each.model) for each in found):
        cells = " ".join(f"{ratios[days, model, name]:>11.2f}" for name in names)
        lines.append(f"{days:>5g} {model:<{wide}} {cells}")
    return "\n".join(lines)


def means_by_strategy(found: Sequence[Disturbed]) -> Iterator[str]:
    """Yield a line for each restart time and rate: what strategies save, as geometric means over models."""
    for restart_s, rate in dict.fromkeys(each[:2] for each in found):
        here = [each for each in found if each[:2] == (restart_s, rate)]
        names = dict.fromkeys(each.found.strategy for each in here)
        means = ", ".join(f"{name} {mean_of_undisturbed(here, name):.2f}" for name in names)
        yield f"restart {restart_s:g} s, {rate:g} preemptions per day: {means}"


def mean_of_undisturbed(found: Iterable[Disturbed], strategy: str) -> float:
    """Return the geometric mean, over models, of what a strategy saves of the undisturbed baseline."""
    logarithms = [math.log(each.of_undisturbed) for each in found if each.found.strategy == strategy]
    return math.exp(math.fsum(logarithms) / len(logarithms))


def _case(found: Reduction) -> list[str]:
    return [found.model, f"{found.days:g}", found.strategy]


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"
