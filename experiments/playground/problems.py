"""What is searched for the playground, and what is kept of it: orders, figures and what is proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from experiments.playground.orders import orders_to_text, schedule_from_text
from experiments.playground.presets import Preset, presets
from placements import Placement
from schedsearch.baselines import applicable
from schedsearch.bounds.makespan import makespan_bound
from schedsearch.bounds.memory_need import CapacityError
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.schedule import Schedule
from schedsearch.searches.methods import SearchRequest, find

NUM_MICRO_BATCHES = {2: (8,), 4: (8, 16), 8: (16,)}
"""Numbers of micro-batches by the number of devices."""

TIME_LIMIT_S = 4.0
"""Time limit of each search, in s."""


@dataclass(frozen=True)
class PlaygroundProblem:
    """A preset on a number of devices, for a number of micro-batches.

    Attributes:
        preset: Shape and times.
        num_devices: Number of devices of the pipeline.
        num_micro_batches: Number of micro-batches of the schedule.
    """

    preset: Preset
    num_devices: int
    num_micro_batches: int

    @property
    def placement(self) -> Placement:
        """The placement without a limit on memory."""
        return self.preset.placement(self.num_devices)

    def hand_made(self) -> dict[str, Any]:
        """Return what is kept of each schedule made by hand that there is here, whatever memory it needs."""
        found = applicable(self.placement, self.num_micro_batches)
        return {name: _kept(schedule) for name, schedule in found.items()}

    def bound(self) -> int:
        """Return the ticks that no schedule beats, whatever memory it has."""
        return makespan_bound(self.placement, self.num_micro_batches)

    def search(self, memory: int) -> dict[str, Any] | None:
        """Return what is kept of the search at this memory; None where it is too little, or none is found.

        Args:
            memory: Capacity of each device, in units.
        """
        placement = self.placement.with_memory(memory)
        request = SearchRequest(placement, self.num_micro_batches, time_limit_s=TIME_LIMIT_S)
        try:
            found = find(request)
        except CapacityError:
            return None
        if found.schedule is None or found.repetend is None:
            return None
        return {
            "memory": memory,
            "period": found.repetend.period_per_micro_batch,
            "period_bound": found.period_bound,
            "proved": found.proved,
            "bound": found.makespan_bound,
            **_kept(found.schedule),
        }


def problems() -> Iterator[PlaygroundProblem]:
    """Yield every problem, in the order of the page."""
    for preset in presets():
        for num_devices, numbers in NUM_MICRO_BATCHES.items():
            for number in numbers:
                yield PlaygroundProblem(preset, num_devices, number)


def _kept(schedule: Schedule) -> dict[str, Any]:
    """Return the orders of a schedule and its figures where every block starts as soon as these let it."""
    texts = orders_to_text(schedule)
    soon = schedule_from_text(schedule.placement, schedule.num_micro_batches, texts)
    return {
        "makespan": soon.makespan,
        "bubble_rate": round(bubble_rate(soon), 6),
        "peak_memory": int(peak_memory(soon).max()),
        "orders": texts,
    }
