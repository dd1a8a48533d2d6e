"""The few plans of a frontier among which a cluster's policy chooses: its convex hull, thinned.

A policy mixes plans over time, and pauses, so only the lower hull of speed and power matters to it. An
operating point is a plan run again and again; which one it is, its speed tells: `plan_of`. The module knows
neither models nor clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.throughputs import JobOperatingPoint
from schedsearch.energy import FrequencyPlan, Frontier


@dataclass(frozen=True)
class FrontierPoints:
    """Operating points of a frontier.

    Attributes:
        points: The fastest first; an iteration is a step.
        loss: The most by which their power, mixed over time, is above that of the whole frontier at equal
            speed, as a share of it.
    """

    points: tuple[JobOperatingPoint, ...]
    loss: float


def frontier_points(frontier: Frontier, max_points: int, idle_power_w: float = 0.0) -> FrontierPoints:
    """Return the operating points of a frontier that lose least of it.

    Plans that are slower than the one of least energy per step, above idle power, are left out: to run that
    one and to pause takes less of everything.

    Args:
        frontier: Frontier of an iteration that follows the one before at once.
        max_points: How many may be kept; the fastest always is.
        idle_power_w: Power of one GPU without a job.

    Raises:
        ClusterError: `max_points` is below 1.
    """
    if max_points < 1:
        raise ClusterError(f"max_points: {max_points} is not at least 1; give 1 or more")
    pause = JobOperatingPoint(0.0, idle_power_w * frontier.all_gpus if idle_power_w else 0.0)
    hull = _lower_hull([operating_point(plan) for plan in frontier.plans], pause)
    kept, loss = _thinned([*hull, pause], max_points + 1)
    return FrontierPoints(tuple(kept[:-1]), loss)


def operating_point(plan: FrequencyPlan) -> JobOperatingPoint:
    """Return a plan that is run again and again: its iterations per second, its power and its mean clock."""
    clocks = [clock for of_block in plan.clock_mhz.values() for clock in of_block]
    mean_mhz = round(sum(clocks) / len(clocks)) if clocks else 0
    return JobOperatingPoint(1e3 / plan.time_ms, plan.energy_mj / plan.time_ms, mean_mhz)


def plan_of(frontier: Frontier, steps_per_s: float) -> FrequencyPlan:
    """Return the plan that an operating point stands for: the clock of every block.

    Raises:
        EnergyError: It is faster than the frontier.
    """
    return frontier.at(1e3 / steps_per_s)


def _lower_hull(points: Sequence[JobOperatingPoint], pause: JobOperatingPoint) -> list[JobOperatingPoint]:
    """Return those on the lower convex hull of speed and power that begins at the pause, fastest first."""
    fastest = max(point.steps_per_s for point in points)
    kept = [pause]
    for point in sorted(points, key=lambda point: (point.steps_per_s, -point.power_w)):
        while len(kept) > 1 and _slope(kept[-2], point) <= _slope(kept[-2], kept[-1]):
            kept.pop()
        kept.append(point)
    assert kept[-1].steps_per_s == fastest, "the fastest is an end of the hull"
    return kept[:0:-1]


def _slope(slow: JobOperatingPoint, fast: JobOperatingPoint) -> float:
    more = fast.steps_per_s - slow.steps_per_s
    return (fast.power_w - slow.power_w) / more if more > 0 else -np.inf


def _thinned(points: Sequence[JobOperatingPoint], most: int) -> tuple[list[JobOperatingPoint], float]:
    """Return some of the points of a hull, both ends among them, and what is lost at most.

    By dynamic programming over the last point kept: the largest loss between neighbours is as small as can
    be. It adds no point that lowers nothing.
    """
    last = len(points) - 1
    loss = {(i, j): _loss(points[i : j + 1]) for j in range(1, last + 1) for i in range(j)}
    best: list[dict[int, tuple[float, tuple[int, ...]]]] = [{0: (0.0, (0,))}]
    for _ in range(min(most, last + 1) - 1):
        before = best[-1]
        best.append(
            {
                j: min((max(found, loss[i, j]), (*path, j)) for i, (found, path) in before.items() if i < j)
                for j in range(1, last + 1)
                if any(i < j for i in before)
            }
        )
    least, path = min((ends[last] for ends in best if last in ends), key=lambda end: (end[0], len(end[1])))
    return [points[i] for i in path], least


def _loss(points: Sequence[JobOperatingPoint]) -> float:
    """Return the most by which a line between the ends is above the points between, as a share of these."""
    fast, slow = points[0], points[-1]
    return max(
        (
            (slow.power_w + _slope(slow, fast) * (point.steps_per_s - slow.steps_per_s)) / point.power_w - 1
            for point in points[1:-1]
        ),
        default=0.0,
    )
