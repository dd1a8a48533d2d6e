"""The least that a job can cost if all prices were known ahead: dynamic programming over days and offers.

Of each day and offer all pairs of work done and dollars paid are kept that no other pair beats in both; a job
ends with the cheapest that does all of its work. That is exact, for any speeds, restarts and egress.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schedsearch.cluster.prices.days import HOURS, DailyPrices, PriceConditions

_DIGITS = 12
"""Digits to which the share of the work that is done is rounded, so that equal sums are equal."""

Front = NDArray[np.float64]
"""Shape (pairs, 2): share of the work that is done, rising, and dollars, rising too."""


def min_dollars(
    prices: DailyPrices, speeds: NDArray[np.float64], start: int, steps: float, conditions: PriceConditions
) -> float:
    """Return the least that a job can cost that rents one offer each day and moves only at midnight.

    No strategy of `study` is cheaper under the same conditions. Where prices are not carried forward it is a
    bound from below, as each offer then has the lowest price that any strategy may be charged.

    Args:
        prices: Prices of each day.
        speeds: Steps per second on one GPU of each offer; 0 where the job does not run.
        start: Number of the day on which it starts.
        steps: Steps that the job has to do.
        conditions: Costs of moves and preemptions.
    """
    table = np.where(speeds > 0, prices.least[start:], np.nan)
    clouds = [offer.cloud for offer in prices.offers]
    rates = speeds * 3600 * conditions.useful_share / steps
    restart_h, egress_dollars = conditions.restart_s / 3600, conditions.egress_dollars
    if not restart_h and not egress_dollars:  # moves are free: one offer of each speed is enough
        distinct = np.unique(rates[rates > 0])
        table = np.column_stack([np.fmin.reduce(table[:, rates == rate], axis=1) for rate in distinct])
        rates, clouds = distinct, [""] * len(distinct)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_work = np.where(np.isnan(table), np.inf, table / rates).min(axis=1)
    min_ahead = np.minimum.accumulate(of_work[::-1])[::-1]
    best, last, none = np.inf, len(table) - 1, np.empty((0, 2))
    fronts = [np.array([[0.0, 0.0]])] * len(rates)
    for day, dollars in enumerate(table):
        moving = _moved(fronts, clouds, egress_dollars) if day else fronts  # the first choice is no move
        ways = zip(fronts, moving, rates, dollars, strict=True)
        fronts = []
        for staying, arriving, rate, hourly in ways:
            parts = [none]
            for pairs, lost_h in ((staying, 0.0), (arriving, restart_h if day else 0.0)):
                if np.isnan(hourly):
                    continue
                needed_h = lost_h + (1 - pairs[:, 0]) / rate
                ends = (needed_h <= HOURS) | (day == last)
                best = min(best, (pairs[ends, 1] + needed_h[ends] * hourly).min(initial=np.inf))
                done = np.round(pairs[~ends, 0] + (HOURS - lost_h) * rate, _DIGITS)
                parts.append(np.column_stack([done, pairs[~ends, 1] + HOURS * hourly]))
            found = _pareto(parts)
            ahead = (1 - found[:, 0]) * min_ahead[min(day + 1, last)]
            fronts.append(found[found[:, 1] + ahead < best])
    return float(best)


def _moved(fronts: list[Front], clouds: list[str], egress_dollars: float) -> list[Front]:
    """Return the pairs with which each offer can be moved to."""
    of_cloud = {
        cloud: _pareto([front for front, other in zip(fronts, clouds, strict=True) if other == cloud])
        for cloud in dict.fromkeys(clouds)
    }
    arriving = {
        cloud: _pareto(
            [pairs + [0.0, egress_dollars * (other != cloud)] for other, pairs in of_cloud.items()]
        )
        for cloud in of_cloud
    }
    return [arriving[cloud] for cloud in clouds]


def _pareto(fronts: list[Front]) -> Front:
    """Return the pairs that no other beats: more work needs more dollars."""
    pairs = np.concatenate(fronts)
    pairs = pairs[np.lexsort((pairs[:, 1], -pairs[:, 0]))]
    least_before = np.minimum.accumulate(np.append(np.inf, pairs[:, 1]))[:-1]
    front: Front = pairs[pairs[:, 1] < least_before][::-1]
    return front
