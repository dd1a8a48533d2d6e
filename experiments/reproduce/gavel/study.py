"""Ways to schedule the same jobs, simulated beside each other, and by what factor they differ.

A case is a workload with a seed: all ways schedule the same jobs. What is concluded is of all seeds together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

from experiments.reproduce.gavel.ideal import ideal_average_jct_s
from experiments.reproduce.gavel.options import (
    INPUTS,
    TraceOptions,
    check_jobs,
    cluster_of,
    folder_of,
    gavel_throughputs,
    gavel_types,
    seeded,
)
from experiments.reproduce.gavel.spread import FactorSpread
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.rows import numbers, rows_with
from schedsearch.cluster.generator import GeneratorOptions, generated
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.figures.bars import BarPanel, draw_bars

_HOUR_S = 3600.0

BAND = 0.2
"""How far a factor may be from the dissertation's, as a part of it, where it is said to hold."""

JCT, FINISH_TIME_RATIO = "average_jct_h", "average_finish_time_ratio"


def _average_jct_h(outcome: Outcome, *, is_high: bool) -> float:
    """Return the average completion time of the jobs of high or low priority that count; nan of none."""
    jobs = [one for one in outcome.measured if (one.job.weight > 1) == is_high and one.is_done]
    return fmean(one.jct_s for one in jobs) / _HOUR_S if jobs else math.nan


METRICS: Mapping[str, Callable[[Outcome], float]] = {
    JCT: lambda outcome: outcome.figures["average_jct_s"] / _HOUR_S,
    "makespan_h": lambda outcome: outcome.figures["makespan_s"] / _HOUR_S,
    FINISH_TIME_RATIO: lambda outcome: outcome.figures["average_finish_time_ratio"],
    "dollars": lambda outcome: outcome.figures["dollars"],
    "high_priority_jct_h": lambda outcome: _average_jct_h(outcome, is_high=True),
    "low_priority_jct_h": lambda outcome: _average_jct_h(outcome, is_high=False),
    "slo_violation_share": lambda outcome: outcome.figures["slo_violation_share"],
}
"""What is measured of a simulation, by name."""


@dataclass(frozen=True)
class GavelWorkload:
    """Jobs and the cluster that they come to.

    Attributes:
        name: Name of its cases.
        title: In words.
        jobs_per_hour: On average; 0 where all are there from the start.
        is_steady: Only the last fifth of the jobs counts, and jobs go on coming until these are done;
            otherwise all count, and no others come.
        gpus_per_type: Number of V100, P100 and K80 each.
        generator: What is drawn besides; its seed, load and number of jobs are those of the case.
        types: Types of jobs; all of Gavel's where none are given.
    """

    name: str
    title: str
    jobs_per_hour: float
    is_steady: bool = True
    gpus_per_type: int = 36
    generator: GeneratorOptions = field(default_factory=GeneratorOptions)
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class SchedulingWay:
    """How jobs are scheduled.

    Attributes:
        policy: Its name.
        round_s: Length of a round; 0 where every job gets exactly what is computed for it.
        options: Options of the policy.
    """

    policy: str
    round_s: float = 360.0
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Factor:
    """How many times as much one way takes as another.

    Attributes:
        metric: One of `METRICS`.
        more: The way that should take more.
        less: The way that should take less.
        published: What the dissertation has; None where it says only that it is so.
        at_most: The most by which the two are said to be alike; None where they are said to differ.
    """

    metric: str
    more: str
    less: str
    published: float | None = None
    at_most: float | None = None

    @property
    def label(self) -> str:
        """Return what it is called in rows."""
        return f"{self.more} / {self.less}"

    @property
    def says(self) -> str:
        """Return what the dissertation concludes, in words."""
        which = f"{self.metric} of {self.more}"
        if self.at_most is not None:
            return f"{which} is at most {self.at_most:g} times that of {self.less}"
        within = f" (within {BAND:.0%})"
        beside = f", {self.published:g} times in the dissertation{within}" if self.published else ""
        return f"{which} is above that of {self.less}{beside}"

    def holds(self, spread: FactorSpread) -> bool:
        """Return whether it is so: of several seeds, by the whole interval of the mean.

        Where the dissertation gives a factor, the mean is within `BAND` of it, too.
        """
        if self.at_most is not None:
            return spread.mean <= self.at_most
        is_more = (spread.mean if spread.count == 1 else spread.low) > 1
        return is_more and (self.published is None or abs(spread.mean / self.published - 1) <= BAND)


@dataclass(frozen=True)
class GavelStudy:
    """One workload, ways to schedule it, and what is compared.

    Attributes:
        workload: The jobs.
        ways: Ways by name.
        metrics: Metrics of each way, of `METRICS`.
        factors: Between ways.
    """

    workload: GavelWorkload
    ways: Mapping[str, SchedulingWay]
    metrics: tuple[str, ...]
    factors: tuple[Factor, ...]


def study_item(
    name: str,
    section: str,
    title: str,
    studies: Sequence[GavelStudy],
    *,
    small: TraceOptions,
    because: str,
    supported_by: str = "",
) -> Item:
    """Return the item of studies.

    Args:
        name: Name of the item.
        section: Section of the dissertation, as ``"Fig. 5.9"``.
        title: What it shows.
        studies: Studies, each with a workload of its own name.
        small: Options with which it takes seconds; their type is that of the item's options.
        because: What differs from the dissertation.
        supported_by: Test that supports it.
    """
    by_name = {study.workload.name: study for study in studies}

    def cases(options: TraceOptions) -> dict[str, tuple[GavelStudy, int]]:
        check_jobs(options)
        seeds = seeded(options, tuple(by_name))
        return {case: (by_name[workload], seed) for case, (workload, seed) in seeds.items()}

    return Item(
        name,
        "Narayanan's dissertation",
        section,
        title,
        Claim.TREND,
        cases,
        _rows,
        partial(_trends, studies),
        partial(_draw, studies),
        small=small,
        inputs=INPUTS,
        because=because,
        supported_by=supported_by,
    )


def measured(
    workload: GavelWorkload, way: SchedulingWay, metrics: Sequence[str], options: TraceOptions, seed: int
) -> dict[str, float]:
    """Return what a way does with the jobs of a workload.

    Where jobs come all the time they go on coming until the last fifth of those asked for is done, and only
    that fifth counts, as the last 1000 of 5000 do in the dissertation (Sec. 5.7.1).

    Args:
        workload: Jobs and cluster.
        way: Policy and rounds.
        metrics: Of `METRICS`; of a way without rounds only `JCT` is there.
        options: Data and number of jobs.
        seed: Seed of the jobs and of the rounds.
    """
    folder, jobs = folder_of(options), options.jobs
    throughputs, types = gavel_throughputs(folder), gavel_types(folder)
    generator = replace(
        workload.generator,
        seed=seed,
        lam_s=_HOUR_S / workload.jobs_per_hour if workload.jobs_per_hour else 0.0,
        num_jobs=None if workload.is_steady else jobs,
    )
    trace = generated({name: types[name] for name in workload.types or types}, throughputs, generator)
    cluster, policy = cluster_of(workload.gpus_per_type), policy_of(way.policy, **way.options)
    window = (jobs - jobs // 5, jobs) if workload.is_steady else (0, jobs)
    if way.round_s == 0:
        return {JCT: ideal_average_jct_s(trace, cluster, throughputs, policy, window) / _HOUR_S}
    simulation = SimulationOptions(round_s=way.round_s, seed=seed, skips_to_arrivals=True, window=window)
    outcome = simulate_cluster(trace, cluster, throughputs, policy, simulation)
    return {metric: METRICS[metric](outcome) for metric in metrics}


def _rows(options: TraceOptions, case: tuple[GavelStudy, int]) -> Iterator[Row]:
    study, seed = case
    values = {
        (name, metric): value
        for name, way in study.ways.items()
        for metric, value in measured(study.workload, way, study.metrics, options, seed).items()
    }

    def row(label: str, metric: str, value: float, published: float | None = None) -> Row:
        none = math.isnan(value)
        note = "no such job is among those that count" if none else ""
        ours = None if none else value
        return Row(label, metric, ours, published, 1, note=note, series=study.workload.name, at=seed)

    yield from (row(name, metric, value) for (name, metric), value in values.items())
    for factor in study.factors:
        ratio = values[factor.more, factor.metric] / values[factor.less, factor.metric]
        yield row(factor.label, f"{factor.metric}_factor", ratio, factor.published)


def _spreads(
    studies: Sequence[GavelStudy], rows: Sequence[Row]
) -> Iterator[tuple[GavelStudy, Factor, FactorSpread]]:
    """Yield each factor over all seeds that were made."""
    for study in studies:
        own = rows_with(rows, series=study.workload.name)
        for factor in study.factors:
            found = numbers(rows_with(own, label=factor.label, metric=f"{factor.metric}_factor"))
            if found:
                yield study, factor, FactorSpread.of(found)


def _trends(studies: Sequence[GavelStudy], rows: Sequence[Row]) -> Iterator[Trend]:
    for study, factor, spread in _spreads(studies, rows):
        yield Trend(f"{study.workload.title}: {factor.says}", factor.holds(spread), f"{spread} times")


def _draw(studies: Sequence[GavelStudy], rows: Sequence[Row]) -> Any:
    groups: dict[str, dict[str, float | None]] = {
        f"{study.workload.title},\n{factor.label}": {"ours": spread.mean, "dissertation": factor.published}
        for study, factor, spread in _spreads(studies, rows)
    }
    return draw_bars([BarPanel("How many times as much", groups)], "factor", width=7.0)
