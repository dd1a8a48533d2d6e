"""Policies about money: least cost, least cost with deadlines, least makespan within a budget (Sec. 6.4).

Two jobs never share GPUs here, because whose money it is then is nobody's to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from schedsearch.cluster.allocation import Allocation, InfeasibleError
from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.policies.policy import check_runnable
from schedsearch.cluster.policies.program import AllocationProgram

SECONDS_PER_HOUR = 3600.0

EXACT = 1e-9
"""Part by which two numbers may differ that are equal but for rounding."""

TINY = float(np.finfo(np.float64).tiny)

DEARER = 1e-6
"""Part by which steps may be dearer than the least, as deadlines may leave no choice but for rounding."""


@dataclass(frozen=True)
class MinCost:
    """Makes many steps per dollar.

    The dissertation (Sec. 6.4.2) maximizes the sum over jobs of throughput / cost. That is no
    linear-fractional program with more than one job, and a job's ratio depends only on how its time is
    divided among types, not on how much it gets: any allocation in which each job runs on its cheapest type
    alone is optimal, even one of next to no time. So there are two aims:

    - `steps_per_dollar` is what Gavel's code solves: the largest sum of share x throughput / price of a GPU.
      On another number of GPUs than the job's usual one, its dollars are shared among the usual ones.
      Jobs of many steps per dollar come first, and a job may get nothing.
    - `dollars` is the least money in which all steps left can be done: each job on its cheapest type. A
      program then gives away the GPUs by the first aim, where that makes no job's steps dearer.

    Attributes:
        aim: One of the two.
    """

    aim: Literal["steps_per_dollar", "dollars"] = "steps_per_dollar"

    shares_space: ClassVar[bool] = False
    fills_idle_gpus: ClassVar[bool] = False
    """A GPU that the program leaves idle is too dear for the jobs."""
    name: ClassVar[str] = "min_cost"

    def __post_init__(self) -> None:
        """Check the aim."""
        is_known = self.aim in ("steps_per_dollar", "dollars")
        require(is_known, f"policy {self.name}: aim", self.aim, "known; give steps_per_dollar or dollars")

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation.

        Its objective is the sum of steps/s per dollar/hour, or the dollars until all jobs are done.

        Raises:
            InfeasibleError: An SLO cannot be met, or a job has no throughput.
            ClusterError: A type of the cluster has no price.
        """
        real = demand.without_pairs()
        check_runnable(real, self.name)
        for gpu_type in real.cluster.gpu_types:
            if not real.cluster.price_of(gpu_type) > 0:
                raise ClusterError(
                    f"policy {self.name}: cluster.dollars_per_hour.{gpu_type} is not above 0; give its price"
                )
        program = AllocationProgram(real)
        seconds, notes = self._seconds(program)
        program.set_floors(real.steps_left / seconds)
        per_dollar = real.coefficients(real.scale_factors) / real.dollars_per_hour
        if self.aim == "steps_per_dollar":
            shares = program.maximize(per_dollar)
            return Allocation(real, shares, float(per_dollar @ shares), notes)
        # where each job is done exactly at its deadline, dollars are linear in the shares
        has_slo = np.isfinite(seconds)
        unit_s = float(seconds[has_slo].max(initial=1.0))
        factors = np.where(has_slo, seconds / unit_s, 1.0)
        shares = program.maximize(-real.dollars_per_hour * factors[real.configurations.jobs[:, 0]])
        per_step = _cheapest_dollars_per_step(real)
        per_step[has_slo] = (_dollars_per_s(real, shares) / np.maximum(real.rates(shares), TINY))[has_slo]
        _limit_dollars_per_step(program, per_step)
        return Allocation(real, program.maximize(per_dollar), float(per_step @ real.steps_left), notes)

    def _seconds(self, program: AllocationProgram) -> tuple[FloatArray, tuple[str, ...]]:
        """Return the seconds in which each job must be done, infinite for any, and what is left out."""
        return np.full(len(program.demand.jobs), np.inf), ()


@dataclass(frozen=True)
class MinCostWithSlos(MinCost):
    """Makes many steps per dollar, and each job is done within its SLO (dissertation, Sec. 6.4.3).

    With `dollars` as the aim it is exact too: a job's dollars per step do not change when all its shares
    shrink alike, so one may think of each job as done exactly at its deadline. Then its dollars are linear in
    its shares, and one linear program finds the least.

    Attributes:
        on_infeasible: What is done where not all SLOs can be met: say so, or leave some out; then no other of
            those left out could be met in addition, and `Allocation.notes` says which they are.
        margin_s: Seconds by which a job is to be done before its SLO where it can, as rounds do not give
            exactly the shares.
    """

    on_infeasible: Literal["error", "drop"] = "error"
    margin_s: float = 0.0

    name: ClassVar[str] = "min_cost_slo"

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        where, choice, margin_s = f"policy {self.name}", self.on_infeasible, self.margin_s
        require(choice in ("error", "drop"), f"{where}: on_infeasible", choice, "known; give error or drop")
        require(0 <= margin_s < math.inf, f"{where}: margin_s", margin_s, "0 or more; give seconds")

    def _seconds(self, program: AllocationProgram) -> tuple[FloatArray, tuple[str, ...]]:
        demand = program.demand
        left = np.array([active.slo_left_s for active in demand.jobs])
        alone = demand.steps_left / demand.alone_steps_per_s.max(axis=1)
        seconds = np.maximum(left - self.margin_s, np.minimum(left, alone))
        notes = []
        for job in np.flatnonzero(seconds < alone * (1 - EXACT)).tolist():
            said = (
                f"{self.name}: job {demand.jobs[job].name} has {seconds[job]:.6g} s left for its SLO, but "
                f"needs {alone[job]:.6g} s on its fastest type alone"
            )
            if self.on_infeasible == "error":
                raise InfeasibleError(f"{said}; give it at least that, or on_infeasible=drop")
            seconds[job] = np.inf
            notes.append(said)
        seconds = np.maximum(seconds, alone)
        jobs = np.flatnonzero(np.isfinite(seconds))
        if not len(jobs) or _can_meet(program, seconds):
            return seconds, tuple(notes)
        program.set_floors(np.zeros(len(seconds)))
        inverse = seconds[jobs] / demand.steps_left[jobs]
        met = program.maximize_gains(inverse, jobs, np.zeros(len(jobs)), 1.0)
        if self.on_infeasible == "error":
            worst = demand.jobs[int(jobs[met.argmin()])].name
            _, part = program.maximize_least(inverse, jobs)
            raise InfeasibleError(
                f"{self.name}: the SLOs of {len(jobs)} jobs cannot be met together, that of job {worst} "
                f"least; give each {1 / part:.4g} times the time left, or on_infeasible=drop"
            )
        kept = seconds.copy()
        kept[jobs[met < 1 - EXACT]] = np.inf
        for job in jobs[np.argsort(-met, kind="stable")].tolist():
            if not np.isfinite(kept[job]):
                kept[job] = seconds[job]
                if not _can_meet(program, kept):
                    kept[job] = np.inf
        notes += [
            f"{self.name}: the SLO of job {demand.jobs[job].name} cannot be met beside the others"
            for job in jobs[np.isinf(kept[jobs])].tolist()
        ]
        return kept, tuple(notes)


@dataclass
class MakespanWithinBudget:
    """The least time in which all jobs can be done within a budget (dissertation, Sec. 6.4.3).

    The dissertation searches for the makespan by bisection. With z = 1 / makespan all its rules are linear in
    the shares and z (throughput >= steps x z, dollars per second <= budget x z), so one program is exact.

    What a run has spent so far is estimated from the steps done and the last allocation's dollars per step;
    where too little is left by then to finish, the rest is done for as little as can be.

    Attributes:
        budget_dollars: For all steps that are left at the first decision; above 0.
    """

    budget_dollars: float = math.inf

    shares_space: ClassVar[bool] = False
    fills_idle_gpus: ClassVar[bool] = False
    name: ClassVar[str] = "makespan_budget"
    _spent_dollars: float = field(default=0.0, init=False, repr=False)
    _last: dict[str, tuple[float, float]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the budget."""
        budget = self.budget_dollars
        require(budget > 0, f"policy {self.name}: budget_dollars", budget, "above 0; give dollars")

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation; the objective is the makespan from now on, in seconds.

        Raises:
            InfeasibleError: The budget is too small, or a job has no throughput.
            ClusterError: A type of the cluster has no price.
        """
        real = demand.without_pairs()
        check_runnable(real, self.name)
        if self._last is not None:
            left = {active.name: active.steps_left for active in real.jobs}
            for name, (steps, dollars) in self._last.items():
                self._spent_dollars += dollars * max(steps - left.get(name, 0.0), 0.0)
        left_dollars = self.budget_dollars - self._spent_dollars
        cheapest = _cheapest_dollars_per_step(real)
        least = float(cheapest @ real.steps_left)
        if self._last is None and least > left_dollars * (1 + EXACT):
            raise InfeasibleError(
                f"{self.name}: the jobs cost at least {least:.2f} dollars, which is above the budget of "
                f"{left_dollars:.2f}; give budget_dollars={math.ceil(least * 100) / 100:.2f} or more"
            )
        program = AllocationProgram(real)
        unit_s = float((real.steps_left / real.alone_steps_per_s.max(axis=1)).max(initial=0.0))
        if left_dollars <= least * (1 + EXACT):
            _limit_dollars_per_step(program, cheapest)
        elif math.isfinite(left_dollars):
            per_least = left_dollars / unit_s * SECONDS_PER_HOUR if unit_s else 0.0
            program.limit(real.dollars_per_hour, 0.0, per_least=per_least)
        shares, pace = program.maximize_least(unit_s / real.steps_left)
        found = Allocation(real, shares, unit_s / pace)
        per_step = (_dollars_per_s(real, shares) / found.rates).tolist()
        self._last = {one.name: (one.steps_left, each) for one, each in zip(real.jobs, per_step, strict=True)}
        return found


def _limit_dollars_per_step(program: AllocationProgram, dollars_per_step: FloatArray) -> None:
    demand = program.demand
    jobs = demand.configurations.jobs[:, 0]
    allowed = dollars_per_step[jobs] * demand.configurations.steps_per_s[:, 0] * (1 + DEARER)
    above = demand.dollars_per_hour / SECONDS_PER_HOUR / allowed - 1
    program.limit(above * demand.configurations.steps_per_s[:, 0], 0.0, rules=jobs)


def _can_meet(program: AllocationProgram, seconds: FloatArray) -> bool:
    program.set_floors(program.demand.steps_left / seconds)
    try:
        program.maximize(np.zeros(len(program.demand.configurations)))
    except InfeasibleError:
        return False
    return True


def _dollars_per_s(demand: Demand, shares: FloatArray) -> FloatArray:
    """Return what each job costs per second."""
    hourly = np.bincount(
        demand.configurations.jobs[:, 0], demand.dollars_per_hour * shares, minlength=len(demand.jobs)
    )
    return hourly / SECONDS_PER_HOUR


def _cheapest_dollars_per_step(demand: Demand) -> FloatArray:
    """Return what a step of each job costs where it costs least."""
    found = demand.configurations
    cheapest = np.full(len(demand.jobs), np.inf)
    dollars_per_s = demand.dollars_per_hour / SECONDS_PER_HOUR
    np.minimum.at(cheapest, found.jobs[:, 0], dollars_per_s / found.steps_per_s[:, 0])
    return cheapest
