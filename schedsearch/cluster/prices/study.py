"""Strategies by which a job chooses offers, its cost under each, and their savings (Fig. 6.5 and 6.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.prices.days import HOURS, DailyPrices, Offer, PriceConditions, Quote, daily_prices

PUBLISHED_STARTS = (-35, -5)
"""Days of the study: 30 days, before the last five of the days with a price of the baseline."""


class OfferStrategy(NamedTuple):
    """A rule to choose offers: the most steps per dollar among the offers that the rule admits.

    Attributes:
        name: Name as in the study's table.
        any_gpu_type: Whether GPUs of other types than the baseline's are admitted.
        any_num_gpus: Whether instances of several GPUs are, of which the job takes one.
        any_cloud: Whether other clouds than AWS are.
        moves: Whether the job chooses anew every day; else only when the job starts.
    """

    name: str
    any_gpu_type: bool = True
    any_num_gpus: bool = True
    any_cloud: bool = True
    moves: bool = False

    def admits(self, offer: Offer, baseline_gpu: str) -> bool:
        """Return whether the strategy may choose an offer."""
        return (
            (self.any_gpu_type or offer.gpu_type == baseline_gpu)
            and (self.any_num_gpus or offer.num_gpus == 1)
            and (self.any_cloud or offer.cloud == "aws")
        )


BASELINE = OfferStrategy("baseline", False, False, False)  # the cheapest zone of one GPU type
MULTI_CLOUD = OfferStrategy("multi_cloud")
DYNAMIC = OfferStrategy("preemption", moves=True)  # the dissertation's dynamic

LADDER = (
    BASELINE,
    OfferStrategy("gpu_type", True, False, False),
    OfferStrategy("packed", True, True, False),
    MULTI_CLOUD,
    DYNAMIC,
)
"""Strategies of the study; each admits all offers that the strategy before admits."""

DayChoice = Mapping[int, float]
"""Price of each best offer of a day, usually one, in dollars per hour by its number; the first is taken."""


class JobCourse(NamedTuple):
    """Dollars paid for a job, its hours from start to end, and its moves from one offer to another."""

    dollars: float
    hours: float
    moves: int


def choices(
    strategy: OfferStrategy, prices: DailyPrices, speeds: NDArray[np.float64], baseline_gpu: str
) -> list[DayChoice]:
    """Return the best offers of a strategy on each day; empty on a day without an admitted price.

    Speeds are steps per second on one GPU of each offer, 0 where the job does not run.
    """
    admitted = np.array([strategy.admits(offer, baseline_gpu) for offer in prices.offers]) & (speeds > 0)
    kept = admitted[prices.offer]
    day, offer, dollars = prices.day[kept], prices.offer[kept], prices.dollars[kept]
    steps_per_dollar = speeds[offer] / prices.ranked_dollars[kept]
    best = np.zeros(prices.num_days)
    np.maximum.at(best, day, steps_per_dollar)
    chosen: list[dict[int, float]] = [{} for _ in best]
    for row in np.flatnonzero(steps_per_dollar == best[day]).tolist():
        chosen[day[row]][int(offer[row])] = float(dollars[row])
    return [*chosen]


def run(
    strategy: OfferStrategy,
    chosen: Sequence[DayChoice],
    prices: DailyPrices,
    speeds: NDArray[np.float64],
    start: int,
    steps: float,
    conditions: PriceConditions,
) -> JobCourse:
    """Return the cost, hours and moves of a job of `steps` steps that starts on day `start`.

    `chosen` has an offer on the first day. Speeds are steps per second on one GPU of each offer.
    """
    held, dollars_per_hour = next(iter(chosen[start].items()))
    share, dollars, hours, moves = conditions.useful_share, 0.0, 0.0, 0
    for day in range(start, prices.num_days):
        lost_h, choice = 0.0, chosen[day] if strategy.moves and day > start else {}
        if day > start and prices.changed[day, held]:
            dollars_per_hour = float(prices.standing[day, held])
        if choice:
            offer = held if held in choice else next(iter(choice))
            if offer != held:
                moves, lost_h = moves + 1, conditions.restart_s / 3600
                if prices.offers[held].cloud != prices.offers[offer].cloud:
                    dollars += conditions.egress_dollars
            held, dollars_per_hour = offer, choice[offer]
        steps_per_hour = speeds[held] * 3600 * share
        needed_h = lost_h + steps / steps_per_hour
        spent_h = needed_h if day == prices.num_days - 1 else min(needed_h, HOURS)
        dollars += spent_h * dollars_per_hour
        hours += spent_h
        if spent_h == needed_h:
            break
        steps -= (spent_h - lost_h) * steps_per_hour
    return JobCourse(dollars, hours, moves)


@dataclass(frozen=True)
class Reduction:
    """The saving of a strategy for one model and length of the job.

    Attributes:
        model: Model that is trained.
        days: The job's length on the baseline's GPU.
        strategy: Name.
        reduction: Mean cost of the baseline over the strategy's.
        mean_dollars: Mean of the start days.
        mean_hours: Hours from start to end.
        mean_moves: Likewise.
    """

    model: str
    days: float
    strategy: str
    reduction: float
    mean_dollars: float
    mean_hours: float
    mean_moves: float


class Study:
    """Prices, models and conditions, ready for jobs of any length.

    Args:
        market: Prices, newest first.
        speeds: Steps per second by model and type of GPU.
        conditions: Costs of moves and preemptions; None for those of the published study.
        baseline_gpu: Type of GPU of the baseline, in whose days the length of a job is given.
        starts: Jobs start on the days with a price of the baseline from one place to another, as in a slice:
            ``(-35, -5)`` are the 30 days before the last five.

    Attributes:
        prices: Prices of each day.
        starts: Numbers of the days on which jobs start.
        strategies: The baseline is the first; those that need another cloud than AWS only where there is one.

    Raises:
        ClusterError: A model has no speed on the baseline's GPU, the baseline has no price, no day is a start
            day, or with these preemptions no job gets anywhere.
    """

    def __init__(
        self,
        market: Sequence[Quote],
        speeds: Mapping[str, Mapping[str, float]],
        conditions: PriceConditions | None = None,
        *,
        baseline_gpu: str = "v100",
        starts: tuple[int, int] = PUBLISHED_STARTS,
    ) -> None:
        """Check that jobs can start and get somewhere, and put the prices of each day together."""
        self.speeds, self.baseline_gpu = speeds, baseline_gpu
        self.conditions = under = conditions or PriceConditions()
        if not under.makes_progress:
            raise ClusterError(
                f"preemptions_per_day: with {under.preemptions_per_day:g} of them, restart_s "
                f"{under.restart_s:g} and checkpoint_every_s {under.checkpoint_every_s:g}, less than a "
                "hundredth of the time is of use; lower one of them"
            )
        if without := [model for model, of_model in speeds.items() if baseline_gpu not in of_model]:
            raise ClusterError(
                f"throughputs.csv: {without[0]!r} has no {baseline_gpu}_steps_per_s, of which the baseline "
                "is; give it, or another baseline_gpu"
            )
        days = sorted({quote.time.date() for quote in market if BASELINE.admits(quote.offer, baseline_gpu)})
        start_days = days[slice(*starts)]
        if not days:
            raise ClusterError(
                "the baseline has no price: no instance of AWS has one GPU of its type; add one"
            )
        if not start_days:
            raise ClusterError(
                f"start_days: {list(starts)} has no day among the {len(days)} with a price of the baseline; "
                "give other places, as [0,1]"
            )
        self.prices = daily_prices(market, days[-1], under)
        self.starts = tuple((day - self.prices.first).days for day in start_days)
        has_others = any(quote.offer.cloud != "aws" for quote in market)
        self.strategies = tuple(strategy for strategy in LADDER if has_others or not strategy.any_cloud)

    @property
    def first_and_last_start(self) -> tuple[date, date]:
        """Return the first and the last day on which jobs start."""
        first, last = timedelta(days=self.starts[0]), timedelta(days=self.starts[-1])
        return self.prices.first + first, self.prices.first + last

    def reductions(self, days: Iterable[float]) -> Iterator[Reduction]:
        """Yield the saving of each strategy, by days of the job on the baseline's GPU, strategy and model."""
        for length in days:
            base = {model: self._means(BASELINE, model, length)[0] for model in self.speeds}
            for strategy in self.strategies:
                for model in self.speeds:
                    means = self._means(strategy, model, length)
                    yield Reduction(model, length, strategy.name, base[model] / means[0], *means)

    def _means(self, strategy: OfferStrategy, model: str, days: float) -> tuple[float, float, float]:
        """Return mean dollars, hours and moves of a strategy over the start days."""
        by_type, prices, under = self.speeds[model], self.prices, self.conditions
        speeds = np.array([by_type.get(offer.gpu_type, 0.0) for offer in prices.offers])
        steps = days * 86400 * by_type[self.baseline_gpu]
        chosen = choices(strategy, prices, speeds, self.baseline_gpu)
        runs = [run(strategy, chosen, prices, speeds, start, steps, under) for start in self.starts]
        dollars, hours, moves = np.mean(runs, axis=0).tolist()
        return dollars, hours, moves
