"""The least that a job can cost if all prices were known ahead: dynamic programming over days and offers.

Of each day and offer all pairs of work done and dollars paid are kept that no other pair beats in both; a job
ends with the cheapest that does all of its work. That is exact, for any speeds, restarts and egress.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schedsearch.cluster.prices.conditions import PriceConditions
from schedsearch.cluster.prices.days import DailyPrices
from schedsearch.cluster.prices.strategies import HOURS

_DIGITS = 12
"""Digits to which the share of the work that is done is rounded, so that equal sums are equal."""

Front = NDArray[np.float64]
"""Shape (pairs, 2): share of the work that is done, rising, and dollars, rising too."""

_NONE = np.empty((0, 2))


def min_dollars(
    prices: DailyPrices, speeds: NDArray[np.float64], start: int, steps: float, conditions: PriceConditions
) -> float:
    """Return the least that a job can cost that rents one offer each day and moves only at midnight.

    No strategy of `strategies` is cheaper under the same conditions. Least time between moves is not asked
    for, nor is a least saving: with them it is a bound from below. So it is where prices are not carried
    forward, as each offer then has the lowest price that any strategy may be charged.

    Args:
        prices: Prices of each day.
        speeds: Steps per second on one GPU of each offer; 0 where the job does not run.
        start: Number of the day on which it starts.
        steps: Steps that the job has to do.
        conditions: What moves and preemptions cost.
    """
    table = np.where(speeds > 0, prices.least[start:], np.nan)
    clouds = np.array([offer.cloud for offer in prices.offers])
    rates = speeds * 3600 * conditions.useful_share / steps
    if not conditions.moves_cost:
        table, clouds, rates = _cheapest_of_each_rate(table, rates)
    return _Search(table, clouds, rates, conditions).least()


class _Search:
    """The days one after the other, with the pairs of each offer."""

    def __init__(
        self,
        table: NDArray[np.float64],
        clouds: NDArray[np.str_],
        rates: NDArray[np.float64],
        conditions: PriceConditions,
    ) -> None:
        """Take dollars per hour by day and offer, and the share of the work that each does in an hour."""
        self._table, self._clouds, self._rates = table, clouds, rates
        self._restart_h, self._egress_dollars = conditions.restart_s / 3600, conditions.egress_dollars
        self._best = np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            of_work = np.where(np.isnan(table), np.inf, table / rates).min(axis=1)
        self._min_ahead = np.minimum.accumulate(of_work[::-1])[::-1]

    def least(self) -> float:
        """Return the least dollars with which all work is done."""
        days, num_offers = self._table.shape
        fronts = [np.array([[0.0, 0.0]])] * num_offers  # the first choice is no move
        for day in range(days):
            every = fronts if day == 0 else self._arriving(fronts)
            fronts = [self._worked(day, offer, fronts[offer], every[offer]) for offer in range(num_offers)]
        return float(self._best)

    def _arriving(self, fronts: list[Front]) -> list[Front]:
        """Return the pairs with which each offer can be moved to."""
        of_cloud = {
            cloud: _pareto([fronts[each] for each in np.flatnonzero(self._clouds == cloud)])
            for cloud in dict.fromkeys(self._clouds.tolist())
        }
        moved = {
            cloud: _pareto(
                [
                    own if other == cloud else own + [0.0, self._egress_dollars]
                    for other, own in of_cloud.items()
                ]
            )
            for cloud in of_cloud
        }
        return [moved[cloud] for cloud in self._clouds.tolist()]

    def _worked(self, day: int, offer: int, staying: Front, arriving: Front) -> Front:
        """Return the pairs after a day on an offer, and note what ends on it."""
        if np.isnan(self._table[day, offer]):
            return _NONE
        lost_h = self._restart_h if day else 0.0
        parts = [self._after(day, offer, staying, 0.0), self._after(day, offer, arriving, lost_h)]
        found = _pareto(parts)
        ahead = self._min_ahead[min(day + 1, len(self._min_ahead) - 1)]
        kept: Front = found[found[:, 1] + (1 - found[:, 0]) * ahead < self._best]
        return kept

    def _after(self, day: int, offer: int, front: Front, lost_h: float) -> Front:
        rate, dollars = self._rates[offer], self._table[day, offer]
        needed_h = lost_h + (1 - front[:, 0]) / rate
        ends = needed_h <= HOURS if day < len(self._table) - 1 else np.ones(len(front), dtype=bool)
        if ends.any():
            self._best = min(self._best, (front[ends, 1] + needed_h[ends] * dollars).min())
        going_on = front[~ends]
        done = np.round(going_on[:, 0] + (HOURS - lost_h) * rate, _DIGITS)
        return np.column_stack([done, going_on[:, 1] + HOURS * dollars])


def _cheapest_of_each_rate(
    table: NDArray[np.float64], rates: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.str_], NDArray[np.float64]]:
    """Return one offer for each speed, with the least price of each day: enough where moves are free."""
    distinct = np.unique(rates[rates > 0])
    least = np.column_stack([np.fmin.reduce(table[:, rates == rate], axis=1) for rate in distinct])
    return least, np.full(len(distinct), ""), distinct


def _pareto(fronts: list[Front]) -> Front:
    """Return the pairs that no other beats: more work needs more dollars."""
    pairs = np.concatenate(fronts)
    if len(pairs) < 2:
        return pairs
    pairs = pairs[np.lexsort((pairs[:, 1], -pairs[:, 0]))]
    min_before = np.minimum.accumulate(pairs[:, 1])
    kept = np.concatenate([[True], pairs[1:, 1] < min_before[:-1]])
    front: Front = pairs[kept][::-1]
    return front
