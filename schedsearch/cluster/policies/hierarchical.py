"""Fairness between entities, and fairness or first-in-first-out inside each (dissertation, Sec. 5.4.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.policies.policy import SharesPolicy
from schedsearch.cluster.policies.water_filling import BoolArray, filled


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
        is_weight, is_known = 0 < self.weight < math.inf, self.inside in ("fairness", "fifo")
        require(is_weight, "entity weight", self.weight, "above 0; give a weight above 0")
        require(is_known, "entity inside", self.inside, "known; give fairness or fifo")


@dataclass(frozen=True)
class Hierarchical(SharesPolicy):
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

    @classmethod
    def of(
        cls,
        entities: Mapping[str, Mapping[str, object] | Entity] | None = None,
        shares_space: bool = False,
    ) -> Hierarchical:
        """Return the policy of entities given as plain mappings, as `{research: {weight: 2, inside: fifo}}`.

        Raises:
            ClusterError: An entity has another field, or a wrong value.
        """
        by_name = {name: _entity(name, given) for name, given in (entities or {}).items()}
        return cls(by_name, shares_space=shares_space)

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        """Return the share of each configuration, and the objective.

        Raises:
            ClusterError: A job belongs to an entity that is not there.
        """
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

        return filled(self._programs.of(demand), self.name, weights_of)


def _entity(name: str, given: Mapping[str, object] | Entity) -> Entity:
    if isinstance(given, Entity):
        return given
    if not isinstance(given, Mapping) or not {*given} <= {"weight", "inside"}:
        raise ClusterError(f"policy.entities.{name}: {given!r} has other fields than weight and inside")
    try:
        weight = float(str(given.get("weight", 1.0)))
        return Entity(weight, given.get("inside", "fairness"))  # type: ignore[arg-type]
    except ValueError as error:
        raise ClusterError(f"policy.entities.{name}: {error}") from error
