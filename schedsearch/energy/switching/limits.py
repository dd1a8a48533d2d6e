"""How often and how fast a device changes its clock, and how often a plan makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placements.hardware import ClockLatency
from schedsearch.energy.graph import EnergyError, Floats, Ints
from schedsearch.schedule import Schedule


@dataclass(frozen=True)
class SwitchingLimits:
    """How often and how fast a device changes its clock.

    Attributes:
        dwell_ms: Least time from the start of the first block at one clock to that at the next one.
        latency_ms: Time from when a change is asked for until the clock is there; the device waits meanwhile.
        back_to_back: Whether the next iteration begins at once with the same clocks, so that the change from
            the clock of a device's last block to that of its first is paid for, and both stretches are one
            where the clocks are equal. A job does so, unless it waits between iterations anyway.
        table: What a change takes by its two clocks, in place of `latency_ms`, which is then the longest.

    Raises:
        EnergyError: One is not a time.
    """

    dwell_ms: float = 0.0
    latency_ms: float = 0.0
    back_to_back: bool = True
    table: ClockLatency | None = None

    def __post_init__(self) -> None:
        """Check both times."""
        for name in ("dwell_ms", "latency_ms"):
            if not 0 <= getattr(self, name) < math.inf:
                raise EnergyError(f"{name}: {getattr(self, name):g} is not a time; give 0 ms or more")

    def latencies_ms(self, before_mhz: Ints, after_mhz: Ints) -> Floats:
        """Return what changes between clocks take, 0 between equal ones; arrays that numpy can broadcast."""
        if self.table is None:
            return np.where(before_mhz == after_mhz, 0.0, self.latency_ms)
        between: Floats = np.vectorize(self.table.between_ms, otypes=[np.float64])(before_mhz, after_mhz)
        return between

    @property
    def are_none(self) -> bool:
        """Tell whether every plan keeps them at no cost."""
        return self.dwell_ms == self.latency_ms == 0


def num_clock_changes(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return how often each device changes its clock within an iteration.

    Args:
        schedule: Gives the order of the blocks on each device.
        clock_mhz: For each block one clock per micro-batch.
    """
    return tuple(sum(a != b for a, b in pairwise(row)) for row in _clocks_by_device(schedule, clock_mhz))


def changes_per_iteration(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return how often each device changes its clock in each iteration of many, one after the other.

    This is `num_clock_changes`, and one more where a device's last clock is not its first.

    Args:
        schedule: Gives the order of the blocks on each device.
        clock_mhz: For each block one clock per micro-batch.
    """
    return tuple(
        sum(a != b for a, b in pairwise([*row[-1:], *row])) for row in _clocks_by_device(schedule, clock_mhz)
    )


def _clocks_by_device(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> list[list[int]]:
    clock = {
        (name, n): int(mhz)
        for name, clocks in clock_mhz.items()
        for n, mhz in zip(schedule.runs_of[name], clocks, strict=True)
    }
    computed = schedule.lane_orders[: schedule.placement.num_devices]  # copies have no clock to change to
    return [[clock[instance] for instance in order] for order in computed]
