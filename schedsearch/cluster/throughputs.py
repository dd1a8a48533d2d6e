"""Throughputs of each type of job on each type of GPU, alone and beside another job, with their power."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from schedsearch.cluster.demand import NOBODY, Configuration, Configurations, Demand, IntArray
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob

_Kind = tuple[str, tuple[int, ...]]
"""Type of a job, and the numbers of GPUs that it may run on, the usual one first."""


class JobOperatingPoint(NamedTuple):
    """One way to run a type of job on GPUs of one type.

    Attributes:
        steps_per_s: Speed of all its GPUs together.
        power_w: Power of all its GPUs, on average; 0 where it is not known.
        clock_mhz: Clock of its GPUs, the mean where blocks differ; 0 where they run as they are delivered.
    """

    steps_per_s: float
    power_w: float = 0.0
    clock_mhz: int = 0


@dataclass(frozen=True, eq=False)
class Throughputs:
    """Throughputs by the job's type and its scale factor.

    Attributes:
        alone: Points by (type, scale factor) and GPU type, the fastest first; a throughput of 0 says that it
            cannot run there, and so does a GPU type that is not there.
        pairs: Steps per second of both by (type, other type, scale factor) and GPU type, in one order of the
            types; a zero says that they cannot share these GPUs.
        unconsolidated: The same where each GPU of a job is in a server of its own; None where servers do not
            matter. A job that lacks it on a type runs there only in as few servers as it needs.
    """

    alone: Mapping[tuple[str, int], Mapping[str, tuple[JobOperatingPoint, ...]]]
    pairs: Mapping[tuple[str, str, int], Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    unconsolidated: Throughputs | None = None
    _known: dict[tuple[Any, ...], Configurations] = field(default_factory=dict, init=False, repr=False)

    def placed(self, cluster: GpuCluster, gpu_type: str, gpus: int) -> list[tuple[Throughputs, bool]]:
        """Return the throughputs of each possible placement of a job, and whether it is unconsolidated."""
        placements, apart = cluster.placements(gpu_type, gpus), self.unconsolidated
        if apart is None:
            return [(self, False)] if placements else []
        return [(apart if is_apart else self, is_apart) for is_apart in placements]

    def can_run(self, cluster: GpuCluster, job_type: str, gpus: int) -> bool:
        """Return whether a job makes steps on some type of a cluster."""
        return any(
            table.rate(job_type, gpus, gpu_type) > 0
            for gpu_type in cluster.workers
            for table, _ in self.placed(cluster, gpu_type, gpus)
        )

    def rate(self, job_type: str, scale_factor: int, gpu_type: str) -> float:
        """Return the highest throughput of a job alone, in steps per second; 0 if it cannot run there."""
        points = self.alone.get((job_type, scale_factor), {}).get(gpu_type, ())
        return points[0].steps_per_s if points else 0.0

    def slowest(self, job_type: str, scale_factor: int) -> float:
        """Return the lowest throughput above 0 that a job can have, alone or not; infinite if none."""
        points = self.alone.get((job_type, scale_factor), {}).values()
        rates = [point.steps_per_s for of_type in points for point in of_type]
        for (one, other, gpus), row in self.pairs.items():
            if gpus == scale_factor and job_type in (one, other):
                rates += [rate for both in row.values() for rate in both]
        if self.unconsolidated is not None:
            rates.append(self.unconsolidated.slowest(job_type, scale_factor))
        return min((rate for rate in rates if rate > 0), default=math.inf)

    def pair(self, one: str, other: str, scale_factor: int) -> Mapping[str, tuple[float, float]]:
        """Return the throughputs of two types of job on each GPU type, `one` first; empty if not shared."""
        swapped = self.pairs.get((other, one, scale_factor), {})
        rates = {gpu_type: (second, first) for gpu_type, (first, second) in swapped.items()}
        return self.pairs.get((one, other, scale_factor), rates)

    def demand(self, cluster: GpuCluster, jobs: Sequence[ActiveJob], *, shares_space: bool = False) -> Demand:
        """Return the demand of jobs, with configurations of two jobs if they may share GPUs."""
        kinds = [(active.job.type, active.job.scale_factors) for active in jobs]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        kind_of = np.array([numbers[kind] for kind in kinds], dtype=np.int64)
        first = np.arange(len(jobs))
        alone = [self._of(cluster, kind) for kind in numbers]
        parts = [_of_jobs(alone, kind_of, first, np.full(len(jobs), NOBODY))]
        if shares_space:
            pairs = [self._of(cluster, one, other) for one in numbers for other in numbers]
            first, second = np.triu_indices(len(jobs), 1)
            parts.append(_of_jobs(pairs, kind_of[first] * len(numbers) + kind_of[second], first, second))
        return Demand(cluster, tuple(jobs), Configurations.joined(parts))

    def _of(self, cluster: GpuCluster, one: _Kind, other: _Kind | None = None) -> Configurations:
        """Return the configurations of jobs of these kinds, made once for a cluster."""
        key = (*cluster.workers.items(), *cluster.gpus_per_server.items(), one, other)
        if key not in self._known:
            ways = self._alone(cluster, *one) if other is None else self._shared(cluster, one, other)
            self._known[key] = Configurations.of(cluster, ways, num_jobs=2)
        return self._known[key]

    def _alone(self, cluster: GpuCluster, job_type: str, counts: tuple[int, ...]) -> Iterator[Configuration]:
        for gpus in counts:
            for name in self.alone.get((job_type, gpus), {}):
                for table, is_apart in self.placed(cluster, name, gpus):
                    for rate, power_w, clock_mhz in table.alone.get((job_type, gpus), {}).get(name, ()):
                        yield Configuration((0,), name, gpus, (rate,), power_w, clock_mhz, is_apart)

    def _shared(self, cluster: GpuCluster, one: _Kind, other: _Kind) -> Iterator[Configuration]:
        gpus = one[1][0]  # two jobs share GPUs on their usual number only
        for name in self.pair(one[0], other[0], gpus) if gpus == other[1][0] else ():
            for table, is_apart in self.placed(cluster, name, gpus):
                rates = table.pair(one[0], other[0], gpus).get(name, (0.0, 0.0))
                yield Configuration((0, 1), name, gpus, rates, is_unconsolidated=is_apart)


def _of_jobs(
    kinds: Sequence[Configurations], kind_of: IntArray, first: IntArray, second: IntArray
) -> Configurations:
    """Return the configurations of jobs, or pairs of jobs, of these kinds, in their order."""
    counts = np.array([len(one) for one in kinds], dtype=np.int64)
    of_each = counts[kind_of]
    who = np.repeat(np.arange(len(kind_of)), of_each)
    begins = (np.cumsum(counts) - counts)[kind_of] - np.cumsum(of_each) + of_each
    configs = Configurations.joined(kinds).only(np.arange(len(who)) + begins[who])
    return replace(configs, jobs=np.stack([first[who], second[who]], axis=1))
