"""The order of quotes and of offers, by which equal ones are taken."""

from __future__ import annotations

from made_up_prices import AZURE, FIRST, FOUR, SLOW, ZONE_A, market_of

from schedsearch.cluster.prices.market import Market, Quote, in_order


def test_of_equal_times_the_first_that_is_given_counts() -> None:
    market = Market.of([Quote(FIRST, ZONE_A, 3.0), Quote(FIRST, ZONE_A, 2.0)])
    assert market.quotes[0].dollars_per_hour == 3.0


def test_offers_are_in_the_order_in_which_equal_ones_are_taken() -> None:
    assert in_order(dict.fromkeys([AZURE, FOUR, ZONE_A, SLOW])) == [SLOW, ZONE_A, FOUR, AZURE]
    assert market_of({AZURE: [1.0], FOUR: [1.0], ZONE_A: [1.0]}).clouds == ("aws", "azure")
