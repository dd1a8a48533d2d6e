"""Policies about money and energy: do the jobs at the least cost (dissertation, Sec. 6.4, and ours).

Two jobs never share GPUs under the policies about money, because their cost could not be divided.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from schedsearch.cluster.allocation import Allocation, InfeasibleError
from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.policies.fairness import fair_factors
from schedsearch.cluster.policies.policy import check_runnable
from schedsearch.cluster.policies.program import AllocationProgram

SECONDS_PER_HOUR = 3600.0

EXACT = 1e-9
"""Part by which two numbers may differ that are equal but for rounding."""

KEPT = 1 - 1e-7
"""Share of a floor that a program before found to be possible: its rounding errors are left to it."""

MIN_ASKED = 1e-6
"""Share of its best throughput that a job with an SLO is given at least, as solvers are no more precise."""


@dataclass(frozen=True)
class SpendingPolicy(ABC):
    """Takes the best of all allocations that give each job its floor; by itself the floor is 0."""

    name: ClassVar[str]
    shares_space: ClassVar[bool] = False
    fills_idle_gpus: ClassVar[bool] = False
    """A GPU that the program leaves idle is too dear for the jobs."""

    @abstractmethod
    def _costs(self, demand: Demand) -> tuple[FloatArray, float]:
        """Return the cost of each configuration at a share of 1, and the fixed cost without any."""

    def _set_floors(self, program: AllocationProgram) -> tuple[str, ...]:
        """Set the floor of each job's throughput, and return a note for each requirement left out."""
        return ()

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation of least cost, which is the objective.

        Raises:
            InfeasibleError: A job has no throughput.
            ClusterError: The policy needs prices or powers that are not known.
        """
        check_runnable(demand, self.name)
        costs, cost_of_idling = self._costs(demand)
        program = AllocationProgram(demand)
        notes = self._set_floors(program)
        shares = program.maximize(-costs)
        return Allocation(demand, shares, cost_of_idling + float(costs @ shares), notes)


@dataclass(frozen=True)
class MinCost(SpendingPolicy):
    """Makes many steps per dollar.

    The dissertation (Sec. 6.4.2) maximizes the sum over jobs of throughput / cost. That is no
    linear-fractional program with more than one job, and a job's ratio depends only on how its time is
    divided among types, not on how much it gets. This is what Gavel's code solves: the largest sum of share x
    throughput / price of a GPU. On another number of GPUs than the job's usual one, its dollars are shared
    among the usual ones. Jobs of many steps per dollar come first, and a job may get nothing.
    """

    name: ClassVar[str] = "min_cost"

    def _costs(self, demand: Demand) -> tuple[FloatArray, float]:
        for gpu_type in demand.cluster.gpu_types:
            if not demand.cluster.price_of(gpu_type) > 0:
                raise ClusterError(
                    f"policy {self.name}: cluster.dollars_per_hour.{gpu_type} is not above 0; give its price"
                )
        return -demand.coefficients(demand.scale_factors) / demand.dollars_per_hour, 0.0

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation; its objective is the sum of steps/s per dollar/hour."""
        allocation = super().allocate(demand.without_pairs())
        return replace(allocation, objective=0.0 - allocation.objective)


@dataclass(frozen=True)
class MinCostWithSlos(MinCost):
    """Makes many steps per dollar, and each job is done within its SLO (dissertation, Sec. 6.4.3).

    SLOs that cannot be kept are in `Allocation.notes`; see `set_floors`.

    Attributes:
        margin_s: Seconds by which a job is to be done before its SLO; rounds do not give exactly the shares.
    """

    margin_s: float = 0.0

    name: ClassVar[str] = "min_cost_slo"

    def __post_init__(self) -> None:
        """Check the margin."""
        _check_margin(self.name, self.margin_s)

    def _set_floors(self, program: AllocationProgram) -> tuple[str, ...]:
        return set_floors(program, self.margin_s)


@dataclass
class MakespanWithinBudget:
    """The least time in which all jobs can be done within a budget (dissertation, Sec. 6.4.3).

    The dissertation searches for the makespan by bisection. With z = 1 / makespan all its rules are linear in
    the shares and z (throughput >= steps x z, dollars per second <= budget x z), so one program is exact.

    The spending so far is estimated from the steps done and the last allocation's dollars per step;
    where too little is left by then to finish, each job runs only where its steps cost least.

    Attributes:
        budget_dollars: For all steps that are left at the first decision; above 0.
    """

    budget_dollars: float = math.inf

    shares_space: ClassVar[bool] = False
    fills_idle_gpus: ClassVar[bool] = False
    name: ClassVar[str] = "makespan_budget"

    def __post_init__(self) -> None:
        """Check the budget, of which nothing is spent."""
        budget = self.budget_dollars
        require(budget > 0, f"policy {self.name}: budget_dollars", budget, "above 0; give dollars")
        self._spent_dollars, self._last = 0.0, dict[str, tuple[float, float]]()

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation; the objective is the makespan from now on, in seconds.

        Raises:
            InfeasibleError: The budget is too small, or a job has no throughput.
        """
        real = demand.without_pairs()
        check_runnable(real, self.name)
        left = {active.name: active.steps_left for active in real.jobs}
        for name, (steps, dollars) in self._last.items():
            self._spent_dollars += dollars * max(steps - left.get(name, 0.0), 0.0)
        left_dollars = self.budget_dollars - self._spent_dollars
        job = real.configurations.jobs[:, 0]
        per_step = real.dollars_per_hour / SECONDS_PER_HOUR / real.configurations.steps_per_s[:, 0]
        cheapest = np.full(len(real.jobs), np.inf)
        np.minimum.at(cheapest, job, per_step)
        least = float(cheapest @ real.steps_left)
        if not self._last and least > left_dollars * (1 + EXACT):
            raise InfeasibleError(
                f"{self.name}: the jobs cost at least {least:.2f} dollars, which is above the budget of "
                f"{left_dollars:.2f}; give budget_dollars={math.ceil(least * 100) / 100:.2f} or more"
            )
        program = AllocationProgram(real)
        unit_s = float((real.steps_left / real.alone_steps_per_s.max(axis=1)).max(initial=0.0))
        if left_dollars <= least * (1 + EXACT):
            program.limit((per_step > cheapest[job] * (1 + EXACT)).astype(np.float64), 0.0)
        elif math.isfinite(left_dollars):
            per_least = left_dollars / unit_s * SECONDS_PER_HOUR if unit_s else 0.0
            program.limit(real.dollars_per_hour, 0.0, per_least=per_least)
        shares, pace = program.maximize_least(unit_s / real.steps_left)
        allocation = Allocation(real, shares, unit_s / pace)
        hourly = np.bincount(job, real.dollars_per_hour * shares, minlength=len(real.jobs))
        dollars = (hourly / SECONDS_PER_HOUR / allocation.rates).tolist()
        self._last = {name: (steps, cost) for (name, steps), cost in zip(left.items(), dollars, strict=True)}
        return allocation


@dataclass(frozen=True)
class LeastEnergy(SpendingPolicy):
    """Minimizes the average power in W, the objective, under each job's floor.

    A configuration has a clock, so the policy chooses speeds too: a job that has time runs slowly, where a
    step takes less energy. A job without an SLO, or whose SLO nothing can keep any more, must get a share of
    its max-min fair throughput beside the others' SLOs; see `set_floors`.

    Attributes:
        min_share: Share of its max-min fair throughput that a job without SLO gets; 0 to 1.
        margin_s: Seconds by which a job is to be done before its SLO; rounds do not give exactly the shares.

    Raises:
        ClusterError: A number is out of its range.
    """

    min_share: float = 0.9
    margin_s: float = 0.0

    name: ClassVar[str] = "least_energy_slo"

    def __post_init__(self) -> None:
        """Check the numbers."""
        share = self.min_share
        require(0 <= share <= 1, f"policy {self.name}: min_share", share, "between 0 and 1; give a share")
        _check_margin(self.name, self.margin_s)

    def _set_floors(self, program: AllocationProgram) -> tuple[str, ...]:
        return set_floors(program, self.margin_s, self.min_share)

    def _costs(self, demand: Demand) -> tuple[FloatArray, float]:
        if demand.jobs and not demand.configurations.power_w.any():
            raise ClusterError(
                f"policy {self.name}: the throughputs say nothing of powers; give power_w, or take another "
                "policy"
            )
        return demand.added_power_w, demand.cluster.all_idle_w


@dataclass(frozen=True)
class LeastCost(LeastEnergy):
    """Minimizes the dollars per hour for GPUs in use and electricity, under the floors of `LeastEnergy`.

    The objective is these dollars per hour, with the electricity of idle GPUs.

    Attributes:
        dollars_per_kwh: Price of electricity; 0 where the GPUs' price has it.
    """

    dollars_per_kwh: float = 0.1

    name: ClassVar[str] = "least_cost_slo"

    def _costs(self, demand: Demand) -> tuple[FloatArray, float]:
        of_power = self.dollars_per_kwh / 1e3
        return demand.dollars_per_hour + of_power * demand.added_power_w, of_power * demand.cluster.all_idle_w


def _check_margin(policy: str, margin_s: float) -> None:
    is_right = 0 <= margin_s < math.inf
    require(is_right, f"policy {policy}: margin_s", margin_s, "0 or more; give seconds")


def set_floors(program: AllocationProgram, margin_s: float, min_share: float = 0.0) -> tuple[str, ...]:
    """Set each job's throughput floor so that SLOs are kept; return a note for each SLO that cannot be.

    A job with an SLO must get the steps it has left over the time it has left, and be done a margin before
    that where it can. Where not all of these can be had, each has the same share of what it needs. The other
    jobs, and those whose SLO nothing can keep any more, come after them.

    Args:
        program: Rules of the demand.
        margin_s: Seconds.
        min_share: Share of its max-min fair throughput that each of the others must get.
    """
    demand = program.demand
    left_s = np.array([active.slo_left_s for active in demand.jobs])
    best = _best_rates(program)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(left_s > 0, demand.steps_left / left_s, np.inf)
        hurried = np.where(left_s > margin_s, demand.steps_left / (left_s - margin_s), np.inf)
    keeps_slo = np.isfinite(left_s) & (needed <= best * (1 + EXACT))
    lost = np.flatnonzero(np.isfinite(left_s) & ~keeps_slo).tolist()
    notes = [f"job {demand.jobs[job].name}: nothing keeps its SLO" for job in lost]
    floors = np.where(keeps_slo, np.clip(hurried, MIN_ASKED * best, best), 0.0)
    with_floor, others = np.flatnonzero(floors), np.flatnonzero(~keeps_slo)
    program.set_floors(np.zeros(len(floors)))
    _, share = program.maximize_least(1 / floors[with_floor], with_floor)
    if share < 1:
        floors *= max(share, 0.0) * KEPT
    if share < KEPT:
        notes.append(f"the other SLOs cannot all be kept: each job has {share:.4g} of what it needs")
    program.set_floors(floors)
    if len(others) and min_share:
        factors = fair_factors(demand, "max-min fairness")[others]
        _, least = program.maximize_least(factors, others)
        floors[others] = min_share * max(least, 0.0) * KEPT / factors
        program.set_floors(floors)
    return tuple(notes)


def _best_rates(program: AllocationProgram) -> FloatArray:
    """Return the highest throughput that each job could have alone on the cluster, under the power cap."""
    demand, configs = program.demand, program.demand.configurations
    best, power_w = demand.fastest_steps_per_s.copy(), np.zeros(len(demand.jobs) + 1)
    np.maximum.at(power_w, configs.jobs, np.repeat(demand.added_power_w[:, None], 2, axis=1))
    spare_w = demand.cluster.power_cap_w - demand.cluster.all_idle_w
    for job in np.flatnonzero(power_w[:-1] > spare_w):  # the cap may not let it run at its best all the time
        of_job = np.where(configs.jobs == job, configs.steps_per_s, 0.0).sum(axis=1)
        best[job] = of_job @ program.maximize(of_job)
    return best
