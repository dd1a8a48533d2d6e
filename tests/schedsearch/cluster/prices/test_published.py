"""Effect of each trap in the published table's rules; a command makes the table's values."""

from __future__ import annotations

import csv
from functools import cache

import pytest
from places import SHARED_DATA

from schedsearch.cluster.prices.days import PriceConditions
from schedsearch.cluster.prices.price_files import read_market, read_speeds
from schedsearch.cluster.prices.study import Study

PRICES = SHARED_DATA / "spot_prices"

pytestmark = pytest.mark.skipif(not PRICES.is_dir(), reason="needs the shared data")


@cache
def ours(conditions: PriceConditions) -> dict[tuple[str, float, str], float]:
    with (PRICES / "published_cost_reduction.csv").open(encoding="utf-8", newline="") as file:
        models = {row["model"] for row in csv.DictReader(file)}
    speeds = {name: row for name, row in read_speeds(PRICES / "throughputs.csv").items() if name in models}
    reductions = Study(read_market(PRICES), speeds, conditions).reductions([4, 8])
    return {(row.model, row.days, row.strategy): row.reduction for row in reductions}


def test_the_traps_of_the_rules_are_worth_little() -> None:
    """Carried-forward prices and a ranking of Azure by the GPU: no value moves by half a hundredth part."""
    honest = ours(PriceConditions(carry_forward=True, rank_per_gpu=True))
    changes = [abs(honest[case] / value - 1) for case, value in ours(PriceConditions()).items()]
    assert 0 < max(changes) < 0.005


def test_restarts_cost_little_and_whole_instances_much() -> None:
    free, slow = ours(PriceConditions()), ours(PriceConditions(restart_s=1800))
    whole = ours(PriceConditions(whole_instance=True))
    dynamic = [case for case in free if case[2] == "preemption"]
    assert all(0.98 < slow[case] / free[case] <= 1 for case in dynamic)
    assert all(whole[case] == whole[case[0], case[1], "gpu_type"] for case in free if case[2] == "packed")
