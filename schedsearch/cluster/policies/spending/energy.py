"""The least energy or money with which jobs keep their deadlines and none gets much less than its fair share.

A configuration has a clock, so these policies choose speeds too: a job that has time runs slowly, where a
step takes less energy. (Max-min fairness under a power cap chooses clocks as well; it needs no policy of its
own, since the cap is a rule of all programs.)

What each job must at least get:

- one with an SLO: the steps it has left over the time it has left;
- one without, or whose SLO nothing can keep any more: a share of what max-min fairness would give it beside
  the others' SLOs.

The first are kept before the second; where they cannot all be kept, each has the same share of what it needs.
Among all allocations that give so much, the cheapest is taken.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.policies.fairness import fair_factors
from schedsearch.cluster.policies.policy import check_runnable
from schedsearch.cluster.policies.program import AllocationProgram

KEPT = 1 - 1e-7
"""Share of a floor that a program before found to be possible: its rounding errors are left to it."""

MIN_ASKED = 1e-6
"""Share of its best throughput that a job with an SLO is given at least, as solvers are no more precise."""


@dataclass(frozen=True)
class CheapestAboveFloors(ABC):
    """Takes what costs least of what gives each job its floor; see the module.

    Attributes:
        min_share: Share of its max-min fair throughput that a job without SLO gets; 0 to 1.
        spare_s: How long before its SLO a job is to be done, as rounds give shares of the time only in steps.

    Raises:
        ClusterError: A number is out of its range.
    """

    min_share: float = 0.9
    spare_s: float = 0.0

    name: ClassVar[str]
    shares_space: ClassVar[bool] = False
    fills_idle_gpus: ClassVar[bool] = False
    """A GPU that idles costs less than one that runs what nobody asked for."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        share, spare_s = self.min_share, self.spare_s
        require(0 <= share <= 1, "min_share", share, "between 0 and 1; give a share")
        require(0 <= spare_s < math.inf, "spare_s", spare_s, "a time; give seconds of 0 or more")

    @abstractmethod
    def _costs(self, demand: Demand) -> tuple[FloatArray, float]:
        """Return what each configuration costs all of the time, and what is to be paid without any."""

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation of least cost, which is the objective.

        Raises:
            InfeasibleError: A job has no throughput.
            ClusterError: The least power is asked for, and none is known.
        """
        costs, cost_of_idling = self._costs(demand)
        check_runnable(demand, self.name)
        program = AllocationProgram(demand)
        notes = self._set_floors(program)
        shares = program.maximize(-costs)
        return Allocation(demand, shares, cost_of_idling + float(costs @ shares), notes)

    def _set_floors(self, program: AllocationProgram) -> tuple[str, ...]:
        """Set the floors of a program's demand, and return SLOs that cannot be kept, a line each."""
        demand = program.demand
        left_s = np.array([active.slo_left_s for active in demand.jobs])
        best = _best_rates(program)
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(left_s > 0, demand.steps_left / left_s, np.inf)
            hurried = np.where(left_s > self.spare_s, demand.steps_left / (left_s - self.spare_s), np.inf)
        has_slo = np.isfinite(left_s)
        keeps_slo = has_slo & (needed <= best)
        floors = np.where(keeps_slo, np.clip(hurried, MIN_ASKED * best, best), 0.0)
        share = _share_that_can_be_kept(program, floors)
        lost = [demand.jobs[job].name for job in np.flatnonzero(has_slo & ~keeps_slo).tolist()]
        notes = [f"job {name}: nothing keeps its SLO; it has a fair share" for name in lost]
        if share < 1:
            floors *= share * KEPT
            notes.append(f"the other SLOs cannot all be kept: each job has {share:.4g} of what it needs")
        program.set_floors(floors)
        others = np.flatnonzero(~keeps_slo)
        if others.size:
            factors = fair_factors(demand, self.name)[others]
            _, least = program.maximize_least(factors, others)
            floors[others] = self.min_share * max(least, 0.0) * KEPT / factors
            program.set_floors(floors)
        return tuple(notes)


@dataclass(frozen=True)
class LeastEnergy(CheapestAboveFloors):
    """Takes the least average power that gives each job its floor; the objective is that power, in W."""

    name: ClassVar[str] = "least_energy_slo"

    def _costs(self, demand: Demand) -> tuple[FloatArray, float]:
        if demand.jobs and not demand.configurations.power_w.any():
            raise ClusterError(
                f"policy {self.name}: the throughputs say nothing of powers; give power_w, or take another "
                "policy"
            )
        return demand.added_power_w, demand.idle_power_w


@dataclass(frozen=True)
class LeastCost(CheapestAboveFloors):
    """Takes the least dollars per hour that give each job its floor: GPUs that are used, and electricity.

    The objective is these dollars per hour, with the electricity of idle GPUs.

    Attributes:
        dollars_per_kwh: Price of electricity; 0 where the GPUs' price has it.
    """

    dollars_per_kwh: float = 0.1

    name: ClassVar[str] = "least_cost_slo"

    def _costs(self, demand: Demand) -> tuple[FloatArray, float]:
        of_power = self.dollars_per_kwh / 1e3
        return demand.dollars_per_hour + of_power * demand.added_power_w, of_power * demand.idle_power_w


def _best_rates(program: AllocationProgram) -> FloatArray:
    """Return the highest throughput of each job if it were the only one, with the power cap."""
    demand, found = program.demand, program.demand.configurations
    best, power_w = demand.fastest_steps_per_s.copy(), np.zeros(len(demand.jobs) + 1)
    np.maximum.at(power_w, found.jobs, np.repeat(demand.added_power_w[:, None], 2, axis=1))
    spare_w = demand.cluster.power_cap_w - demand.idle_power_w
    for job in np.flatnonzero(power_w[:-1] > spare_w):  # the cap may not let it run at its best all the time
        program.set_floors(np.zeros(len(demand.jobs)))
        of_job = np.where(found.jobs == job, found.steps_per_s, 0.0).sum(axis=1)
        best[job] = of_job @ program.maximize(of_job)
    return best


def _share_that_can_be_kept(program: AllocationProgram, wanted: FloatArray) -> float:
    """Return the largest share, at most 1, of what each job wants that all can have together."""
    jobs = np.flatnonzero(wanted)
    if not jobs.size:
        return 1.0
    program.set_floors(np.zeros(len(wanted)))
    _, share = program.maximize_least(1 / wanted[jobs], jobs)
    return min(max(share, 0.0), 1.0)
