"""Fairness between entities, and fairness or first-in-first-out inside each (dissertation, Sec. 5.4.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from schedsearch.cluster.demand import BoolArray, Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.policies.water_filling import WaterFilling


@dataclass(frozen=True)
class Entity:
    """Whom jobs belong to: a team, a user.

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

    def _weights_of(self, demand: Demand) -> Callable[[BoolArray], FloatArray]:
        names = [active.job.entity for active in demand.jobs]
        for active in demand.jobs:
            if self.entities and active.job.entity not in self.entities:
                raise ClusterError(
                    f"job {active.name}: entity {active.job.entity!r} is not in policy.entities; "
                    f"it has {', '.join(self.entities)}"
                )
        members = {name: np.array([one == name for one in names]) for name in dict.fromkeys(names)}

        def weights_of(can_rise: BoolArray) -> FloatArray:
            weights = np.zeros(len(names))
            for name, is_member in members.items():
                entity = self.entities.get(name, Entity())
                able = np.flatnonzero(is_member & can_rise)
                chosen = able[:1] if entity.inside == "fifo" else able
                own = demand.weights[chosen]
                weights[chosen] = entity.weight * own / own.sum()
            return weights

        return weights_of
