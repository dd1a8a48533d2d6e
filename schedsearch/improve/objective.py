"""What an improvement makes least: the makespan, or the device span, both ends by the devices' clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placements import Placement
from schedsearch.core.objective import span_from
from schedsearch.device_span import first_starts, with_least_device_span
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule


@dataclass(frozen=True)
class FiniteObjective:
    """The tick at which the last device ends, each by its own clock.

    Attributes:
        name: Name in messages.
        one_clock: Whether all clocks begin at tick 0 in every schedule, and do not depend on it.
        clocks: The tick at which each device's clock begins in a schedule.
        settled: Returns the schedule of the same orders in which the objective is least.
        bound: Ticks that it cannot beat, for a placement and a number of micro-batches.
    """

    name: str
    one_clock: bool
    clocks: Callable[[Schedule], tuple[int, ...]]
    settled: Callable[[Schedule], Schedule]
    bound: Callable[[Placement, int], int]

    def value(self, schedule: Schedule) -> int:
        """Return the ticks of a schedule."""
        return span_from(schedule, self.clocks(schedule))


MAKESPAN = FiniteObjective(
    "makespan",
    True,
    lambda schedule: (0,) * schedule.placement.num_devices,
    lambda schedule: schedule,
    makespan_bound,
)
DEVICE_SPAN = FiniteObjective("device span", False, first_starts, with_least_device_span, device_span_bound)
