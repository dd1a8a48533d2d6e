"""Jobs that come and go on a cluster of three types, with made-up throughputs or any others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from experiments.reproduce.gavel.options import DOLLARS_PER_HOUR
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

SCALE_FACTORS = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}
"""GPUs of a job and their part of all jobs, as Gavel's generator draws them."""

JOBS_THAT_END = 2
"""Jobs that end between two moments; as many come."""

PASSED_S = 1920.0
"""Time between two moments: the least between two of Gavel's decisions."""

_Alone = dict[tuple[str, int], dict[str, tuple[JobOperatingPoint, ...]]]


def random_throughputs(num_types: int, seed: int, *, shares_space: bool = False) -> Throughputs:
    """Return throughputs of job types that gain from newer GPUs, and from more, each in its own way.

    With ``shares_space`` two of three pairs of types can also run together on the same GPUs.
    """
    random = np.random.default_rng(seed)
    alone: _Alone = {}
    for number in range(num_types):
        k80 = 10.0 ** random.uniform(-1, 1)
        p100 = k80 * random.uniform(1, 5)
        rates = {"v100": p100 * random.uniform(1, 3), "p100": p100, "k80": k80}
        gain = random.uniform(0.7, 1)
        for gpus in SCALE_FACTORS:
            alone[f"type {number}", gpus] = {
                gpu_type: (JobOperatingPoint(rate * gpus**gain),) for gpu_type, rate in rates.items()
            }
    return Throughputs(alone, _pairs(alone, random) if shares_space else {})


def _pairs(
    alone: _Alone, random: np.random.Generator
) -> dict[tuple[str, str, int], dict[str, tuple[float, float]]]:
    """Return throughputs of pairs: each job is slowed down on every type by its own factor."""
    found = {}
    for (one, gpus), (other, as_many) in itertools.combinations_with_replacement(alone, 2):
        if gpus == as_many and random.random() < 2 / 3:
            slower, other_slower = random.uniform(0.4, 1, 2)
            found[one, other, gpus] = {
                name: (points[0].steps_per_s * slower, alone[other, gpus][name][0].steps_per_s * other_slower)
                for name, points in alone[one, gpus].items()
            }
    return found


def moments_of(
    throughputs: Throughputs, num_jobs: int, num_moments: int, seed: int
) -> list[tuple[ActiveJob, ...]]:
    """Return the jobs at each moment: of random types, scale factors and lengths, as many at each.

    Between two moments some end, and as many come.
    """
    random = np.random.default_rng(seed)
    arrivals = _arrivals(throughputs, random)
    jobs = [*itertools.islice(arrivals, num_jobs)]
    moments = [tuple(jobs)]
    while len(moments) < num_moments:
        ended = {*random.choice(num_jobs, JOBS_THAT_END, replace=False).tolist()}
        jobs = [_later(active, random) for index, active in enumerate(jobs) if index not in ended]
        jobs += itertools.islice(arrivals, JOBS_THAT_END)
        moments.append(tuple(jobs))
    return moments


def _arrivals(throughputs: Throughputs, random: np.random.Generator) -> Iterator[ActiveJob]:
    """Yield jobs of half an hour to a week on a V100, as Gavel's generator makes them."""
    types = {
        gpus: [
            name
            for name, count in throughputs.alone
            if count == gpus and all(throughputs.rate(name, gpus, gpu) > 0 for gpu in DOLLARS_PER_HOUR)
        ]
        for gpus in SCALE_FACTORS
    }
    for number in itertools.count():
        gpus = int(random.choice([*SCALE_FACTORS], p=[*SCALE_FACTORS.values()]))
        job_type = types[gpus][int(random.integers(len(types[gpus])))]
        minutes = 10.0 ** (random.uniform(1.5, 3) if random.random() < 0.8 else random.uniform(3, 4))
        steps = 60 * minutes * throughputs.rate(job_type, gpus, "v100")
        entity = f"entity {number % 3}"  # only hierarchical policies look at it
        yield ActiveJob(Job(f"{number}", job_type, steps, gpus, entity=entity), steps)


def _later(active: ActiveJob, random: np.random.Generator) -> ActiveJob:
    """Return a job after a while in which it made some of its steps."""
    return ActiveJob(
        active.job,
        active.steps_left * random.uniform(0.9, 1),
        active.waited_s + PASSED_S,
        active.isolated_s + PASSED_S * random.uniform(0.5, 1.5),
    )
