"""The share of the time that is of use: against runs that are played at random, and in its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from schedsearch.cluster.prices.days import PriceConditions


def played_share(conditions: PriceConditions, stretches: int, seed: int) -> float:
    """Return the share of the time of use in one run, with exponential times between preemptions."""
    random = np.random.default_rng(seed)
    mean_s = 86400 / conditions.preemptions_per_day
    time_s, left_s = 0.0, random.exponential(mean_s)

    def passes(duration_s: float) -> bool:
        nonlocal time_s, left_s
        if left_s > duration_s:
            time_s, left_s = time_s + duration_s, left_s - duration_s
            return True
        time_s, left_s = time_s + left_s, random.exponential(mean_s)
        return False

    for _ in range(stretches):
        while not passes(conditions.checkpoint_every_s + conditions.checkpoint_s):
            while not passes(conditions.restart_s):
                pass
    return stretches * conditions.checkpoint_every_s / time_s


@pytest.mark.parametrize(
    "conditions",
    [
        PriceConditions(preemptions_per_day=12, restart_s=600, checkpoint_s=60),
        PriceConditions(preemptions_per_day=24, restart_s=3600, checkpoint_every_s=1800),
    ],
)
def test_the_share_is_that_of_a_long_run(conditions: PriceConditions) -> None:
    assert played_share(conditions, 20_000, seed=3) == pytest.approx(conditions.useful_share, rel=0.015)


def test_without_disturbances_all_time_is_of_use() -> None:
    assert PriceConditions().useful_share == 1.0
    assert PriceConditions(restart_s=600).useful_share == 1.0, "a restart comes after a move or a preemption"
    assert PriceConditions(checkpoint_s=360).useful_share == pytest.approx(10 / 11)
    assert PriceConditions(preemptions_per_day=1e-9).useful_share == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [100.0, 1e4, math.inf])
def test_too_many_preemptions_leave_nothing(rate: float) -> None:
    assert not PriceConditions(preemptions_per_day=rate, restart_s=3600).makes_progress
