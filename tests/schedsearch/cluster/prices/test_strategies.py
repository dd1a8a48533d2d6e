"""Strategies on made-up prices: choices and costs, computed by hand."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_prices import AZURE, AZURE_TWO, FIRST, FOUR, SLOW, ZONE_A, ZONE_B, Prices, market_of

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.prices.days import PriceConditions, Quote, daily_prices
from schedsearch.cluster.prices.study import BASELINE, LADDER, MULTI_CLOUD, JobCourse, Study, choices, run

SPEED = {"v100": 1.0, "k80": 0.25}
STANDING = PriceConditions(carry_forward=True, rank_per_gpu=True)


def run_of(
    name: str, prices: Prices, days: float, conditions: PriceConditions | None = None, start: int = 0
) -> JobCourse:
    """Return a run of as many days on a V100, up to the last day that has a price."""
    conditions = conditions or PriceConditions()
    (strategy,) = [strategy for strategy in LADDER if strategy.name == name]
    market = market_of(prices)
    table = daily_prices(market, market[0].time.date(), conditions)
    speeds = np.array([SPEED[offer.gpu_type] for offer in table.offers])
    chosen = choices(strategy, table, speeds, "v100")
    return run(strategy, chosen, table, speeds, start, days * 86400, conditions)


def test_the_baseline_stays_in_the_cheapest_zone_and_follows_its_price() -> None:
    prices = {ZONE_A: [1.0, 1.0, 1.0], ZONE_B: [0.9, 2.0, 3.0]}
    assert run_of("baseline", prices, 2.5) == JobCourse(24 * (0.9 + 2.0) + 12 * 3.0, 60.0, 0)


def test_of_several_prices_of_a_day_the_lowest_is_chosen_and_the_last_is_followed() -> None:
    """It is charged as it was chosen, also on the next day, on which there is none."""
    times = [(0, 9, 0.5), (0, 15, 1.0), (2, 9, 4.0), (2, 15, 2.0)]
    quotes = [
        Quote(FIRST + timedelta(days=day, hours=hour - 12), ZONE_A, dollars) for day, hour, dollars in times
    ]
    for conditions, paid in ((PriceConditions(), 0.5 + 0.5 + 2.0), (STANDING, 1.0 + 1.0 + 2.0)):
        table = daily_prices(quotes[::-1], quotes[-1].time.date(), conditions)
        chosen = choices(BASELINE, table, np.ones(1), "v100")
        course = run(BASELINE, chosen, table, np.ones(1), 0, 3 * 86400.0, conditions)
        assert course.dollars == pytest.approx(24 * paid)


def test_after_the_last_day_the_last_price_stays() -> None:
    assert run_of("baseline", {ZONE_A: [1.0, 2.0]}, 10).dollars == pytest.approx(24 + 9 * 24 * 2.0)


def test_only_prices_of_the_very_day_are_chosen_unless_they_are_carried_forward() -> None:
    prices = {ZONE_A: [0.5, None], ZONE_B: [0.9, 0.8]}
    assert run_of("baseline", prices, 1, start=1).dollars == pytest.approx(24 * 0.8)
    assert run_of("baseline", prices, 1, STANDING, start=1).dollars == pytest.approx(24 * 0.5)


def test_a_slow_gpu_is_taken_where_a_step_is_cheaper_on_it() -> None:
    cheap, dear = {ZONE_A: [1.0], SLOW: [0.2]}, {ZONE_A: [1.0], SLOW: [0.3]}
    assert run_of("gpu_type", cheap, 1) == pytest.approx(JobCourse(4 * 24 * 0.2, 96.0, 0))
    assert run_of("gpu_type", dear, 1) == JobCourse(24.0, 24.0, 0)
    assert run_of("baseline", cheap, 1) == JobCourse(24.0, 24.0, 0)


def test_a_gpu_of_a_larger_instance_is_paid_for_alone_unless_the_whole_is() -> None:
    prices = {ZONE_A: [1.0], FOUR: [2.0]}
    assert run_of("packed", prices, 1).dollars == pytest.approx(24 * 0.5)
    assert run_of("gpu_type", prices, 1).dollars == pytest.approx(24.0)
    assert run_of("packed", prices, 1, PriceConditions(whole_instance=True)).dollars == pytest.approx(24.0)


def test_azures_instances_are_ranked_by_the_whole_price_unless_told_otherwise() -> None:
    prices = {ZONE_A: [0.9], AZURE: [0.8], AZURE_TWO: [1.2]}
    assert run_of("multi_cloud", prices, 1).dollars == pytest.approx(24 * 0.8)
    per_gpu = PriceConditions(rank_per_gpu=True)
    assert run_of("multi_cloud", prices, 1, per_gpu).dollars == pytest.approx(24 * 0.6)
    assert run_of("packed", prices, 1, per_gpu).dollars == pytest.approx(24 * 0.9)


MOVING: Prices = {ZONE_A: [1.0, 3.0, 3.0], AZURE: [2.0, 1.0, 1.0]}


def test_only_dynamic_moves() -> None:
    assert run_of("multi_cloud", MOVING, 2).dollars == pytest.approx(24 * 4.0)
    assert run_of("preemption", MOVING, 2) == JobCourse(24 * 2.0, 48.0, 1)


def test_a_move_costs_a_restart_and_egress() -> None:
    conditions = PriceConditions(restart_s=3600, egress_dollars=5)
    assert run_of("preemption", MOVING, 2, conditions) == pytest.approx(JobCourse(24.0 + 5 + 25.0, 49.0, 1))
    within = {ZONE_A: [1.0, 3.0, 3.0], ZONE_B: [2.0, 1.0, 1.0]}
    assert run_of("preemption", within, 2, conditions).dollars == pytest.approx(49.0), "no egress within AWS"


def test_a_preempted_job_takes_longer() -> None:
    conditions = PriceConditions(checkpoint_s=3600.0)
    assert run_of("baseline", {ZONE_A: [1.0]}, 1, conditions) == pytest.approx(JobCourse(48.0, 48.0, 0))


def test_an_equal_offer_is_no_reason_to_move() -> None:
    prices = {ZONE_A: [2.0, 1.0, 1.0], ZONE_B: [1.0, 1.0, 1.0]}
    assert run_of("preemption", prices, 3).moves == 0


def test_a_day_without_prices_is_one_to_stay() -> None:
    assert run_of("preemption", {ZONE_A: [1.0, None, 2.0]}, 3) == JobCourse(24 * 4.0, 72.0, 0)


def test_a_greedy_choice_can_cost_more_than_staying() -> None:
    """Dynamic takes the slow GPU, on which a step is cheaper today, and is not done when all prices rise.

    So "dynamic is never dearer than static" holds of one speed, or of who knows prices ahead.
    """
    prices = {ZONE_A: [1.0, 10.0], SLOW: [0.24, 10.0]}
    assert run_of("baseline", prices, 1).dollars == pytest.approx(24.0)
    assert run_of("preemption", prices, 1).dollars > 100.0


dollars = st.floats(0.1, 10.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(dollars, dollars, dollars), min_size=2, max_size=8), st.floats(0.2, 9.0))
def test_moving_free_of_charge_is_never_dearer_than_staying(
    rows: list[tuple[float, ...]], days: float
) -> None:
    """Check C1: for offers of one speed, against every one that a job could stay with."""
    offers = (ZONE_A, ZONE_B, AZURE)
    prices = {offer: [row[i] for row in rows] for i, offer in enumerate(offers)}
    dynamic = run_of("preemption", prices, days, STANDING).dollars
    for offer in offers:
        alone: Prices = {offer: prices[offer]}
        assert dynamic <= run_of("multi_cloud", alone, days, STANDING).dollars * (1 + 1e-12)


def test_strategies_that_need_another_cloud_are_left_out() -> None:
    study = Study(market_of({ZONE_A: [1.0]}), {"net": SPEED}, starts=(0, 1))
    assert [strategy.name for strategy in study.strategies] == ["baseline", "gpu_type", "packed"]
    both = Study(market_of({ZONE_A: [1.0], AZURE: [1.0]}), {"net": SPEED}, starts=(0, 1))
    assert MULTI_CLOUD in both.strategies


def test_reductions_are_of_mean_costs() -> None:
    """Two start days: 24 + 48 dollars of the baseline, 24 + 24 of the strategy."""
    market = market_of({ZONE_A: [1.0, 2.0], AZURE: [1.0, 1.0]})
    study = Study(market, {"net": SPEED}, starts=(0, 2))
    assert study.first_and_last_start == (FIRST.date(), FIRST.date().replace(day=2))
    ratios = {row.strategy: row.reduction for row in study.reductions([1.0])}
    assert ratios["baseline"] == ratios["packed"] == 1.0
    assert ratios["preemption"] == pytest.approx(72 / 48)


def test_what_a_study_cannot_do_is_a_line() -> None:
    with pytest.raises(ClusterError, match="no instance of AWS has one GPU of its type; add one"):
        Study(market_of({SLOW: [1.0]}), {"net": SPEED}, starts=(0, 1))
