"""Water filling: fair shares, raised until no job can gain without another's loss (Sec. 5.4.3).

Max-min fairness leaves what the worst-off job cannot use to chance. Water filling raises all jobs at the
same pace; the *bottlenecked* ones, which can rise no more, keep what they have, and the rest go on. With
paces by entity it is fairness between entities, and fairness or first in first out inside each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from schedsearch.cluster.demand import BoolArray, Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.policies.policy import SharesPolicy, check_runnable
from schedsearch.cluster.policies.program import AllocationProgram

NO_PRICE = 1e-7
"""Price in the program of a level, of all jobs together 1, up to which it is the solver's rounding."""

Paces = Callable[[BoolArray], FloatArray]
"""Function from a mask of jobs not yet bottlenecked to the pace of each; 0 for a job that has to wait."""


@dataclass(frozen=True)
class WaterFilling(SharesPolicy):
    """Max-min fairness whose other jobs are raised too, until the allocation is Pareto efficient.

    The objective is the least normalized throughput, as of `las`.
    """

    term: ClassVar[str] = "water_filling"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        paces = self._paces(demand)
        check_runnable(demand, self.name)
        program = AllocationProgram(demand)
        levels = [*water_levels(program, paces)]
        if not levels:
            return np.zeros(len(demand.configurations)), math.inf
        pace = paces(np.ones(len(demand.jobs), dtype=np.bool_))
        first = (levels[0][pace > 0] / pace[pace > 0]).min()
        return program.maximize(demand.coefficients(_factors(demand))), float(first)

    def _paces(self, demand: Demand) -> Paces:
        return lambda _: demand.weights


@dataclass(frozen=True)
class Entity:
    """An owner of jobs: a team, a user.

    Attributes:
        weight: Weight of the entity beside others; above 0.
        inside: Its jobs share by their weights, or the first that arrived gets what it can use, and so on.

    Raises:
        ClusterError: The weight or the word is wrong.
    """

    weight: float = 1.0
    inside: Literal["fairness", "fifo"] = "fairness"

    def __post_init__(self) -> None:
        """Check the values."""
        is_right = 0 < self.weight < math.inf
        require(is_right, "entity weight", self.weight, "above 0; give a weight above 0")
        is_known = self.inside in ("fairness", "fifo")
        require(is_known, "entity inside", self.inside, "known; give fairness or fifo")


@dataclass(frozen=True)
class Hierarchical(WaterFilling):
    """Raises the entities by their weights until nothing is left to give.

    The weights of an entity's jobs sum to the entity's own, over those jobs that can still rise; what a
    bottlenecked job no longer needs stays in its entity, as long as another of it can use it. The objective
    is the throughput of the first level, per entity weight.

    Attributes:
        entities: Entities by name, as `Job.entity` says it; where none are given, all weigh 1 and are fair
            inside.
    """

    term: ClassVar[str] = "hierarchical"

    entities: Mapping[str, Entity] = field(default_factory=dict)

    def _paces(self, demand: Demand) -> Paces:
        for active in demand.jobs:
            if self.entities and active.job.entity not in self.entities:
                raise ClusterError(
                    f"job {active.name}: entity {active.job.entity!r} is not in policy.entities; "
                    f"it has {', '.join(self.entities)}"
                )
        names = np.array([active.job.entity for active in demand.jobs])

        def paces(can_rise: BoolArray) -> FloatArray:
            pace = np.zeros(len(names))
            for name in dict.fromkeys(names.tolist()):
                entity = self.entities.get(name, Entity())
                able = np.flatnonzero((names == name) & can_rise)
                chosen = able[:1] if entity.inside == "fifo" else able
                pace[chosen] = entity.weight * demand.weights[chosen] / demand.weights[chosen].sum()
            return pace

        return paces


def water_levels(program: AllocationProgram, paces: Paces) -> Iterator[FloatArray]:
    """Yield the guaranteed level of each job after each pass; the last levels stay the program's floors.

    A level is scale factor x throughput / proportional throughput.

    The dissertation keeps for each job the throughput that it happened to get in the last linear program;
    we keep its level, which is at most that, because then the result does not depend on the solver's choice
    among equal solutions. It asks a mixed-integer program who is bottlenecked. The prices of the level say
    it: a job with a price has its level in all allocations that keep the level, and no more. Not each
    bottlenecked job has one at once; what is left of them has one in the next pass, which raises nobody.

    Args:
        program: Linear program of a demand whose jobs all have a throughput.
        paces: Called again whenever jobs become bottlenecked; above 0 for at least one other job.
    """
    factors = _factors(program.demand)
    levels = np.zeros(len(factors))
    can_rise = np.ones(len(factors), dtype=np.bool_)
    while can_rise.any():
        pace = np.where(can_rise, paces(can_rise), 0.0)
        raised = np.flatnonzero(pace)
        raised_pace = pace[raised]
        _, gain = program.maximize_least(factors[raised] / raised_pace, raised, levels[raised] / raised_pace)
        levels[raised] += max(gain, 0.0) * raised_pace
        program.set_floors(levels / factors)
        is_stuck = program.prices > NO_PRICE * program.prices.max()
        can_rise[raised[is_stuck]] = False
        yield levels.copy()


def _factors(demand: Demand) -> FloatArray:
    return demand.scale_factors / demand.proportional_steps_per_s
