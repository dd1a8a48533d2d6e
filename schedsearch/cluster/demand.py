"""The demand that a policy decides on: the active jobs, and the configurations that each can run in.

A *configuration* is one way to run one job, or two on the same GPUs: a number of GPUs of one type, at one
clock, and the steps per second and the power that follow. One formulation so holds time sharing, space
sharing (dissertation, Sec. 5.3.1), jobs that can use more or fewer GPUs, and clocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

NOBODY = -1
"""Stands for the second job of a configuration of one job."""

NO_CONFIGURATION = -1
"""Stands for the configuration of a job on a type that it cannot run on."""


@dataclass(frozen=True)
class Configuration:
    """One way to run a job alone, or two jobs on the same GPUs.

    Attributes:
        jobs: Index of the job, or of both, in the demand.
        gpu_type: GPU type of the cluster.
        gpus: Number of GPUs.
        steps_per_s: Speed of each of the jobs; above 0.
        power_w: Power of all its GPUs, in W; 0 where it is not known.
        clock_mhz: Clock of its GPUs, the mean where blocks differ; 0 where they run as they are delivered.
        is_unconsolidated: Its GPUs are in more servers than they need.
    """

    jobs: tuple[int, ...]
    gpu_type: str
    gpus: int
    steps_per_s: tuple[float, ...]
    power_w: float = 0.0
    clock_mhz: int = 0
    is_unconsolidated: bool = False


@dataclass(frozen=True, eq=False)
class Configurations:
    """Configurations as arrays, one entry for each, as in `Configuration`.

    Attributes:
        jobs: Shape (configurations, 2); `NOBODY` where there is no second job.
        gpu_type: Index of the type in the cluster.
        steps_per_s: Shape (configurations, 2); 0 where there is no second job.
    """

    jobs: IntArray
    gpu_type: IntArray
    gpus: IntArray
    steps_per_s: FloatArray
    power_w: FloatArray
    clock_mhz: IntArray
    is_unconsolidated: BoolArray

    @classmethod
    def none(cls) -> Configurations:
        """Return no configurations."""
        ints, floats = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(ints.reshape(0, 2), ints, ints, floats.reshape(0, 2), floats, ints, ints > 0)

    @classmethod
    def of(
        cls, cluster: GpuCluster, configurations: Iterable[Configuration], num_jobs: int
    ) -> Configurations:
        """Return the configurations of a number of jobs given one by one.

        Configurations in which a job makes no steps are left out, as they only take GPUs, and so are those
        that need more GPUs of their type than there are.

        Raises:
            ClusterError: A configuration has a wrong number, or names a type or a job that is not there.
        """
        types, rows = cluster.gpu_types, []
        for one in configurations:
            if one.gpu_type not in types:
                raise ClusterError(
                    f"{one.gpu_type!r} is not a GPU type of the cluster; it has {', '.join(types)}"
                )
            is_of_jobs = {*one.jobs} <= {*range(num_jobs)} and len({*one.jobs}) == len(one.steps_per_s) <= 2
            numbers = (one.gpus - 1, *one.steps_per_s, one.power_w, one.clock_mhz)
            if not is_of_jobs or not all(0 <= number < math.inf for number in numbers):
                raise ClusterError(f"{one} is wrong; give one of {num_jobs} jobs, or two, with their steps/s")
            if one.gpus <= cluster.workers[one.gpu_type] and all(one.steps_per_s):
                jobs, rates = (*one.jobs, NOBODY)[:2], (*one.steps_per_s, 0.0)[:2]
                row = jobs, types.index(one.gpu_type), one.gpus, rates, one.power_w, one.clock_mhz
                rows.append((*row, one.is_unconsolidated))
        return cls(*map(np.array, zip(*rows, strict=True))) if rows else cls.none()

    @classmethod
    def joined(cls, parts: Sequence[Configurations]) -> Configurations:
        """Return the configurations of all parts, one part after the other."""
        every = [cls.none(), *parts]
        return cls(*(np.concatenate([getattr(one, column.name) for one in every]) for column in fields(cls)))

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def is_alone(self) -> BoolArray:
        """Return which have one job."""
        is_alone: BoolArray = self.jobs[:, 1] == NOBODY
        return is_alone

    def only(self, which: BoolArray | IntArray) -> Configurations:
        """Return selected configurations: in the same order for a mask, in index order for indices."""
        return Configurations(*(getattr(self, column.name)[which] for column in fields(self)))

    def __getitem__(self, index: int, /) -> tuple[tuple[int, ...], int, int]:
        """Return the jobs, the index of the GPU type and the number of GPUs of one."""
        jobs = tuple(int(job) for job in self.jobs[index] if job != NOBODY)
        return jobs, int(self.gpu_type[index]), int(self.gpus[index])


@dataclass(frozen=True, eq=False)
class Demand:
    """The active jobs in the order of their arrival, and all configurations that they can run in.

    Attributes:
        cluster: GPUs of the cluster.
        jobs: Jobs that have arrived and are not done.
        configurations: Configurations that fit in the cluster, each with throughputs above 0.
    """

    cluster: GpuCluster
    jobs: tuple[ActiveJob, ...]
    configurations: Configurations

    @classmethod
    def of(
        cls, cluster: GpuCluster, jobs: Sequence[ActiveJob], configurations: Iterable[Configuration]
    ) -> Demand:
        """Return the demand of jobs and configurations given one by one; see `Configurations.of`."""
        return cls(cluster, tuple(jobs), Configurations.of(cluster, configurations, len(jobs)))

    @cached_property
    def workers(self) -> FloatArray:
        """Return the number of GPUs of each type."""
        return np.array([*self.cluster.workers.values()], dtype=np.float64)

    @cached_property
    def scale_factors(self) -> FloatArray:
        """Return the number of GPUs of each job."""
        return np.array([active.job.scale_factor for active in self.jobs], dtype=np.float64)

    @cached_property
    def weights(self) -> FloatArray:
        """Return the weight of each job."""
        return np.array([active.job.weight for active in self.jobs], dtype=np.float64)

    @cached_property
    def steps_left(self) -> FloatArray:
        """Return the steps that each job has left."""
        return np.array([active.steps_left for active in self.jobs], dtype=np.float64)

    @cached_property
    def fastest_alone(self) -> IntArray:
        """Return the fastest configuration of each job alone on each type, (jobs, types); -1 for none.

        It is that on its usual number of GPUs, its scale factor.
        """
        configs = self.configurations
        table = np.full((len(self.jobs), len(self.workers)), NO_CONFIGURATION, dtype=np.int64)
        is_usual = configs.is_alone & (configs.gpus == self.scale_factors[configs.jobs[:, 0]])
        slowest_first = np.argsort(configs.steps_per_s[:, 0], kind="stable")
        usual = slowest_first[is_usual[slowest_first]]
        table[configs.jobs[usual, 0], configs.gpu_type[usual]] = usual
        return table

    @cached_property
    def alone_steps_per_s(self) -> FloatArray:
        """Return the throughput of each of `fastest_alone`, shape (jobs, types); 0 for none."""
        return np.append(self.configurations.steps_per_s[:, 0], 0.0)[self.fastest_alone]

    @cached_property
    def fastest_steps_per_s(self) -> FloatArray:
        """Return the highest throughput that each job has in any configuration, alone or not."""
        fastest = np.zeros(len(self.jobs) + 1)
        np.maximum.at(fastest, self.configurations.jobs, self.configurations.steps_per_s)
        return fastest[:-1]

    @cached_property
    def proportional_steps_per_s(self) -> FloatArray:
        """Return the throughput of each job whose time is divided as the GPUs among the types."""
        proportional: FloatArray = self.alone_steps_per_s @ (self.workers / self.workers.sum())
        return proportional

    @cached_property
    def dollars_per_hour(self) -> FloatArray:
        """Return the price of all GPUs of each configuration, in dollars per hour."""
        prices = np.array([self.cluster.price_of(gpu_type) for gpu_type in self.cluster.gpu_types])
        return prices[self.configurations.gpu_type] * self.configurations.gpus

    @cached_property
    def added_power_w(self) -> FloatArray:
        """Return the power of each configuration above the idle power of its GPUs, in W."""
        cluster, configs = self.cluster, self.configurations
        idle_w = np.array([cluster.idle_power_w.get(gpu_type, 0.0) for gpu_type in cluster.gpu_types])
        return configs.power_w - idle_w[configs.gpu_type] * configs.gpus

    def rates(self, shares: FloatArray) -> FloatArray:
        """Return the effective throughput of each job in steps per second (dissertation, Sec. 5.3.1)."""
        rates = np.zeros(len(self.jobs) + 1)  # the last one gathers what nobody does
        np.add.at(rates, self.configurations.jobs, self.configurations.steps_per_s * shares[:, None])
        return rates[:-1]

    def coefficients(self, factors: FloatArray) -> FloatArray:
        """Return each configuration's coefficient in the sum of factor x throughput over the jobs."""
        added: FloatArray = (
            self.configurations.steps_per_s * np.append(factors, 0.0)[self.configurations.jobs]
        ).sum(axis=1)
        return added

    def times(self, shares: FloatArray) -> FloatArray:
        """Return the share of the time in which each job runs."""
        times = np.zeros(len(self.jobs) + 1)
        np.add.at(times, self.configurations.jobs, np.repeat(shares[:, None], 2, axis=1))
        return times[:-1]

    def shares_alone(self, times: FloatArray) -> FloatArray:
        """Return the shares of jobs that run alone and as fast as they can for given times, (jobs, types).

        Times where a job cannot run are lost.
        """
        shares = np.zeros(len(self.configurations))
        is_there = self.fastest_alone != NO_CONFIGURATION
        shares[self.fastest_alone[is_there]] = times[is_there]
        return shares

    def without_pairs(self) -> Demand:
        """Return the demand in which no two jobs share GPUs."""
        if bool(self.configurations.is_alone.all()):
            return self
        return replace(self, configurations=self.configurations.only(self.configurations.is_alone))
