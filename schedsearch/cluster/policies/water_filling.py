"""Water filling: fair shares that are raised until nobody can gain without another's loss (Sec. 5.4.3).

Max-min fairness leaves what the worst-off job cannot use to chance. Water filling raises all jobs at the
same pace; the *bottlenecked* ones, which can rise no more, keep what they have, and the rest go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from schedsearch.cluster.demand import BoolArray, Demand, FloatArray
from schedsearch.cluster.policies.policy import SharesPolicy, check_runnable
from schedsearch.cluster.policies.program import AllocationProgram

NO_PRICE = 1e-7
"""Price in the program of a level, of all jobs together 1, up to which it is the solver's rounding."""


@dataclass(frozen=True)
class WaterFilling(SharesPolicy):
    """Max-min fairness whose other jobs are raised too, until the allocation is Pareto efficient.

    The objective is the least normalized throughput, as of `las`.
    """

    term: ClassVar[str] = "water_filling"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        weights_of = self._weights_of(demand)
        check_runnable(demand, self.name)
        program = AllocationProgram(demand)
        levels = [*water_levels(program, weights_of)]
        if not levels:
            return np.zeros(len(demand.configurations)), math.inf
        weights = weights_of(np.ones(len(demand.jobs), dtype=np.bool_))
        first = (levels[0].normalized[weights > 0] / weights[weights > 0]).min()
        return program.maximize(demand.coefficients(_factors(demand))), float(first)

    def _weights_of(self, demand: Demand) -> Callable[[BoolArray], FloatArray]:
        """Return the paces at which jobs rise, as `water_levels` asks for them."""
        return lambda _: demand.weights


class WaterLevel(NamedTuple):
    """The result of one pass of water filling.

    Attributes:
        normalized: Scale factor x throughput / proportional throughput that each job has for certain.
        can_rise: True for each job that is not yet known to be bottlenecked.
    """

    normalized: FloatArray
    can_rise: BoolArray


def water_levels(
    program: AllocationProgram, weights_of: Callable[[BoolArray], FloatArray]
) -> Iterator[WaterLevel]:
    """Yield the levels up to the last one, which stay in the program as its floors.

    The dissertation keeps for each job the throughput that it happened to get in the last linear program;
    we keep its level, which is at most that, because then the result does not depend on the solver's choice
    among equal solutions. It asks a mixed-integer program who is bottlenecked. The prices of the level say
    it: a job with a price has its level in all allocations that keep the level, and no more. Not each
    bottlenecked job has one at once; what is left of them has one in the next pass, which raises nobody.

    Args:
        program: Linear program of a demand whose jobs all have a throughput.
        weights_of: From which jobs are not yet bottlenecked to the pace at which each job rises; 0 for those
            that have to wait. It is asked again whenever some are bottlenecked, and gives a pace above 0 to
            at least one that is not.
    """
    factors = _factors(program.demand)
    levels = np.zeros(len(factors))
    can_rise = np.ones(len(factors), dtype=np.bool_)
    program.set_floors(levels)
    while can_rise.any():
        weights = np.where(can_rise, weights_of(can_rise), 0.0)
        raised = np.flatnonzero(weights)
        paces = weights[raised]
        _, gain = program.maximize_least(factors[raised] / paces, raised, levels[raised] / paces)
        levels[raised] += max(gain, 0.0) * paces
        program.set_floors(levels / factors)
        is_stuck = program.prices > NO_PRICE * program.prices.max()
        can_rise[raised[is_stuck]] = False
        yield WaterLevel(levels.copy(), can_rise.copy())


def _factors(demand: Demand) -> FloatArray:
    factors: FloatArray = demand.scale_factors / demand.proportional_steps_per_s
    return factors
