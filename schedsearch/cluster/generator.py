"""Jobs drawn at random, as Gavel draws those of its evaluation (dissertation, Sec. 5.7.1).

The order of the draws and of the operations on them is part of the rules: the same seed gives the same jobs,
bit for bit, as Gavel's own generator. It does not know the cluster, nor how long a job will wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random

from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import Throughputs

COST_STUDY_DURATIONS_S = tuple(days * 86400.0 for days in (0.5, 1.0, 2.0, 4.0, 8.0))
"""Durations of the jobs with which the dissertation compares cost policies (Sec. 5.7.3)."""


@dataclass(frozen=True)
class GeneratorOptions:
    """Options of the jobs that are drawn.

    Attributes:
        seed: Seed of the jobs (seed + 2), of the times between arrivals (seed + 3) and of the SLOs (seed +
            6).
        lam_s: Mean seconds between arrivals; 0 where all jobs are there from the start.
        num_jobs: How many; without end where none is given.
        multi_gpu: Jobs run on 1, 2, 4 or 8 GPUs with 70, 10, 15 and 5 %; otherwise on 1.
        priorities: A fifth of the jobs has weight 5; otherwise none.
        slos: A third each is to be done in 1.2, 2 and 10 times its duration; otherwise none has an SLO.
        durations_s: Durations to choose from; where none are given 10^u minutes, with u from 1.5 to 3 for
            80 % of the jobs and from 3 to 4 for the others.
        reference: GPU type on which a job runs for its duration, alone and without a break.

    Raises:
        ClusterError: A number is out of its range, or jobs without end all arrive at the start.
    """

    seed: int = 0
    lam_s: float = 3600.0
    num_jobs: int | None = None
    multi_gpu: bool = False
    priorities: bool = False
    slos: bool = False
    durations_s: tuple[float, ...] = ()
    reference: str = "v100"

    def __post_init__(self) -> None:
        """Check the numbers."""
        lam_s, num_jobs = self.lam_s, self.num_jobs
        require(0 <= lam_s < math.inf, "trace.lam_s", lam_s, "a time; give seconds of at least 0")
        is_number = num_jobs is None or num_jobs >= 1
        require(is_number, "trace.num_jobs", num_jobs, "a number of jobs; give 1 or more")
        if num_jobs is None and lam_s == 0:
            raise ClusterError("trace.lam_s: 0 for jobs without end; give trace.num_jobs, or seconds above 0")
        if not all(math.isfinite(one) and one > 0 for one in self.durations_s):
            raise ClusterError(f"trace.durations_s: {self.durations_s!r} are not all above 0; correct them")


def generated(
    types: Mapping[str, bool], throughputs: Throughputs, options: GeneratorOptions
) -> Iterator[Job]:
    """Return jobs in the order of their arrival, named "0", "1" and so on.

    Args:
        types: Whether each type may run on more than one GPU, in the order from which types are drawn.
        throughputs: Throughputs of these types, at least on the reference GPU type.
        options: What is drawn.

    Raises:
        ClusterError: There are no types, or a type has no throughput on the reference GPU type.
    """
    if not types:
        raise ClusterError("trace.types is empty; give at least one job type")
    if options.multi_gpu and not any(types.values()):
        raise ClusterError("trace.types: none may be distributed; mark one, or leave trace.multi_gpu out")
    for job_type, may_be_distributed in types.items():
        for gpus in (1, 2, 4, 8) if options.multi_gpu and may_be_distributed else (1,):
            if not throughputs.rate(job_type, gpus, options.reference) > 0:
                raise ClusterError(
                    f"trace.types: {job_type!r} has no throughput on {gpus} {options.reference}; "
                    "add one, leave the type out, or give another trace.reference"
                )
    return _drawn(types, throughputs, options)


def _drawn(types: Mapping[str, bool], throughputs: Throughputs, options: GeneratorOptions) -> Iterator[Job]:
    of_jobs, of_gaps, of_slos = (Random(options.seed + number) for number in (2, 3, 6))
    names = list(types)
    arrival_s = 0.0
    for number in count() if options.num_jobs is None else range(options.num_jobs):
        gpus = _scale_factor(of_jobs.uniform(0, 1))  # drawn even where it is not used
        gpus = gpus if options.multi_gpu else 1
        duration_s = _duration_s(of_jobs, options)
        job_type = of_jobs.choice(names)
        while gpus > 1 and not types[job_type]:
            job_type = of_jobs.choice(names)
        steps = duration_s * throughputs.rate(job_type, gpus, options.reference)
        weight = 5.0 if options.priorities and of_jobs.uniform(0, 1) <= 0.2 else 1.0
        slo_s = _slo_factor(of_slos.uniform(0, 1)) * duration_s if options.slos else math.inf
        yield Job(str(number), job_type, steps, gpus, weight, arrival_s, slo_s)
        if options.lam_s > 0:
            arrival_s -= math.log(1.0 - of_gaps.random()) * options.lam_s


def _scale_factor(drawn: float) -> int:
    return next(gpus for gpus, until in ((1, 0.7), (2, 0.8), (4, 0.95), (8, math.inf)) if drawn < until)


def _duration_s(of_jobs: Random, options: GeneratorOptions) -> float:
    if options.durations_s:
        return of_jobs.choice(options.durations_s)
    is_long = of_jobs.random() >= 0.8
    return 60 * 10 ** (of_jobs.uniform(3, 4) if is_long else of_jobs.uniform(1.5, 3))


def _slo_factor(drawn: float) -> float:
    return next(factor for factor, until in ((1.2, 0.33), (2.0, 0.67), (10.0, math.inf)) if drawn < until)
