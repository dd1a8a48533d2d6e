"""The cases of the cluster's benchmark: decisions and simulations, and the CPU seconds that they may take.

Gavel's measured throughputs are no part of this project; where they are not there, their rows are skipped.
CPU limits are of one core of about 2.6 GHz.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.cluster.loads import (
    SCALE_FACTORS,
    ClusterLoad,
    load,
    random_throughputs,
)
from experiments.benchmarks.cluster.measuring import (
    CheckedDecision,
    allocation,
    decisions,
    partitioned,
    simulation,
)
from experiments.benchmarks.comparison import missing_file
from experiments.benchmarks.peers.plots import draw_costs
from experiments.benchmarks.results import BenchmarkCase, CaseResult
from experiments.reproduce.gavel.options import cluster_of
from schedsearch.cluster.inputs.job_type_file import read_job_types
from schedsearch.cluster.inputs.throughput_file import read_throughputs
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.throughputs import Throughputs

GAVEL = Path(__file__).parents[4] / "shared" / "data" / "gavel"
"""Beside the project: the measured throughputs of Gavel's artifact."""

THROUGHPUTS, JOB_TYPES = "simulation_throughputs.json", "job_types.csv"

CPU_S = {128: 0.1, 512: 0.5, 2048: 3.0}
"""CPU seconds of a decision with its demand, by jobs."""

POLICIES = ("las", "finish_time_fairness", "makespan", "min_cost")
"""Of which so much is asked."""

JOBS_PER_GPU = 4 / 3
"""With as many GPUs of each type."""

NUM_MOMENTS = 6
"""Decisions of a case; the first is not counted."""

NUM_TYPES = 26
"""Of jobs that may share GPUs, as in Gavel's data."""

REPORTED = {
    "las_packed": (32, 128, 512),
    "allox": (128, 512),
    "water_filling": (128, 512),
    "hierarchical": (128, 512),
}
"""Jobs by policy, where only the time is told."""

OF_ONE_GPU, ONE_GPU = ("allox",), {1: 1.0}
"""Policies that are only of jobs on one GPU, and scale factors of such jobs."""

PARTS = (2, 4, 8, 16)
"""Of a partitioned cluster."""

JOBS_PER_HOUR, SIMULATION_S = 5.6, 180.0
"""Of the simulations, and CPU seconds that one of 5000 jobs may take."""


def allocations() -> Iterator[BenchmarkCase]:
    """Yield decisions about jobs alone, beside cvxpy."""
    for data, make in (("random", random_throughputs), ("Gavel's", _gavel)):
        for name in POLICIES:
            for num_jobs, cpu_s in CPU_S.items():
                yield BenchmarkCase(
                    f"{name}, {num_jobs} jobs, {data} throughputs",
                    f"{cpu_s:g} CPU s, warm and cold; an objective no worse than cvxpy's",
                    partial(_allocation, name, num_jobs, make, cpu_s),
                    is_quick=(name, num_jobs) == ("las", 128),
                    lacks=str if data == "random" else _no_gavel,
                )


def reported() -> Iterator[BenchmarkCase]:
    """Yield decisions with pairs, by assignment and by filling, whose time is told."""
    for name, sizes in REPORTED.items():
        for num_jobs in sizes:
            yield BenchmarkCase(
                f"{name}, {num_jobs} jobs, random throughputs",
                "rules kept; the time is told",
                partial(_allocation, name, num_jobs, _with_pairs, None),
                is_quick=(name, num_jobs) == ("las_packed", 32),
            )


def partitions() -> Iterator[BenchmarkCase]:
    """Yield a cluster of a thousand GPUs and jobs, whole and in parts."""
    for name in ("las", "las_packed"):
        for parts in PARTS:
            case = f"{name}, 1000 jobs, 1002 GPUs, {parts} parts"
            measure = partial(_partitioned, name, parts)
            yield BenchmarkCase(
                case, "rules kept; time and loss are told", measure, (name, parts) == ("las", 8)
            )


def simulations() -> Iterator[BenchmarkCase]:
    """Yield 5000 jobs on Gavel's cluster of 36 GPUs of each type."""
    for name in ("las", "finish_time_fairness", "makespan", "min_cost", "fifo"):
        case = f"{name}, 5000 jobs, {JOBS_PER_HOUR:g} per hour, Gavel's throughputs"
        yield BenchmarkCase(case, f"{SIMULATION_S:g} CPU s", partial(_simulation, name), lacks=_no_gavel)


def _no_gavel() -> str:
    return missing_file(GAVEL / THROUGHPUTS)


def _gavel(_: int, __: int) -> Throughputs:
    return read_throughputs(GAVEL / THROUGHPUTS)


def _with_pairs(_: int, seed: int) -> Throughputs:
    return random_throughputs(NUM_TYPES, seed, shares_space=True)


def _allocation(
    name: str, num_jobs: int, make: Callable[[int, int], Throughputs], cpu_s: float | None
) -> CaseResult:
    cluster = cluster_of(round(num_jobs / JOBS_PER_GPU / 3))
    scale_factors = ONE_GPU if name in OF_ONE_GPU else SCALE_FACTORS
    jobs = load(make(num_jobs, 0), cluster, num_jobs, NUM_MOMENTS, seed=1, scale_factors=scale_factors)
    return allocation(jobs, name, limit_s=cpu_s)


@cache
def _whole(name: str) -> tuple[ClusterLoad, CheckedDecision]:
    """Return a thousand jobs on a thousand GPUs, and the decision about them all."""
    jobs = load(_with_pairs(0, 0), cluster_of(334), 1000, 1, seed=1)
    (whole,) = decisions(jobs, [policy_of(name)])
    return jobs, whole


def _partitioned(name: str, num_parts: int) -> CaseResult:
    jobs, whole = _whole(name)
    return partitioned(jobs, name, num_parts, whole)


def _simulation(name: str) -> CaseResult:
    return simulation(
        _gavel(0, 0),
        read_job_types(GAVEL / JOB_TYPES),
        cluster_of(36),
        name,
        jobs_per_hour=JOBS_PER_HOUR,
        num_jobs=5000,
        limit_s=SIMULATION_S,
    )


def _prepare() -> None:
    """Decide once about a few jobs, so that no case pays for what is loaded."""
    few = load(random_throughputs(4, 0), cluster_of(max(SCALE_FACTORS)), 4, 1, seed=0)
    for name in POLICIES:
        decisions(few, [policy_of(name)])


BENCHMARK = Benchmark(
    "cluster",
    "Measure what the cluster must reach.",
    {
        "allocations": allocations,
        "reported": reported,
        "partitions": partitions,
        "simulations": simulations,
    },
    _prepare,
    draw_costs,
)
