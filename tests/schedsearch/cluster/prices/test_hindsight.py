"""The bound: what brute force finds on small cases, and no strategy beats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_prices import AZURE, SLOW, ZONE_A, ZONE_B, Prices, market_of

from schedsearch.cluster.prices.days import DailyPrices, PriceConditions, daily_prices
from schedsearch.cluster.prices.hindsight import min_dollars
from schedsearch.cluster.prices.study import HINDSIGHT, Study

OFFERS = (ZONE_A, ZONE_B, SLOW, AZURE)
SPEED = {"v100": 1.0, "k80": 0.4}

dollars = st.one_of(st.none(), st.floats(0.1, 10.0))
rows = st.lists(st.tuples(st.floats(0.1, 10.0), dollars, dollars, dollars), min_size=1, max_size=5)
conditions = st.builds(
    PriceConditions,
    carry_forward=st.booleans(),
    rank_per_gpu=st.booleans(),
    restart_s=st.sampled_from([0.0, 7200.0]),
    egress_dollars=st.sampled_from([0.0, 3.0]),
    preemptions_per_day=st.sampled_from([0.0, 4.0]),
)


def prices_of(table: list[tuple[float | None, ...]]) -> Prices:
    return {offer: [row[i] for row in table] for i, offer in enumerate(OFFERS)}


def table_of(prices: Prices, under: PriceConditions) -> DailyPrices:
    market = market_of(prices)
    return daily_prices(market, market[0].time.date(), under)


def of_path(
    path: tuple[int, ...], table: DailyPrices, speeds: list[float], steps: float, under: PriceConditions
) -> float:
    """Return what a job costs that is on a given offer each day; infinite where one has no price yet."""
    paid, share = 0.0, under.useful_share
    for day, offer in enumerate(path):
        price, lost_h = table.least[day, offer], 0.0
        if np.isnan(price):
            return np.inf
        if day and path[day - 1] != offer:
            lost_h = under.restart_s / 3600
            if table.offers[path[day - 1]].cloud != table.offers[offer].cloud:
                paid += under.egress_dollars
        hours = lost_h + steps / (3600 * speeds[offer] * share)
        if hours <= 24 or day == len(path) - 1:
            return float(paid + hours * price)
        paid, steps = paid + 24 * price, steps - (24 - lost_h) * 3600 * speeds[offer] * share
    raise AssertionError("the last day has no end")


@settings(max_examples=30, deadline=None)
@given(rows, st.floats(0.2, 6.0), conditions)
def test_it_is_the_best_of_all_paths(
    table: list[tuple[float | None, ...]], days: float, under: PriceConditions
) -> None:
    prices = table_of(prices_of(table), under)
    speeds, steps = [SPEED[offer.gpu_type] for offer in prices.offers], days * 86400
    paths = itertools.product(range(len(prices.offers)), repeat=prices.num_days)
    least = min(of_path(path, prices, speeds, steps, under) for path in paths)
    assert min_dollars(prices, np.array(speeds), 0, steps, under) == pytest.approx(least)


@settings(max_examples=30, deadline=None)
@given(rows, st.floats(0.2, 6.0), conditions)
def test_no_strategy_beats_it(
    table: list[tuple[float | None, ...]], days: float, under: PriceConditions
) -> None:
    market = market_of(prices_of(table))
    found = list(Study(market, {"net": SPEED}, under, starts=(0, 3)).reductions([days], hindsight=True))
    (bound,) = [each.mean_dollars for each in found if each.strategy == HINDSIGHT]
    assert all(bound <= each.mean_dollars * (1 + 1e-9) for each in found)
