"""A planned iteration, in the form in which it is put beside a measured one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placements import OperatingPoint, Profile
from schedsearch.energy import simulate_at_clocks
from schedsearch.energy.simulation import operating_points
from schedsearch.schedule import Instance, Schedule


@dataclass(frozen=True)
class PlannedIteration:
    """An iteration as it was planned, in the times of the profile.

    Attributes:
        points: Cost of each (block, micro-batch) at its clock.
        start_ms: Start of each.
        time_ms: Length of the iteration.
        energy_mj: Energy of all devices over that time.
        memory_unit: Unit of the placement's memory, where it is known.
    """

    schedule: Schedule
    profile: Profile
    points: Mapping[Instance, OperatingPoint]
    start_ms: Mapping[Instance, float]
    time_ms: float
    energy_mj: float
    memory_unit: str = ""

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        profile: Profile,
        clock_mhz: Mapping[str, Sequence[int]],
        memory_unit: str = "",
    ) -> PlannedIteration:
        """Return a schedule at given clocks; see `schedsearch.energy.simulate_at_clocks`.

        Raises:
            ProfileError: The profile lacks a block.
            EnergyError: A clock is missing or not in the profile.
        """
        done = simulate_at_clocks(schedule, profile, clock_mhz)
        points = operating_points(schedule, profile, clock_mhz)
        return cls(schedule, profile, points, done.start_ms, done.time_ms, done.energy_mj, memory_unit)

    def span_ms(self, instance: Instance) -> tuple[float, float]:
        """Return when a block begins and ends."""
        begin_ms = self.start_ms[instance]
        return begin_ms, begin_ms + self.points[instance].time_ms
