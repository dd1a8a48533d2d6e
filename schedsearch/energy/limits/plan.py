"""A plan of clocks that keeps limits beside a deadline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from schedsearch.energy.frontier import FrequencyPlan

Limits = TypeVar("Limits")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, eq=False)
class LimitedPlan(Generic[Limits, Outcome]):
    """The best plan that was found under limits, with its bounds and the plan without limits.

    Attributes:
        plan: Clocks, and time and energy of the iteration as they are under the limits; its own lower bound
            is of plans without.
        limits: Limits that it keeps.
        outcome: Quantities that the limits bound.
        free: The frontier's plan for the same deadline, without limits.
        deadline_ms: Deadline that both plans keep; infinite where the time is minimised.
        energy_mj: Energy of all devices until the deadline, where they wait at the least after the end.
        lower_bound_mj: Lower bound of the energy until then of plans under the limits; 0 where none is known.
        min_ms: Lower bound of the iteration's length under the limits; 0 where none is known.
    """

    plan: FrequencyPlan
    limits: Limits
    outcome: Outcome
    free: FrequencyPlan
    deadline_ms: float = math.inf
    energy_mj: float = 0.0
    lower_bound_mj: float = 0.0
    min_ms: float = 0.0

    @property
    def gap(self) -> float:
        """Return the gap above the lower bound, as a share of the bound: in time if the time is minimised.

        Otherwise the gap is in energy until the deadline.
        """
        if self.min_ms > 0:
            return self.plan.time_ms / self.min_ms - 1
        return self.energy_mj / self.lower_bound_mj - 1 if self.lower_bound_mj > 0 else math.nan
