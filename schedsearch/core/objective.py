"""The objectives of a search: figures of a repetend, or the makespan or device span of a whole schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from placements import Placement
from schedsearch.device_span import first_starts, with_least_device_span
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule


class Objective(StrEnum):
    """An objective of a search, in ticks or units of memory; less is better.

    PERIOD: Ticks of the repetend. SPAN: ticks from first start to last end of one round. LATENCY: the same of
    one micro-batch. MEMORY: the most that any device holds. MAKESPAN: ticks of the asked number of
    micro-batches. DEVICE_SPAN: the longest time from a device's own first start to its own last end in them.
    """

    PERIOD = "period"
    SPAN = "span"
    LATENCY = "latency"
    MEMORY = "memory"
    MAKESPAN = "makespan"
    DEVICE_SPAN = "device_span"


VALUE: Mapping[Objective, Callable[[Repetend], int]] = {
    Objective.PERIOD: lambda repetend: repetend.period,
    Objective.SPAN: lambda repetend: repetend.span,
    Objective.LATENCY: lambda repetend: repetend.latency,
    Objective.MEMORY: lambda repetend: max(repetend.peak_memory),
}
"""Each objective's value in ticks or units of memory; makespan and device span are not a repetend's."""


def span_from(schedule: Schedule, clocks: Sequence[int]) -> int:
    """Return the ticks at which the last device has ended, each by a clock that began at its own tick."""
    spans = [0]
    for (device, _), order in zip(schedule.placement.lanes, schedule.lane_orders, strict=True):
        if order:
            spans.append(schedule.end_of[order[-1]] - clocks[device])
    return max(spans)


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

FINITE: Mapping[Objective, FiniteObjective] = {
    Objective.MAKESPAN: MAKESPAN,
    Objective.DEVICE_SPAN: DEVICE_SPAN,
}
"""The objectives of a whole schedule: makespan and device span."""
