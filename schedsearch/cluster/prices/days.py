"""The prices of each day: what can be chosen, and what an offer that was chosen costs from then on.

Prices change several times a day, and the study looks at them once: a time is cut to its date (dissertation,
Sec. 6.3.2). It does not know which strategy chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.prices.conditions import PriceConditions
from schedsearch.cluster.prices.market import Market, Offer, Quote, order_of


@dataclass(frozen=True)
class DayOffers:
    """The offers of a day, the first of equally good ones first.

    Attributes:
        offers: Numbers of offers; one may be there several times.
        ranked_dollars: Per hour, by which they are compared.
        dollars: Per hour, which a job pays that chooses it.
    """

    offers: NDArray[np.intp]
    ranked_dollars: NDArray[np.float64]
    dollars: NDArray[np.float64]


@dataclass(frozen=True)
class DailyPrices:
    """Prices of all offers on all days up to the last; dollars per hour for one job.

    Attributes:
        first: The first day.
        offers: All that have a price.
        candidates: Candidates of each day.
        changed: Whether an offer has a price that is dated that day; shape ``(days, offers)``.
        standing: The last price up to the day's end; NaN before the first. Same shape.
        least: The least that any strategy may be charged there. Same shape.
    """

    first: date
    offers: tuple[Offer, ...]
    candidates: tuple[DayOffers, ...]
    changed: NDArray[np.bool_]
    standing: NDArray[np.float64]
    least: NDArray[np.float64]

    @property
    def num_days(self) -> int:
        """Return the number of days; the prices of the last one hold for ever."""
        return len(self.candidates)


def daily_prices(market: Market, last: date, conditions: PriceConditions) -> DailyPrices:
    """Return the prices of each day from the first quote's to the last.

    Args:
        market: At least one quote is not after the last day.
        last: From then on prices stay.
        conditions: What can be chosen, and of how many GPUs a job pays for.
    """
    quotes = [quote for quote in market.quotes if quote.time.date() <= last]
    first = quotes[-1].time.date()
    offers = tuple(sorted({quote.offer for quote in quotes}, key=order_of))
    number = {offer: index for index, offer in enumerate(offers)}
    of_day: list[list[Quote]] = [[] for _ in range((last - first).days + 1)]
    for quote in quotes:
        of_day[(quote.time.date() - first).days].append(quote)
    standing = np.full((len(of_day), len(offers)), np.nan)
    lowest, changed = standing.copy(), np.zeros(standing.shape, dtype=bool)
    for day, newest_first in enumerate(of_day):
        for quote in reversed(newest_first):
            offer = number[quote.offer]
            dollars = quote.dollars_per_hour / _paid_gpus(quote.offer, conditions)
            standing[day, offer], changed[day, offer] = dollars, True
            lowest[day, offer] = np.fmin(lowest[day, offer], dollars)
    for prices in (standing, lowest):
        _carry_forward(prices)
    if conditions.carry_forward:
        chosen = [_standing_candidates(row, offers, conditions) for row in standing]
    else:
        chosen = [_dated_candidates(quotes, number, conditions) for quotes in of_day]
    least = standing if conditions.carry_forward else lowest
    return DailyPrices(first, offers, tuple(chosen), changed, standing, least)


def baseline_days(market: Market, is_baseline: Callable[[Offer], bool]) -> list[date]:
    """Return the days with a price that the baseline may choose, sorted.

    Raises:
        ClusterError: There are none.
    """
    days = sorted({quote.time.date() for quote in market.quotes if is_baseline(quote.offer)})
    if not days:
        raise ClusterError("the baseline has no price: no instance of AWS has one GPU of its type; add one")
    return days


def _paid_gpus(offer: Offer, conditions: PriceConditions) -> int:
    return 1 if conditions.whole_instance else offer.num_gpus


def _ranking_factor(offer: Offer, conditions: PriceConditions) -> int:
    """Return how many times as much as it is charged an offer seems to cost."""
    return _paid_gpus(offer, conditions) if offer.cloud == "azure" and not conditions.rank_per_gpu else 1


def _carry_forward(prices: NDArray[np.float64]) -> None:
    """Put the day before's price where there is none."""
    for day in range(1, len(prices)):
        prices[day] = np.where(np.isnan(prices[day]), prices[day - 1], prices[day])


def _dated_candidates(
    newest_first: Sequence[Quote], number: dict[Offer, int], conditions: PriceConditions
) -> DayOffers:
    quotes = sorted(newest_first, key=lambda quote: order_of(quote.offer)[:3])
    dollars = [quote.dollars_per_hour / _paid_gpus(quote.offer, conditions) for quote in quotes]
    factors = [_ranking_factor(quote.offer, conditions) for quote in quotes]
    offers = np.array([number[quote.offer] for quote in quotes], dtype=np.intp)
    return DayOffers(offers, np.array(dollars) * np.array(factors), np.array(dollars))


def _standing_candidates(
    standing: NDArray[np.float64], offers: Sequence[Offer], conditions: PriceConditions
) -> DayOffers:
    known = np.flatnonzero(~np.isnan(standing))
    factors = np.array([_ranking_factor(offers[int(each)], conditions) for each in known])
    return DayOffers(known, standing[known] * factors, standing[known])
