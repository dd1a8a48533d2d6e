"""Policies, throughputs and jobs for tests of rounds and simulations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from places import SHARED_DATA

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.inputs.throughput_file import read_throughputs
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

GAVEL = SHARED_DATA / "gavel"
needs_gavel = pytest.mark.skipif(not GAVEL.is_dir(), reason="needs the shared data")


@dataclass
class OnFirstType:
    """Gives every job all the time on the first type."""

    name: str = "first_type"
    shares_space: bool = False

    def allocate(self, demand: Demand) -> Allocation:
        return Allocation(demand, (demand.configurations.gpu_type == 0).astype(float), 0.0)


@dataclass
class Drawn:
    """Gives all configurations drawn shares that keep the rules; remembers nothing but its seed and call."""

    seed: int
    shares_space: bool = False
    name: str = "drawn"
    calls: int = 0

    def allocate(self, demand: Demand) -> Allocation:
        self.calls += 1
        generator = np.random.default_rng([self.seed, self.calls])
        drawn = generator.random(len(demand.configurations)) * (
            generator.random(len(demand.configurations)) < 0.7
        )
        drawn += 1e-3
        times = demand.times(drawn).max(initial=1.0)
        used = np.bincount(demand.configurations.gpu_type, drawn * demand.configurations.gpus)
        usage = (used / np.maximum(demand.workers[: len(used)], 1)).max(initial=1.0)
        return Allocation(demand, drawn / max(times, usage), 0.0)


def throughputs_of(
    rates: Mapping[str, Mapping[str, float]], scale_factors: tuple[int, ...] = (1,)
) -> Throughputs:
    """Return throughputs by job type and GPU type, the same for each number of GPUs."""
    return Throughputs(
        {
            (job_type, gpus): {gpu_type: (JobOperatingPoint(rate),) for gpu_type, rate in row.items()}
            for job_type, row in rates.items()
            for gpus in scale_factors
        }
    )


def drawn_throughputs(random: Random, types: tuple[str, ...], *, pairs: bool) -> Throughputs:
    """Return throughputs of job types a to d on 1, 2 and 4 GPUs, some of them zero, with power."""
    alone, together = {}, {}
    for job_type in "abcd":
        for gpus in (1, 2, 4):
            alone[job_type, gpus] = {
                gpu_type: (JobOperatingPoint(10 ** random.uniform(-3, 2), random.uniform(10, 300)),)
                for number, gpu_type in enumerate(types)
                if number == 0 or random.random() < 0.8
            }
            for other in "abcd" if pairs else "":
                if (other, job_type, gpus) not in together:
                    together[job_type, other, gpus] = {
                        gpu_type: (random.uniform(0.1, 9), random.choice((0.0, random.uniform(0.1, 9))))
                        for gpu_type in types
                    }
    return Throughputs(alone, together)


def drawn_jobs(random: Random, count: int, max_gpus: int) -> list[Job]:
    """Return jobs that arrive over some hours and take from seconds to hours."""
    arrival_s, jobs = 0.0, []
    for number in range(count):
        gpus = random.choice([size for size in (1, 2, 4) if size <= max_gpus])
        slo_s = random.choice((float("inf"), random.uniform(100, 20000)))
        steps = 10 ** random.uniform(0, 4)
        jobs.append(Job(f"job {number}", random.choice("abcd"), steps, gpus, 1.0, arrival_s, slo_s))
        arrival_s += random.choice((0.0, random.expovariate(1 / 900)))
    return jobs


def gavel_throughputs() -> Throughputs:
    """Return throughputs as measured by Gavel's authors."""
    return read_throughputs(GAVEL / "simulation_throughputs.json")
