"""How fast each type of job runs on each type of GPU, alone and beside another, and what it draws there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob


@dataclass(frozen=True)
class OperatingPoint:
    """One way to run a type of job on GPUs of one type.

    Attributes:
        steps_per_s: Of all its GPUs together.
        power_w: Of all its GPUs, on average; 0 where it is not known.
        clock_mhz: Of its GPUs, the mean where blocks differ; 0 where they run as they are delivered.
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
    """

    alone: Mapping[tuple[str, int], Mapping[str, tuple[OperatingPoint, ...]]]
    pairs: Mapping[tuple[str, str, int], Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    def rate(self, job_type: str, scale_factor: int, gpu_type: str) -> float:
        """Return the highest throughput of a job alone, in steps per second; 0 where it cannot run."""
        points = self.alone.get((job_type, scale_factor), {}).get(gpu_type, ())
        return points[0].steps_per_s if points else 0.0

    def pair(self, one: str, other: str, scale_factor: int) -> Mapping[str, tuple[float, float]]:
        """Return the throughputs of both on each GPU type, of `one` first; empty where they cannot share."""
        if (one, other, scale_factor) in self.pairs:
            return self.pairs[one, other, scale_factor]
        found = self.pairs.get((other, one, scale_factor), {})
        return {gpu_type: (second, first) for gpu_type, (first, second) in found.items()}

    def demand(
        self,
        cluster: GpuCluster,
        jobs: Sequence[ActiveJob],
        *,
        shares_space: bool = False,
        now_s: float = 0.0,
    ) -> Demand:
        """Return the demand of jobs at a time, with configurations of two jobs if they may share GPUs."""
        return Demand.of(cluster, jobs, self._configurations(cluster, jobs, shares_space), now_s)

    def _configurations(
        self, cluster: GpuCluster, jobs: Sequence[ActiveJob], shares_space: bool
    ) -> Iterator[Configuration]:
        for index, active in enumerate(jobs):
            for gpus in active.job.scale_factors:
                for gpu_type, points in self.alone.get((active.job.type, gpus), {}).items():
                    if cluster.workers.get(gpu_type, 0) >= gpus:
                        for point in points:
                            yield Configuration(
                                (index,), gpu_type, gpus, (point.steps_per_s,), point.power_w, point.clock_mhz
                            )
        if not shares_space:
            return
        for (one, first), (two, second) in combinations(enumerate(jobs), 2):
            gpus = first.job.scale_factor
            if second.job.scale_factor == gpus:
                for gpu_type, rates in self.pair(first.job.type, second.job.type, gpus).items():
                    if cluster.workers.get(gpu_type, 0) >= gpus:
                        yield Configuration((one, two), gpu_type, gpus, rates)
