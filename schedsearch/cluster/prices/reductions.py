"""Savings of each strategy against the baseline: mean costs over start days, compared (Fig. 6.5 and 6.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.prices.conditions import PriceConditions
from schedsearch.cluster.prices.days import DailyPrices, baseline_days, daily_prices
from schedsearch.cluster.prices.hindsight import min_dollars
from schedsearch.cluster.prices.market import Market
from schedsearch.cluster.prices.strategies import BASELINE, LADDER, OfferStrategy, choices, run

HINDSIGHT = "hindsight"
"""Name of the bound among the strategies."""

PUBLISHED_STARTS = (-35, -5)
"""Days of the study: 30 days, before the last five of the days with a price of the baseline."""


@dataclass(frozen=True)
class Reduction:
    """The saving of a strategy for one model and length of the job.

    Attributes:
        model: Model that is trained.
        days: The job's length on the baseline's GPU.
        strategy: Name.
        reduction: Mean cost of the baseline over the strategy's.
        mean_dollars: Mean of the start days.
        mean_hours: Hours from start to end; NaN for the bound.
        mean_moves: Likewise.
    """

    model: str
    days: float
    strategy: str
    reduction: float
    mean_dollars: float
    mean_hours: float
    mean_moves: float


@dataclass(frozen=True)
class Study:
    """Prices, models and conditions, ready for jobs of any length.

    Attributes:
        prices: Prices of each day.
        speeds: Steps per second by model and type of GPU.
        starts: Numbers of the days on which jobs start.
        baseline_gpu: Type of GPU of the baseline, in whose days the length of a job is given.
        conditions: What moves and preemptions cost.
        strategies: The baseline is the first.
    """

    prices: DailyPrices
    speeds: Mapping[str, Mapping[str, float]]
    starts: tuple[int, ...]
    baseline_gpu: str
    conditions: PriceConditions
    strategies: tuple[OfferStrategy, ...]

    @property
    def first_and_last_start(self) -> tuple[date, date]:
        """Return the first and the last day on which jobs start."""
        first, last = (self.prices.first + timedelta(days=each) for each in (self.starts[0], self.starts[-1]))
        return first, last

    def has(self, strategy: OfferStrategy) -> bool:
        """Return whether there are prices for a strategy."""
        return strategy in self.strategies

    def reductions(self, days: Iterable[float], *, hindsight: bool = False) -> Iterator[Reduction]:
        """Yield what each strategy saves, by length, strategy and model.

        Args:
            days: Lengths of jobs on the baseline's GPU.
            hindsight: Whether to add the bound of `hindsight`; it takes some seconds where moves cost.
        """
        for length in days:
            base = {model: self._means(BASELINE, model, length)[0] for model in self.speeds}
            for strategy in self.strategies:
                for model in self.speeds:
                    dollars, hours, moves = self._means(strategy, model, length)
                    ratio = base[model] / dollars
                    yield Reduction(model, length, strategy.name, ratio, dollars, hours, moves)
            for model in self.speeds if hindsight else ():
                dollars = self._least(model, length)
                yield Reduction(model, length, HINDSIGHT, base[model] / dollars, dollars, np.nan, np.nan)

    def _means(self, strategy: OfferStrategy, model: str, days: float) -> tuple[float, float, float]:
        speeds, steps = self._job(model, days)
        chosen = choices(strategy, self.prices, speeds, self.baseline_gpu)
        runs = [
            run(strategy, chosen, self.prices, speeds, start, steps, self.conditions) for start in self.starts
        ]
        dollars, hours, moves = np.mean(runs, axis=0)
        return float(dollars), float(hours), float(moves)

    def _least(self, model: str, days: float) -> float:
        job = self._job(model, days)
        found = [min_dollars(self.prices, job[0], start, job[1], self.conditions) for start in self.starts]
        return float(np.mean(found))

    def _job(self, model: str, days: float) -> tuple[NDArray[np.float64], float]:
        """Return the speed on each offer, and the steps of a job of a length."""
        speeds = self.speeds[model]
        of_offers = np.array([speeds.get(offer.gpu_type, 0.0) for offer in self.prices.offers])
        return of_offers, days * 86400 * speeds[self.baseline_gpu]


def study(
    market: Market,
    speeds: Mapping[str, Mapping[str, float]],
    conditions: PriceConditions | None = None,
    *,
    baseline_gpu: str = "v100",
    starts: tuple[int, int] = PUBLISHED_STARTS,
) -> Study:
    """Return a study of a market; strategies that need another cloud than AWS only where there is one.

    Args:
        market: Prices.
        speeds: Steps per second by model and type of GPU.
        conditions: None for those of the published study.
        baseline_gpu: Type of GPU of the baseline.
        starts: Jobs start on the days with a price of the baseline from one place to another, as in a slice:
            ``(-35, -5)`` are the 30 days before the last five.

    Raises:
        ClusterError: A model has no speed on the baseline's GPU, the baseline has no price, no day is a start
            day, or with these preemptions no job gets anywhere.
    """
    conditions = conditions or PriceConditions()
    if not conditions.makes_progress:
        raise ClusterError(
            f"preemptions_per_day: with {conditions.preemptions_per_day:g} of them, restart_s "
            f"{conditions.restart_s:g} and checkpoint_every_s {conditions.checkpoint_every_s:g}, less than a "
            "hundredth of the time is of use; lower one of them"
        )
    for model, of_model in speeds.items():
        if baseline_gpu not in of_model:
            raise ClusterError(
                f"throughputs.csv: {model!r} has no {baseline_gpu}_steps_per_s, of which the baseline is; "
                "give it, or another baseline_gpu"
            )
    days = baseline_days(market, lambda offer: BASELINE.admits(offer, baseline_gpu))
    if not days[slice(*starts)]:
        raise ClusterError(
            f"start_days: {list(starts)} has no day among the {len(days)} with a price of the baseline; "
            "give other places, as [0,1]"
        )
    prices = daily_prices(market, days[-1], conditions)
    numbers = tuple((day - prices.first).days for day in days[slice(*starts)])
    possible = tuple(each for each in LADDER if not each.any_cloud or len(market.clouds) > 1)
    return Study(prices, speeds, numbers, baseline_gpu, conditions, possible)
