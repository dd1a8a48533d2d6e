"""Costs of the blocks of any placement at four clocks, and a plan with a clock for each computation."""

from __future__ import annotations

from placements import OperatingPoint, Placement, Profile
from schedsearch.energy import FrequencyPlan
from schedsearch.schedule import Schedule


def four_clocks(placement: Placement) -> Profile:
    """Return time about 1/clock, and power that rises with its square."""

    def point(clock_mhz: int, ticks: int) -> OperatingPoint:
        time_ms = ticks * 1200 / clock_mhz
        return OperatingPoint(clock_mhz, time_ms, time_ms * (100 + (clock_mhz / 100) ** 2))

    points = {
        block.name: tuple(point(clock, block.time) for clock in (600, 800, 1000, 1200))
        for block in placement.blocks
    }
    return Profile("made up", points, 50.0)


def plan_of(schedule: Schedule) -> FrequencyPlan:
    """A plan in which each clock is of one computation."""
    names, numbers = [block.name for block in schedule.placement.blocks], range(schedule.num_micro_batches)
    clocks = {name: tuple(100 * (i + 1) + n for n in numbers) for i, name in enumerate(names)}
    return FrequencyPlan(clocks, 1.0, 1.0, 1.0)
