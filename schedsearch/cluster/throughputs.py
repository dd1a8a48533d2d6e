"""How fast each type of job runs on each type of GPU, alone and beside another, and what it draws there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from schedsearch.cluster.demand import (
    NOBODY,
    BoolArray,
    Configuration,
    Configurations,
    Demand,
    FloatArray,
    IntArray,
)
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job


@dataclass(frozen=True)
class JobOperatingPoint:
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
    _rows: dict[tuple[Any, ...], _Rows] = field(default_factory=dict, init=False, repr=False)

    def placed(self, cluster: GpuCluster, gpu_type: str, gpus: int) -> Iterator[tuple[Throughputs, bool]]:
        """Yield the throughputs of each placement that a job can have, and whether it is unconsolidated."""
        if self.unconsolidated is None:
            yield from [(self, False)] * (cluster.workers.get(gpu_type, 0) >= gpus)
            return
        for is_unconsolidated in cluster.placements(gpu_type, gpus):
            yield (self.unconsolidated if is_unconsolidated else self), is_unconsolidated

    def can_run(self, cluster: GpuCluster, job_type: str, gpus: int) -> bool:
        """Return whether a job makes steps on some type of a cluster."""
        return any(
            table.rate(job_type, gpus, gpu_type) > 0
            for gpu_type in cluster.workers
            for table, _ in self.placed(cluster, gpu_type, gpus)
        )

    def rate(self, job_type: str, scale_factor: int, gpu_type: str) -> float:
        """Return the highest throughput of a job alone, in steps per second; 0 where it cannot run."""
        points = self.alone.get((job_type, scale_factor), {}).get(gpu_type, ())
        return points[0].steps_per_s if points else 0.0

    def slowest(self, job_type: str, scale_factor: int) -> float:
        """Return the lowest throughput above 0 that a job can have, alone or not; infinite if none."""
        kind = job_type, scale_factor
        rates = [point.steps_per_s for points in self.alone.get(kind, {}).values() for point in points]
        for (one, other, gpus), row in self.pairs.items():
            if gpus == scale_factor and job_type in (one, other):
                rates += [rate for both in row.values() for rate in both]
        apart = [] if self.unconsolidated is None else [self.unconsolidated.slowest(*kind)]
        return min([*(rate for rate in rates if rate > 0), *apart], default=math.inf)

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
        kinds = [(active.job.type, active.job.scale_factors) for active in jobs]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        kind_of = np.array([numbers[kind] for kind in kinds], dtype=np.int64)
        rows = [self._rows_alone(cluster, *kind) for kind in numbers]
        first = np.arange(len(jobs))
        found = [_gathered(rows, kind_of, first, np.full(len(jobs), NOBODY))]
        if shares_space:
            pairs = [self._rows_of_pair(cluster, *one, *other) for one in numbers for other in numbers]
            first, second = np.triu_indices(len(jobs), 1)
            found.append(_gathered(pairs, kind_of[first] * len(numbers) + kind_of[second], first, second))
        columns = (np.concatenate(column) for column in zip(*found, strict=True))
        return Demand(cluster, tuple(jobs), Configurations(*columns), now_s)

    def _rows_alone(self, cluster: GpuCluster, job_type: str, counts: tuple[int, ...]) -> _Rows:
        return self._kept_rows(
            (_fitting(cluster, counts), job_type, counts),
            lambda: [
                Configuration(
                    (0,), gpu_type, gpus, (point.steps_per_s,), point.power_w, point.clock_mhz, is_apart
                )
                for gpus in counts
                for gpu_type in self.alone.get((job_type, gpus), {})
                for table, is_apart in self.placed(cluster, gpu_type, gpus)
                for point in table.alone.get((job_type, gpus), {}).get(gpu_type, ())
            ],
            cluster,
        )

    def _rows_of_pair(
        self,
        cluster: GpuCluster,
        one: str,
        counts: tuple[int, ...],
        other: str,
        counts_of_other: tuple[int, ...],
    ) -> _Rows:
        gpus = counts[0]  # two jobs share GPUs on their usual number only
        return self._kept_rows(
            (_fitting(cluster, counts[:1]), one, gpus, other, counts_of_other[0]),
            lambda: [
                Configuration((0, 1), gpu_type, gpus, rates, is_unconsolidated=is_apart)
                for gpu_type in self.pair(one, other, gpus)
                if gpus == counts_of_other[0]
                for table, is_apart in self.placed(cluster, gpu_type, gpus)
                for rates in [table.pair(one, other, gpus).get(gpu_type, (0.0, 0.0))]
            ],
            cluster,
        )

    def _kept_rows(
        self, key: tuple[Any, ...], configurations: Callable[[], list[Configuration]], cluster: GpuCluster
    ) -> _Rows:
        """Return the rows of a kind of jobs, which are made once for the same types of GPUs."""
        if key not in self._rows:
            two = [ActiveJob(Job(name, "", 1.0), 1.0) for name in "ab"]
            self._rows[key] = _Rows.of(Demand.of(cluster, two, configurations()).configurations)
        return self._rows[key]


def _fitting(cluster: GpuCluster, counts: tuple[int, ...]) -> tuple[tuple[str, tuple[bool, ...]], ...]:
    return tuple(
        (gpu_type, cluster.placements(gpu_type, gpus)) for gpu_type in cluster.workers for gpus in counts
    )


class _Rows(NamedTuple):
    """Configurations of one kind of job, or of two, without saying which jobs."""

    gpu_type: IntArray
    gpus: IntArray
    steps_per_s: FloatArray
    power_w: FloatArray
    clock_mhz: IntArray
    is_unconsolidated: BoolArray

    @classmethod
    def of(cls, found: Configurations) -> _Rows:
        return cls(*(getattr(found, column) for column in cls._fields))


def _gathered(
    rows: Sequence[_Rows], kind_of: IntArray, first: IntArray, second: IntArray
) -> tuple[IntArray | FloatArray | BoolArray, ...]:
    """Return the columns of `Configurations` for jobs, or pairs of jobs, of these kinds; in their order."""
    counts = np.array([len(one.gpus) for one in rows], dtype=np.int64)
    begins = np.cumsum(counts) - counts
    of_each = counts[kind_of]
    who = np.repeat(np.arange(len(kind_of)), of_each)
    which = np.arange(len(who)) - np.repeat(np.cumsum(of_each) - of_each, of_each) + begins[kind_of][who]
    columns = _Rows(*(np.concatenate(column) for column in zip(*rows, strict=True))) if rows else _NO_ROWS
    return (np.stack([first[who], second[who]], axis=1), *(column[which] for column in columns))


_NO_ROWS = _Rows.of(Configurations.none())
