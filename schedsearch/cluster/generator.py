"""Jobs drawn at random, as in Gavel's evaluation (dissertation, Sec. 5.7.1).

The order of the draws and of the operations on them is part of the rules: the same seed gives the same jobs,
bit for bit, as Gavel's own generator. The module does not know the cluster, nor how long a job will wait.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from placements.forms.meaning import option
from schedsearch.cluster.gpu_cluster import require
from schedsearch.cluster.jobs import Job

if TYPE_CHECKING:
    from schedsearch.cluster.throughputs import Throughputs  # with numpy, for which options do not wait


@dataclass(frozen=True)
class GeneratorOptions:
    """Options of the jobs that are drawn.

    Raises:
        ClusterError: A number is out of its range, or jobs without end all arrive at the start.
    """

    seed: int = option(0, "seed of everything that is drawn")
    lam_s: float = option(
        3600.0, "mean time between arrivals, in s: 3600 / jobs per hour; 0: all at the start"
    )
    num_jobs: int | None = option(None, "number of jobs; null: as many as the window needs")
    multi_gpu: bool = option(False, "true: jobs of 1, 2, 4 and 8 GPUs, 70, 10, 15 and 5 % of them")
    priorities: bool = option(False, "true: a fifth of the jobs has weight 5")
    slos: bool = option(False, "true: jobs have SLOs: a third each 1.2, 2 and 10 times its duration")
    durations_h: tuple[float, ...] | None = option(
        None, "durations to choose from, in h; null: half an hour to a week, 80 % of them up to 17 h", above=0
    )
    reference: str = option("v100", "GPU type on which jobs run for their durations")

    def __post_init__(self) -> None:
        """Check the numbers."""
        lam_s, num_jobs = self.lam_s, self.num_jobs
        require(0 <= lam_s < math.inf, "trace.lam_s", lam_s, "a time; give seconds of at least 0")
        is_number = num_jobs is None or num_jobs >= 1
        require(is_number, "trace.num_jobs", num_jobs, "a number of jobs; give 1 or more")
        wanted = "possible for jobs without end; give trace.num_jobs, or seconds above 0"
        require(num_jobs is not None or lam_s > 0, "trace.lam_s", 0, wanted)
        are_right = all(0 < hours < math.inf for hours in self.durations_h or ())
        require(are_right, "trace.durations_h", self.durations_h, "numbers of hours above 0; correct them")


def generated(
    types: Mapping[str, bool], throughputs: Throughputs, options: GeneratorOptions
) -> Iterator[Job]:
    """Return jobs in the order of their arrival, named "0", "1" and so on.

    Args:
        types: Whether each type may run on more than one GPU, in the order from which types are drawn.
        throughputs: Throughputs of these types, at least on the reference GPU type.
        options: Options of the drawn jobs.

    Raises:
        ClusterError: There are no types, or a type has no throughput on the reference GPU type.
    """
    require(bool(types), "trace.types", [], "a list of types of jobs; give at least one")
    can_be_drawn = not options.multi_gpu or any(types.values())
    wanted = "possible: no type of job may have several GPUs; mark one, or leave it out"
    require(can_be_drawn, "trace.multi_gpu", True, wanted)
    for job_type, may_be_distributed in types.items():
        for gpus in (1, 2, 4, 8) if options.multi_gpu and may_be_distributed else (1,):
            has_rate = throughputs.rate(job_type, gpus, options.reference) > 0
            wanted = f"a type with a throughput on {gpus} {options.reference}"
            remedy = "add one, leave the type out, or give another trace.reference"
            require(has_rate, "trace.types", job_type, f"{wanted}; {remedy}")
    return _drawn(types, throughputs, options)


def _drawn(types: Mapping[str, bool], throughputs: Throughputs, options: GeneratorOptions) -> Iterator[Job]:
    of_jobs, of_gaps, of_slos = (Random(options.seed + number) for number in (2, 3, 6))
    names = list(types)
    arrival_s = 0.0
    for number in count() if options.num_jobs is None else range(options.num_jobs):
        gpus = (1, 2, 4, 8)[bisect((0.7, 0.8, 0.95), of_jobs.uniform(0, 1))]  # drawn even where not used
        gpus = gpus if options.multi_gpu else 1
        duration_s = _duration_s(of_jobs, options)
        job_type = of_jobs.choice(names)
        while gpus > 1 and not types[job_type]:
            job_type = of_jobs.choice(names)
        steps = duration_s * throughputs.rate(job_type, gpus, options.reference)
        weight = 5.0 if options.priorities and of_jobs.uniform(0, 1) <= 0.2 else 1.0
        slo_s = math.inf
        if options.slos:
            slo_s = (1.2, 2.0, 10.0)[bisect((0.33, 0.67), of_slos.uniform(0, 1))] * duration_s
        yield Job(str(number), job_type, steps, gpus, weight, arrival_s, slo_s)
        if options.lam_s > 0:
            arrival_s -= math.log(1.0 - of_gaps.random()) * options.lam_s


def _duration_s(of_jobs: Random, options: GeneratorOptions) -> float:
    if options.durations_h:
        return 3600.0 * float(of_jobs.choice(options.durations_h))
    is_long = of_jobs.random() >= 0.8
    return 60 * 10 ** (of_jobs.uniform(3, 4) if is_long else of_jobs.uniform(1.5, 3))
