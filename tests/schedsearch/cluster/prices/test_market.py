"""Prices over time: each holds until the next, and a cluster pays the least of them."""

from __future__ import annotations

import numpy as np
import pytest
from made_up_prices import AZURE, FIRST, FOUR, SLOW, ZONE_A, market_of

from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.prices.market import Market, Quote, seconds

NOON, DAY_S = seconds(FIRST), 86400.0


def test_a_price_holds_until_the_next() -> None:
    (series,) = market_of({ZONE_A: [1.0, None, 2.0]}).series
    times = NOON + np.array([-1.0, 0.0, 1.9 * DAY_S, 2 * DAY_S, 99 * DAY_S])
    assert series.at(times) == pytest.approx([np.nan, 1.0, 1.0, 2.0, 2.0], nan_ok=True)


def test_of_equal_times_the_first_that_is_given_counts() -> None:
    market = Market.of([Quote(FIRST, ZONE_A, 3.0), Quote(FIRST, ZONE_A, 2.0)])
    assert market.series[0].at(np.array([NOON])) == pytest.approx([3.0])


def test_a_cluster_pays_the_least_for_a_gpu_of_each_type() -> None:
    market = market_of({ZONE_A: [1.0, 0.9], FOUR: [2.0, 4.8], AZURE: [None, 1.1], SLOW: [None, 0.3]})
    prices = market.min_prices(NOON + DAY_S * np.arange(2))
    assert prices["v100"] == pytest.approx([0.5, 0.9])
    assert prices["k80"] == pytest.approx([np.nan, 0.3], nan_ok=True)
    now = {gpu_type: float(dollars[1]) for gpu_type, dollars in prices.items()}
    assert GpuCluster({"v100": 2, "k80": 1}, now).price_of("v100") == pytest.approx(0.9)


def test_offers_are_in_the_order_in_which_equal_ones_are_taken() -> None:
    market = market_of({AZURE: [1.0], FOUR: [1.0], ZONE_A: [1.0], SLOW: [1.0]})
    assert [series.offer for series in market.series] == [SLOW, ZONE_A, FOUR, AZURE]
    assert market.clouds == ("aws", "azure")
