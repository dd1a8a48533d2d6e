"""Operating points of a frontier: its hull, thinned with the least loss."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.planned_jobs.frontier_points import frontier_points, plan_of
from schedsearch.cluster.throughputs import JobOperatingPoint
from schedsearch.energy import FrequencyPlan, Frontier


def frontier_of(*times_and_powers: tuple[float, float]) -> Frontier:
    """Return a frontier of two GPUs from the time in ms and the power in W of each plan."""
    plans = tuple(FrequencyPlan({}, time, time * power, 0.0) for time, power in times_and_powers)
    return Frontier(plans, plans[0], 50.0, 2)


def test_a_plan_above_the_line_of_its_neighbours_is_left_out() -> None:
    """The line from 10 steps/s at 900 W to 5 at 300 W has 660 W at 8, below 700 W. And 2 at 200 W is no use:
    5 at 300 W and pauses make 2 for 120 W."""
    found = frontier_points(frontier_of((100, 900), (125, 700), (200, 300), (500, 200)), 4)
    assert found.points == (JobOperatingPoint(10.0, 900.0), JobOperatingPoint(5.0, 300.0))
    assert found.loss == 0.0


def test_while_pauses_draw_power_too_slower_plans_pay() -> None:
    found = frontier_points(frontier_of((100, 900), (200, 300), (500, 200)), 4, idle_power_w=80.0)
    assert [point.steps_per_s for point in found.points] == [10.0, 5.0, 2.0]


def test_what_is_lost_is_said() -> None:
    """Without 5 steps/s at 300 W, there are 450 W at this speed, half more."""
    found = frontier_points(frontier_of((100, 900), (200, 300)), 1)
    assert found.points == (JobOperatingPoint(10.0, 900.0),)
    assert found.loss == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_points_lose_less(seed: int) -> None:
    """Against every choice of points, its loss measured at many speeds."""
    rng = np.random.default_rng(seed)
    rates = np.sort(rng.uniform(1, 10, 7))[::-1]
    frontier = frontier_of(*((1e3 / rate, 100 + rate**3 + rng.uniform(0, 100)) for rate in rates))
    idle_w, most = float(rng.uniform(0, 40)), int(rng.integers(1, 6))
    found = frontier_points(frontier, most, idle_w)
    whole = frontier_points(frontier, 99, idle_w).points
    assert len(found.points) <= most
    assert found.points[0] == whole[0]
    losses = [
        _loss((whole[0], *some), whole, 2 * idle_w)
        for size in range(most)
        for some in combinations(whole[1:], size)
    ]
    assert found.loss == pytest.approx(min(losses), abs=1e-9)
    assert found.loss == pytest.approx(_loss(found.points, whole, 2 * idle_w), abs=1e-9)


def _loss(kept: tuple[JobOperatingPoint, ...], whole: tuple[JobOperatingPoint, ...], idle_w: float) -> float:
    points = sorted([(0.0, idle_w), *((point.steps_per_s, point.power_w) for point in kept)])
    rates, watts = zip(*points, strict=True)
    return max(float(np.interp(one.steps_per_s, rates, watts)) / one.power_w - 1 for one in whole)


def test_a_point_tells_its_plan() -> None:
    frontier = frontier_of((100, 900), (130, 500), (200, 300))
    for point, plan in zip(frontier_points(frontier, 9).points, frontier.plans, strict=True):
        assert plan_of(frontier, point.steps_per_s) is plan


def test_no_points_are_refused() -> None:
    with pytest.raises(ClusterError, match="max_points: 0"):
        frontier_points(frontier_of((100, 900)), 0)
