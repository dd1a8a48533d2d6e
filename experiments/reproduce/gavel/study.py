"""Policies that schedule the same jobs, simulated beside each other, and the factors between them.

A case is a study with a seed: all policies schedule the same jobs. Conclusions are of all seeds together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from experiments.reproduce.gavel.options import (
    THROUGHPUTS,
    TraceOptions,
    cluster_of,
    file_of,
    gavel_throughputs,
    gavel_types,
    seeded,
)
from experiments.reproduce.item import Item, Row, Trend, described
from experiments.reproduce.rows import numbers, rows_with
from schedsearch.cluster.generator import GeneratorOptions, generated
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.figures.bars import BarPanel, draw_bars

_HOUR_S, _ROUND_S = 3600.0, 360.0

BAND = 0.2
"""Largest difference of a factor from the dissertation's, as a part of it, where it is said to hold."""

JCT, FINISH_TIME_RATIO = "average_jct_h", "average_finish_time_ratio"


def metric_of(outcome: Outcome, metric: str) -> float:
    """Return a figure of a simulation; times in hours end with ``_h``."""
    if metric.endswith("_h"):
        return outcome.figures[f"{metric.removesuffix('_h')}_s"] / _HOUR_S
    return outcome.figures[metric]


_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Quantiles of Student's t for a two-sided interval of 95 %, by degrees of freedom; 1.96 for more."""


@dataclass(frozen=True)
class FactorSpread:
    """A factor over several seeds.

    Attributes:
        mean: Geometric.
        low: Begin of the mean's 95 % interval, by Student's t of the logarithms; 0 for one value.
        high: Its end; infinite for one value.
        count: Values.

    >>> print(FactorSpread.of([2.0, 2.0, 2.0]))
    2.00 (95 % interval 2.00 to 2.00, 3 seeds)
    """

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> FactorSpread:
        """Return the spread of values above 0."""
        logarithms = [math.log(value) for value in values]
        mean, count = statistics.fmean(logarithms), len(values)
        if count == 1:
            return cls(values[0], 0.0, math.inf, 1)
        half = _STUDENT.get(count - 1, 1.96) * statistics.stdev(logarithms) / math.sqrt(count)
        return cls(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)

    def __str__(self) -> str:
        """Return mean and interval in words."""
        if self.count == 1:
            return f"{self.mean:.2f} (1 seed)"
        return f"{self.mean:.2f} (95 % interval {self.low:.2f} to {self.high:.2f}, {self.count} seeds)"


@dataclass(frozen=True)
class Factor:
    """A metric of one policy over another's; the dissertation's factor, where it gives one."""

    metric: str
    more: str
    less: str
    published: float | None = None

    @property
    def label(self) -> str:
        """Its name in rows."""
        return f"{self.more} / {self.less}"

    @property
    def says(self) -> str:
        """The dissertation's conclusion, in words."""
        within = f" (within {BAND:.0%})"
        beside = f", {self.published:g} times in the dissertation{within}" if self.published else ""
        return f"{self.metric} of {self.more} is above that of {self.less}{beside}"

    def holds(self, spread: FactorSpread) -> bool:
        """Return whether it is so: of several seeds, by the whole interval of the mean.

        Where the dissertation gives a factor, the mean is within `BAND` of it, too.
        """
        is_more = (spread.mean if spread.count == 1 else spread.low) > 1
        return is_more and (self.published is None or abs(spread.mean / self.published - 1) <= BAND)


@dataclass(frozen=True)
class GavelStudy:
    """Jobs, the cluster that they come to, and policies that schedule them.

    Attributes:
        name: Name of its cases.
        title: In words.
        jobs_per_hour: On average; 0 where all are there from the start.
        policies: Makers of the policies, by name.
        metrics: Metrics of each policy; see `metric_of`.
        factors: Between policies.
        is_steady: Only the last fifth of the jobs counts, and jobs go on coming until these are done, as the
            last 1000 of 5000 do in the dissertation (Sec. 5.7.1); otherwise all count, and no others come.
        gpus_per_type: Number of V100, P100 and K80 each.
        generator: Options of what is drawn; its seed, load and number of jobs are those of the case.
        types: Types of jobs; all of Gavel's where none are given.
    """

    name: str
    title: str
    jobs_per_hour: float
    policies: Mapping[str, Callable[[], Policy]]
    metrics: tuple[str, ...]
    factors: tuple[Factor, ...]
    is_steady: bool = True
    gpus_per_type: int = 36
    generator: GeneratorOptions = field(default_factory=GeneratorOptions)
    types: tuple[str, ...] = ()


def study_item(name: str, small: TraceOptions, *studies: GavelStudy) -> Item:
    """Return the item of studies, each with a name of its own; with `small` it takes seconds."""
    by_name = {study.name: study for study in studies}

    def cases(options: TraceOptions) -> dict[str, tuple[GavelStudy, int]]:
        seeds = seeded(options, tuple(by_name))
        return {case: (by_name[own], seed) for case, (own, seed) in seeds.items()}

    return described(name, cases, _rows, partial(_trends, studies), partial(_draw, studies), small)


def _measured(study: GavelStudy, policy: Policy, options: TraceOptions, seed: int) -> dict[str, float]:
    """Return a policy's metrics; jobs and rounds have the seed."""
    jobs, folder = options.jobs, file_of(options, THROUGHPUTS).parent
    throughputs, types = gavel_throughputs(folder), gavel_types(folder)
    generator = replace(
        study.generator,
        seed=seed,
        lam_s=_HOUR_S / study.jobs_per_hour if study.jobs_per_hour else 0.0,
        num_jobs=None if study.is_steady else jobs,
    )
    trace = generated({name: types[name] for name in study.types or types}, throughputs, generator)
    window = (jobs - jobs // 5, jobs) if study.is_steady else (0, jobs)
    simulation = SimulationOptions(round_s=_ROUND_S, seed=seed, skips_to_arrivals=True, window=window)
    outcome = simulate_cluster(trace, cluster_of(study.gpus_per_type), throughputs, policy, simulation)
    return {metric: metric_of(outcome, metric) for metric in study.metrics}


def _rows(options: TraceOptions, case: tuple[GavelStudy, int]) -> Iterator[Row]:
    study, seed = case
    found = {name: _measured(study, make(), options, seed) for name, make in study.policies.items()}
    for name, values in found.items():
        for metric, value in values.items():
            yield Row(name, metric, value, digits=1, series=study.name, at=seed)
    for factor in study.factors:
        ratio = found[factor.more][factor.metric] / found[factor.less][factor.metric]
        metric = f"{factor.metric}_factor"
        yield Row(factor.label, metric, ratio, factor.published, 1, series=study.name, at=seed)


def _spreads(
    studies: Sequence[GavelStudy], rows: Sequence[Row]
) -> Iterator[tuple[GavelStudy, Factor, FactorSpread]]:
    """Yield each factor over all seeds that were made."""
    for study in studies:
        own = rows_with(rows, series=study.name)
        for factor in study.factors:
            found = numbers(rows_with(own, label=factor.label, metric=f"{factor.metric}_factor"))
            if found:
                yield study, factor, FactorSpread.of(found)


def _trends(studies: Sequence[GavelStudy], rows: Sequence[Row]) -> Iterator[Trend]:
    for study, factor, spread in _spreads(studies, rows):
        yield Trend(f"{study.title}: {factor.says}", factor.holds(spread), f"{spread} times")


def _draw(studies: Sequence[GavelStudy], rows: Sequence[Row]) -> Any:
    groups: dict[str, dict[str, float | None]] = {
        f"{study.title},\n{factor.label}": {"ours": spread.mean, "dissertation": factor.published}
        for study, factor, spread in _spreads(studies, rows)
    }
    return draw_bars([BarPanel("How many times as much", groups)], "factor", width=7.0)
