"""Policies: a name, and a function from a demand to an allocation; and rules that many of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from schedsearch.cluster.allocation import Allocation, InfeasibleError, check_allocation
from schedsearch.cluster.demand import NO_CONFIGURATION, Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.policies.program import AllocationProgram

SLACK = 1e-8
"""Part by which a throughput that was found is lowered when it becomes a floor, against rounding."""


class Policy(Protocol):
    """A policy: decides which jobs run on which GPUs, and their shares of the time.

    A policy may keep state between decisions: all decisions of a run go to one object, in order of time.
    With ``fills_idle_gpus = False`` a GPU to which the policy gives no job idles in simulations.
    """

    @property
    def name(self) -> str:
        """Return the policy's name, as on the command line."""

    @property
    def shares_space(self) -> bool:
        """Return whether the policy uses configurations of two jobs; if not, callers need not make them."""

    def allocate(self, demand: Demand) -> Allocation:
        """Return an allocation; its demand has no pairs if the policy does not use them.

        Raises:
            InfeasibleError: No allocation meets the policy's demands; the message says why.
        """


@dataclass(frozen=True, kw_only=True)
class SharesPolicy(ABC):
    """One of Gavel's policies of shares, in three forms: plain, agnostic of the types, with space sharing.

    An *agnostic* policy takes all types for equal: each job runs on any as on the first one of the cluster
    that it can run on. Its objective is in these throughputs; what jobs then get is their real throughput.

    Attributes:
        shares_space: Two jobs may run on the same GPUs.
        is_agnostic: Whether the policy takes all GPU types as equal.
    """

    shares_space: bool = False
    is_agnostic: bool = False

    term: ClassVar[str]
    """The policy's name without the suffix of its form."""

    @property
    def name(self) -> str:
        """Return the policy's name, as on the command line."""
        return self.term + "_agnostic" * self.is_agnostic + "_packed" * self.shares_space

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocation that is best for the policy."""
        real = demand if self.shares_space else demand.without_pairs()
        if not self.is_agnostic:
            return Allocation(real, *self._best(real))
        return _spread(Allocation(real, *self._best(_with_equal_types(real))))

    @abstractmethod
    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        """Return the share of each configuration, and the objective."""


def filled(
    program: AllocationProgram, shares: FloatArray, needed: FloatArray, values: FloatArray | None = None
) -> FloatArray:
    """Return shares that keep each job's needed throughput and also use GPUs that were left idle.

    Many allocations have the best least: often one long job alone decides it, and a solver's corner leaves
    most GPUs to nobody. Of the allocations that meet all needs, this one has the largest sum of
    throughput / highest throughput alone; water filling divides what is left fairly. Where rounding keeps the
    solver from it, which needs throughputs that differ by some 1e8, the shares stay.

    Args:
        program: Rules of the demand.
        shares: Shares with the best least.
        needed: Steps per second that each job is to have.
        values: Value of each job in that sum; 1 where none are given.
    """
    demand = program.demand
    program.set_floors(needed * (1 - SLACK))
    try:
        fuller = program.maximize(worth(demand, np.ones(len(demand.jobs)) if values is None else values))
    except InfeasibleError:
        return shares
    return fuller if (demand.rates(fuller) >= needed * (1 - 10 * SLACK)).all() else shares


def worth(demand: Demand, values: FloatArray) -> FloatArray:
    """Return the worth of each configuration at a share of 1, from each job's value at its fastest alone."""
    fastest = demand.alone_steps_per_s.max(axis=1, initial=0.0)
    return demand.coefficients(np.divide(values, fastest, out=np.zeros(len(fastest)), where=fastest > 0))


def check_runnable(demand: Demand, policy: str) -> None:
    """Check that each job makes steps alone on some type; else the least throughput is always 0.

    Raises:
        InfeasibleError: One does not.
    """
    for active, rate in zip(demand.jobs, demand.alone_steps_per_s.max(axis=1).tolist(), strict=True):
        if not rate > 0:
            raise InfeasibleError(
                f"{policy}: job {active.name} has no throughput on any GPU type that has its "
                f"{active.job.scale_factor} GPUs; leave it out, or give its throughput"
            )


def _with_equal_types(demand: Demand) -> Demand:
    """Return the demand of an agnostic policy: each job is as fast on all types as on its first one."""
    is_there = demand.fastest_alone != NO_CONFIGURATION
    reference = demand.alone_steps_per_s[np.arange(len(demand.jobs)), is_there.argmax(axis=1)]
    configs = demand.configurations
    equal = np.append(reference, 0.0)[configs.jobs]
    return replace(demand, configurations=replace(configs, steps_per_s=equal))


def _spread(allocation: Allocation) -> Allocation:
    """Return an allocation with the same time for each job, divided among its types like their GPUs.

    Policies that take all types for equal leave it to the solver on which of them a job runs. Where such a
    division does not fit, as some jobs cannot run everywhere, the allocation is left as it is.
    """
    demand = allocation.demand
    parts = (demand.fastest_alone != NO_CONFIGURATION) * demand.workers
    times = demand.times(allocation.shares) / np.maximum(parts.sum(axis=1), 1)
    divided = Allocation(demand, demand.shares_alone(parts * times[:, None]), allocation.objective)
    try:
        check_allocation(divided)
    except ClusterError:
        return allocation
    return divided
