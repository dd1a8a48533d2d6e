"""An allocation: the share of the time that each configuration is to run, and the rules that it must keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedsearch.cluster.demand import NOBODY, Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError

TOLERANCE = 1e-6
"""Excess that sums of shares may have over what there is, per GPU or job: the solver's own is 1e-7 or so."""


class InfeasibleError(ClusterError):
    """No allocation does what the policy asks for; the message says which job or limit is in the way."""


@dataclass(frozen=True)
class UsedConfiguration:
    """A configuration that gets time.

    Attributes:
        jobs: Names of the one, or of both, that run in it.
        gpu_type: Where.
        gpus: How many it takes.
        clock_mhz: 0 where it is not set.
        steps_per_s: Speed of each of the jobs while it runs.
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
        demand: What it was asked.
        shares: Share of the time in which each configuration of the demand runs; 0 to 1.
        objective: What the policy maximizes or minimizes, in its own unit.
        notes: What the policy could not do and left out, one line each.
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
        """Return what the GPUs that are used cost."""
        return float(self.demand.dollars_per_hour @ self.shares)

    @property
    def power_w(self) -> float:
        """Return what all GPUs draw on average, in W; those without a job their idle power."""
        return self.demand.idle_power_w + float(self.demand.added_power_w @ self.shares)

    def used(self, above: float) -> tuple[UsedConfiguration, ...]:
        """Return the configurations whose share is above some rounding, by names, in the demand's order."""
        found, types = self.demand.configurations, self.demand.cluster.gpu_types
        names = [active.name for active in self.demand.jobs]
        return tuple(
            UsedConfiguration(
                tuple(names[job] for job in found.jobs[index].tolist() if job != NOBODY),
                types[found.gpu_type[index]],
                int(found.gpus[index]),
                int(found.clock_mhz[index]),
                tuple(found.steps_per_s[index, found.jobs[index] != NOBODY].tolist()),
                share,
            )
            for index, share in enumerate(self.shares.tolist())
            if share > above
        )


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
    found = demand.configurations
    gpus = np.bincount(found.gpu_type, found.gpus * shares, len(demand.workers))
    times = ((f"time of job {active.name}", 1.0) for active in demand.jobs)
    limits = (*times, *((f"{name} GPUs", count) for name, count in demand.cluster.workers.items()))
    used = (*demand.times(shares), *gpus, allocation.power_w)
    for (what, limit), value in zip((*limits, ("W", demand.cluster.power_cap_w)), used, strict=True):
        if value > limit + TOLERANCE * max(limit, 1):
            raise ClusterError(f"{what}: {value} are used of {limit}")
