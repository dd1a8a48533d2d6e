"""An allocation: the share of the time of each configuration, and the rules that all allocations keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError

TOLERANCE = 1e-6
"""Excess that sums of shares may have over their limit, per GPU or job: the solver's own is about 1e-7."""


class InfeasibleError(ClusterError):
    """No allocation keeps the policy's rules; the message names the job or limit that prevents one."""


@dataclass(frozen=True)
class UsedConfiguration:
    """A configuration that gets time: fields as in `Configuration`, but for names of jobs, and its share.

    Attributes:
        jobs: Names of the one, or of both, that run in it.
        share: Share of the time; above 0.
    """

    jobs: tuple[str, ...]
    gpu_type: str
    gpus: int
    clock_mhz: int
    steps_per_s: tuple[float, ...]
    share: float


@dataclass(frozen=True, eq=False)
class Allocation:
    """A policy's decision; valid until the next decision.

    Attributes:
        demand: Demand that the policy decided on.
        shares: Share of the time in which each configuration of the demand runs; 0 to 1.
        objective: Value of the policy's objective, in its own unit.
        notes: Requirements that the policy left out because it could not meet them, one line each.
    """

    demand: Demand
    shares: FloatArray
    objective: float
    notes: tuple[str, ...] = ()

    @property
    def rates(self) -> FloatArray:
        """Return the effective throughput of each job, in steps per second."""
        return self.demand.rates(self.shares)

    @property
    def dollars_per_hour(self) -> float:
        """Return the price of the GPUs in use, in dollars per hour."""
        return float(self.demand.dollars_per_hour @ self.shares)

    @property
    def power_w(self) -> float:
        """Return the average power of all GPUs in W; GPUs without a job count at idle power."""
        return self.demand.cluster.all_idle_w + float(self.demand.added_power_w @ self.shares)

    def used(self, above: float) -> tuple[UsedConfiguration, ...]:
        """Return the configurations whose share is above some rounding, by names, in the demand's order."""
        demand, configs = self.demand, self.demand.configurations
        used = []
        for index in np.flatnonzero(self.shares > above).tolist():
            jobs, number, gpus = configs[index]
            names = tuple(demand.jobs[job].name for job in jobs)
            rates, clock_mhz = configs.steps_per_s[index, : len(jobs)].tolist(), int(configs.clock_mhz[index])
            place = demand.cluster.gpu_types[number], gpus, clock_mhz
            used.append(UsedConfiguration(names, *place, tuple(rates), float(self.shares[index])))
        return tuple(used)


def check_allocation(allocation: Allocation) -> None:
    """Check the rules of all allocations without knowing the policy (dissertation, Eq. 5.1 to 5.3).

    Raises:
        ClusterError: A share is outside 0 to 1, a job runs more than all the time, or a type has too few
            GPUs.
    """
    demand, shares = allocation.demand, allocation.shares
    if shares.shape != (len(demand.configurations),):
        raise ClusterError(f"{shares.shape} shares for {len(demand.configurations)} configurations")
    if not np.all((shares >= -TOLERANCE) & (shares <= 1 + TOLERANCE)):
        raise ClusterError(f"shares from {shares.min()} to {shares.max()} are not in 0 to 1")
    configs = demand.configurations
    gpus = np.bincount(configs.gpu_type, configs.gpus * shares, len(demand.workers))
    times = ((f"time of job {active.name}", 1.0) for active in demand.jobs)
    limits = (*times, *((f"{name} GPUs", count) for name, count in demand.cluster.workers.items()))
    used = (*demand.times(shares), *gpus, allocation.power_w)
    for (what, limit), value in zip((*limits, ("W", demand.cluster.power_cap_w)), used, strict=True):
        if value > limit + TOLERANCE * max(limit, 1):
            raise ClusterError(f"{what}: {value} are used of {limit}")
