"""A schedule and its profile, with what every baseline asks of them, and the plans that clocks make there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placements import Profile
from schedsearch.energy.bound import LowerBound, lower_bound
from schedsearch.energy.cost import CostCurve, cost_curves
from schedsearch.energy.frontier import FrequencyPlan
from schedsearch.energy.graph import InstanceGraph, instance_graph
from schedsearch.energy.simulation import simulate, simulated_plan
from schedsearch.energy.waiting import Waiting, undominated, waiting_w
from schedsearch.schedule import Schedule, micro_batches_of

Clocks = Mapping[str, tuple[int, ...]]
"""For each block one clock per micro-batch, in MHz."""


@dataclass(frozen=True)
class Problem:
    """A schedule whose clocks are to be chosen.

    Attributes:
        schedule: Valid; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        known_bound: What no plan can beat, where it is at hand.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
    """

    schedule: Schedule
    profile: Profile
    known_bound: LowerBound | None = None

    def __post_init__(self) -> None:
        """Check that every block has a cost."""
        self.profile.require(self.schedule.placement)

    @cached_property
    def graph(self) -> InstanceGraph:
        """Who waits for whom."""
        return instance_graph(self.schedule)

    @cached_property
    def curves(self) -> dict[str, CostCurve]:
        """The cost curve of each block."""
        return cost_curves(self.schedule.placement, self.profile)

    @cached_property
    def bound(self) -> LowerBound:
        """What no plan can beat."""
        if self.known_bound is not None:
            return self.known_bound
        return lower_bound(self.graph, self.curves, waiting_w(self.schedule.placement, self.profile))

    @cached_property
    def waiting(self) -> Waiting | None:
        """Who waits at which power, where the blocking power depends on the clock."""
        return Waiting.of(self.schedule, self.profile, self.graph)

    def plan(self, clock_mhz: Clocks) -> FrequencyPlan:
        """Return what comes of some clocks."""
        done = simulate(self.schedule, self.profile, clock_mhz, self.graph)
        return simulated_plan(clock_mhz, done, self.bound.at(done.time_ms))

    def pareto_plans(self, choices: Iterable[Clocks]) -> tuple[FrequencyPlan, ...]:
        """Return the plans of some clocks that no other of them beats in both time and effective energy.

        These are by strictly increasing time and strictly decreasing effective energy, as in `Frontier`.
        Where the blocking power depends on the clock, they are those that no other beats at every deadline.
        """
        plans = [self.plan(clock_mhz) for clock_mhz in choices]
        least_w = self.bound.waiting_w
        kept = undominated(
            np.array([plan.time_ms for plan in plans]),
            np.array([plan.energy_mj - least_w * plan.time_ms for plan in plans]),
            np.array([0.0 if plan.waiting_w is None else plan.waiting_w - least_w for plan in plans]),
        )
        return tuple(plans[i] for i in kept.tolist())

    def for_every_micro_batch(self, clock_of: Mapping[str, int]) -> Clocks:
        """Return one clock for each block as clocks of all its micro-batches."""
        placement, number = self.schedule.placement, self.schedule.num_micro_batches
        return {
            name: (clock,) * len(micro_batches_of(placement, name, number))
            for name, clock in clock_of.items()
        }
