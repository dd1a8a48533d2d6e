"""Policies side by side: the average completion time at each load, with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.cluster.running import SimulationPoint

CONFIDENCE = 0.95
"""Of the intervals: Student's, over the averages of the seeds."""


@dataclass(frozen=True)
class LoadRow:
    """What a policy gave at one load.

    Attributes:
        policy: Its name.
        jobs_per_hour: The load; None where jobs do not come at random times.
        averages_s: The average completion time for each seed, in seconds; of seeds without any done job nan.
        baseline: The first policy, with which the others are compared.
        ratio: The baseline's average at this load, divided by this one: above 1 this one is faster.
    """

    policy: str
    jobs_per_hour: float | None
    averages_s: tuple[float, ...]
    baseline: str = ""
    ratio: float | None = None

    @property
    def name(self) -> str:
        """Return the policy and the load."""
        return str(SimulationPoint(self.policy, self.jobs_per_hour))

    @property
    def average_jct_s(self) -> float | None:
        """Return the mean over the seeds; None where a seed has no done job."""
        return statistics.fmean(self.averages_s) if all(map(math.isfinite, self.averages_s)) else None

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Return the confidence interval of the mean; None of fewer than two seeds."""
        mean = self.average_jct_s
        if mean is None or len(self.averages_s) < 2:
            return None
        return interval(self.averages_s)


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


COLUMNS = ("policy", "jobs_per_hour", "seeds", "average_jct_s", "low_s", "high_s", "baseline", "speedup")
"""Of the table of a comparison."""


def load_rows(jcts_s: Mapping[SimulationPoint, Sequence[float]]) -> list[LoadRow]:
    """Return a row for each policy and load, beside the first policy at the same load.

    Args:
        jcts_s: Completion times of each simulation, in seconds; of the first policy at each load.
    """
    averages: dict[tuple[str, float | None], list[float]] = {}
    for point, values in jcts_s.items():
        average = statistics.fmean(values) if values else math.nan
        averages.setdefault((point.policy, point.jobs_per_hour), []).append(average)
    rows = {key: LoadRow(*key, tuple(values)) for key, values in averages.items()}
    return [replace(row, **_beside(row, rows)) for row in rows.values()]


def _beside(row: LoadRow, rows: Mapping[tuple[str, float | None], LoadRow]) -> dict[str, Any]:
    baseline = next(iter(rows))[0]
    first = rows[baseline, row.jobs_per_hour].average_jct_s
    own = row.average_jct_s
    return {"baseline": baseline, "ratio": first / own if first is not None and own else None}


def cells(row: LoadRow) -> list[object]:
    """Return a row of the table, by `COLUMNS`; None where something is not known."""
    low_s, high_s = row.interval_s or (None, None)
    average = row.average_jct_s
    return [
        row.policy,
        row.jobs_per_hour,
        len(row.averages_s),
        average,
        low_s,
        high_s,
        row.baseline,
        row.ratio,
    ]
