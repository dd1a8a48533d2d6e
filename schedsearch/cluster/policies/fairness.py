"""Max-min fairness (least attained service, LAS): the least throughput is as high as can be (Sec. 5.4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.policies.program import Program


@dataclass(frozen=True)
class MaxMinFairness:
    """Maximizes the least of scale factor x throughput / (weight x proportional throughput).

    Attributes:
        shares_space: Two jobs may run on the same GPUs.
    """

    shares_space: bool = False
    name: str = "las"

    def allocate(self, demand: Demand) -> Allocation:
        """Return the fair allocation; the objective is the least normalized throughput."""
        factors = demand.scale_factors / (demand.weights * demand.proportional_steps_per_s)
        shares, least = Program(demand).maximize_least(factors)
        return Allocation(demand, shares, least)
