"""Policies side by side: the average completion time at each load, with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.cluster.running import SimulationPoint

CONFIDENCE = 0.95
"""Of the intervals: Student's, over the averages of the seeds."""


@dataclass(frozen=True)
class LoadRow:
    """Completion times of a policy at one load, in seconds; None where they are not known.

    Attributes:
        policy: Its name.
        jobs_per_hour: The load; None where jobs do not come at random times.
        seeds: How many seeds it was simulated with.
        average_jct_s: Mean over the seeds; None where no job of a seed is done.
        low_s, high_s: Confidence interval of the mean; None of fewer than two seeds.
        baseline: The first policy, with which the others are compared.
        speedup: The baseline's average at this load divided by this one: above 1 this one is faster.
    """

    policy: str
    jobs_per_hour: float | None
    seeds: int
    average_jct_s: float | None
    low_s: float | None
    high_s: float | None
    baseline: str
    speedup: float | None

    @property
    def name(self) -> str:
        """The policy and the load."""
        return str(SimulationPoint(self.policy, self.jobs_per_hour))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the confidence interval of the mean of at least two values, by Student's distribution.

    >>> low, high = interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    from scipy.special import stdtrit  # which one simulation does not wait for

    number, mean = len(values), statistics.fmean(values)
    quantile = float(stdtrit(number - 1, (1 + CONFIDENCE) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(number)
    return mean - half, mean + half


def load_rows(jcts_s: Mapping[SimulationPoint, Sequence[float]]) -> list[LoadRow]:
    """Return a row for each policy and load, beside the first policy at the same load.

    Args:
        jcts_s: Completion times of each simulation, in seconds; of the first policy at each load.
    """
    averages: dict[tuple[str, float | None], list[float]] = {}
    for point, values in jcts_s.items():
        average = statistics.fmean(values) if values else math.nan
        averages.setdefault((point.policy, point.jobs_per_hour), []).append(average)
    means = {key: statistics.fmean(values) for key, values in averages.items()}
    rows = []
    for (policy, load), values in averages.items():
        mean, baseline = means[policy, load], next(iter(averages))[0]
        is_known, first = math.isfinite(mean), means[baseline, load]
        low_s, high_s = interval(values) if is_known and len(values) > 1 else (None, None)
        speedup = first / mean if is_known and mean and math.isfinite(first) else None
        rows.append(
            LoadRow(policy, load, len(values), mean if is_known else None, low_s, high_s, baseline, speedup)
        )
    return rows
