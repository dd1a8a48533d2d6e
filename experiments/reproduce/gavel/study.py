"""Policies that schedule the same jobs, simulated beside each other, and the factors between them.

The options are those of every item that simulates a cluster, with the files of Gavel's data. A case is a
study with a seed: all policies schedule the same jobs. Conclusions are of all seeds together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from scipy.special import stdtrit

from experiments.reproduce.item import DataOptions, Item, Row, Trend, described
from experiments.reproduce.rows import numbers, rows_with
from placements.forms.meaning import option
from placements.forms.reading import Field
from placements.forms.texts import read_yaml
from schedsearch.cluster.generator import GeneratorOptions, generated
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.inputs.throughput_file import read_job_types, read_throughputs
from schedsearch.cluster.inputs.trace_file import read_trace
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS

THROUGHPUTS = "simulation_throughputs.json"
PHYSICAL_THROUGHPUTS = "physical_cluster_throughputs.json"
JOB_TYPES = "job_types.csv"
"""Files in the folder of Gavel's data; the last has the types from which jobs are drawn."""

DOLLARS_PER_HOUR = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
"""Google Cloud's prices of one GPU on demand, us-central1, 2020; the dissertation prints none."""


@dataclass(frozen=True)
class SeedOptions(DataOptions):
    """Options of an item with a case for each seed."""

    seeds: tuple[int, ...] = option((0, 1, 2), "seeds of what is drawn; each is a case", min=0)

    def cases(self, workloads: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Return the cases by name: each workload with each seed."""
        return {f"{workload}_seed{seed}": (workload, seed) for workload in workloads for seed in self.seeds}


@dataclass(frozen=True)
class TraceOptions(SeedOptions):
    """Options of an item that simulates a cluster; a fifth of the jobs counts."""

    jobs: int = option(5000, "number of jobs that are simulated with each seed", min=5)


@dataclass(frozen=True)
class ShorterTraceOptions(TraceOptions):
    """Options of an item with fewer jobs by default."""

    jobs: int = option(500, "number of jobs that are simulated with each seed", min=5)


gavel_throughputs = lru_cache(maxsize=2)(read_throughputs)
"""Reads Gavel's measured throughputs."""

gavel_types = lru_cache(maxsize=1)(read_job_types)
"""Reads whether each type of job may run on more than one GPU."""


def cluster_of(gpus_per_type: int) -> GpuCluster:
    """Return a cluster of as many V100s as P100s and K80s, with prices."""
    return GpuCluster(dict.fromkeys(DOLLARS_PER_HOUR, gpus_per_type), DOLLARS_PER_HOUR)


_HOUR_S = 3600.0

BAND = 0.2
"""Largest difference of a factor from the dissertation's, as a part of it, where it is said to hold."""

CASE_SEED = "of the case"
"""Seed of a policy that draws by the seed of each case."""

PHYSICAL_CLUSTER = GpuCluster({"v100": 8, "p100": 16, "k80": 24})
"""The cluster that Gavel ran on, whose traces are simulated again (Table 5.3)."""


class FactorSpread(NamedTuple):
    """A factor over several seeds.

    Attributes:
        mean: Geometric.
        low: Begin of the mean's 95 % interval, by Student's t of the logarithms; the value of a single seed.
        high: Its end.
        seeds: Number of values.

    >>> print(FactorSpread.of([2.0, 2.0, 2.0]))
    2.00 (95 % interval 2.00 to 2.00)
    """

    mean: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> FactorSpread:
        """Return the spread of values above 0."""
        logarithms, count, half = [math.log(value) for value in values], len(values), 0.0
        mean = statistics.fmean(logarithms)
        if count > 1:
            half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(logarithms) / math.sqrt(count)
        return cls(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)

    def is_near(self, published: float) -> bool:
        """Return whether the mean is within `BAND` of a published factor."""
        return abs(self.mean / published - 1) <= BAND

    def __str__(self) -> str:
        """Return mean and interval in words."""
        if self.seeds == 1:
            return f"{self.mean:.2f} (1 seed)"
        return f"{self.mean:.2f} (95 % interval {self.low:.2f} to {self.high:.2f})"


class Factor(NamedTuple):
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
    def conclusion(self) -> str:
        """The dissertation's conclusion, in words."""
        printed = f", printed {self.published:.3g}" if self.published else ""
        return f"{self.metric} of {self.more} over {self.less}: above 1{printed}"

    def holds(self, spread: FactorSpread) -> bool:
        """Return whether it is so: the whole interval of the mean, and near a published factor."""
        return spread.low > 1 and (self.published is None or spread.is_near(self.published))


@dataclass(frozen=True)
class GavelStudy:
    """Jobs, the cluster that they come to, and policies that schedule them; an entry of ``studies.yaml``.

    Attributes:
        name: Name of its cases.
        title: In words.
        policies: Arguments of `policy_of` for each policy; a seed may be `CASE_SEED`.
        metrics: Metrics of each policy; times in hours end with ``_h``.
        factors: Between policies.
        trace: File of Gavel's data with the jobs, whose throughputs are of the physical cluster; where there
            is none jobs are drawn.
        jobs_per_hour: Jobs that are drawn, on average; 0 where all are there from the start.
        is_steady: Only the last fifth of the jobs counts, and jobs go on coming until these are done, as the
            last 1000 of 5000 do in the dissertation (Sec. 5.7.1); otherwise all count, and no others come.
        gpus_per_type: GPUs of each type where jobs are drawn.
        generator: Options of what is drawn; its seed, load and number of jobs are those of the case.
        types: Types of jobs that are drawn; all of Gavel's where none are given.
        published: The dissertation's values by policy.
    """

    name: str
    title: str
    policies: Mapping[str, Mapping[Any, Any]]
    metrics: tuple[str, ...]
    factors: tuple[Factor, ...]
    trace: str = ""
    jobs_per_hour: float = 0.0
    is_steady: bool = False
    gpus_per_type: int = 36
    generator: GeneratorOptions = field(default_factory=GeneratorOptions)
    types: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def throughputs(self) -> str:
        """File of Gavel's data with the throughputs."""
        return PHYSICAL_THROUGHPUTS if self.trace else THROUGHPUTS

    def jobs(self, options: Any, throughputs: Throughputs, seed: int) -> Iterable[Job]:
        """Return the jobs in the order in which they come."""
        if self.trace:
            return read_trace(options.file(self.trace), throughputs).jobs
        types = gavel_types(options.file(JOB_TYPES))
        generator = replace(
            self.generator,
            seed=seed,
            lam_s=_HOUR_S / self.jobs_per_hour if self.jobs_per_hour else 0.0,
            num_jobs=None if self.is_steady else options.jobs,
        )
        return generated({name: types[name] for name in self.types or types}, throughputs, generator)

    def measured(self, policy: Mapping[str, Any], options: Any, seed: int) -> dict[str, float]:
        """Return a policy's metrics; jobs and rounds have the seed."""
        window = (options.jobs - options.jobs // 5, options.jobs) if self.is_steady else None
        simulation = SimulationOptions(seed=seed, skips_to_arrivals=True, window=window)
        cluster = PHYSICAL_CLUSTER if self.trace else cluster_of(self.gpus_per_type)
        throughputs = gavel_throughputs(options.file(self.throughputs))
        named: dict[str, Any] = {key: seed if it == CASE_SEED else it for key, it in policy.items()}
        jobs = self.jobs(options, throughputs, seed)
        figures = simulate_cluster(jobs, cluster, throughputs, policy_of(**named), simulation).figures
        INTERRUPTS.raise_if_seen()  # or figures would be of a part of the jobs
        return {
            metric: figures[f"{metric[:-2]}_s"] / _HOUR_S if metric.endswith("_h") else figures[metric]
            for metric in self.metrics
        }


def _rows(options: SeedOptions, case: tuple[GavelStudy, int]) -> Iterator[Row]:
    study, seed = case
    metrics_of = {name: study.measured(policy, options, seed) for name, policy in study.policies.items()}
    for name, values in metrics_of.items():
        for metric, value in values.items():
            yield Row(name, metric, value, study.published.get(name), 1, series=study.name, at=seed)
    for factor in study.factors:
        ratio = metrics_of[factor.more][factor.metric] / metrics_of[factor.less][factor.metric]
        metric = f"{factor.metric}_factor"
        yield Row(factor.label, metric, ratio, factor.published, 1, series=study.name, at=seed)


def _spreads(
    studies: Sequence[GavelStudy], rows: Sequence[Row]
) -> Iterator[tuple[GavelStudy, Factor, FactorSpread]]:
    """Yield each factor over all seeds that were made."""
    for study in studies:
        rows_of_study = rows_with(rows, series=study.name)
        for factor in study.factors:
            factors = numbers(rows_with(rows_of_study, label=factor.label, metric=f"{factor.metric}_factor"))
            if factors:
                yield study, factor, FactorSpread.of(factors)


def _trends(studies: Sequence[GavelStudy], rows: Sequence[Row]) -> Iterator[Trend]:
    for study, factor, spread in _spreads(studies, rows):
        yield Trend(f"{study.title}: {factor.conclusion}", factor.holds(spread), f"{spread}")


def _study_item(name: str, small: SeedOptions, entries: Field) -> Item:
    """Return the item of studies, each with a name of its own; with `small` it takes seconds."""
    studies = entries.typed(tuple[GavelStudy, ...])

    def cases(options: SeedOptions) -> dict[str, tuple[GavelStudy, int]]:
        for study in studies:
            for file in filter(None, (study.throughputs, study.trace)):
                options.file(file)
        by_name = {study.name: study for study in studies}
        return {case: (by_name[workload], seed) for case, (workload, seed) in options.cases(by_name).items()}

    return described(name, cases, _rows, partial(_trends, studies), small=small)


_LONG, _SHORT = TraceOptions(jobs=40, seeds=(0,)), ShorterTraceOptions(jobs=40, seeds=(0,))

_SMALL = {
    "gavel_physical": SeedOptions(seeds=(0,)),
    **dict.fromkeys(("gavel_las", "gavel_finish_time", "gavel_fifo"), _LONG),
    **dict.fromkeys(("gavel_makespan", "gavel_cost"), _SHORT),
    "gavel_space_sharing": replace(_SHORT, jobs=20),
}

_STUDIES = Field(read_yaml(Path(__file__).with_name("studies.yaml"), ValueError), "", ValueError)

ITEMS = tuple(_study_item(name, small, _STUDIES[name]) for name, small in _SMALL.items())
