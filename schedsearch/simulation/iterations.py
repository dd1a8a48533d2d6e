"""Iteration times of a schedule under conditions: their distribution, and the waiting of each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from schedsearch.results import TableResult
from schedsearch.schedule import Schedule
from schedsearch.simulation.conditions import Conditions, ConditionsError
from schedsearch.simulation.drawn_times import drawn_times
from schedsearch.simulation.messages import IterationSteps, steps_of
from schedsearch.simulation.timing import ends_by_events, ends_side_by_side, ends_together

_CELLS = 2_000_000
"""Blocks times iterations held at once: some 16 MB, or 100 MB if devices share links."""


@dataclass(frozen=True, eq=False)
class SimulatedIterations(TableResult):
    """Simulated iterations, each from a barrier to the end of its last block.

    Attributes:
        iteration_ms: Time of each iteration; shape ``(iterations,)``.
        bubble_rates: Idle share of devices times iteration; same shape.
        waiting_ms: Mean waiting time of each device in an iteration; shape ``(num_devices,)``. For devices
            with several streams, the waiting time of ``compute``.
    """

    iteration_ms: NDArray[np.float64]
    bubble_rates: NDArray[np.float64]
    waiting_ms: NDArray[np.float64]

    @property
    def mean_ms(self) -> float:
        """Mean time of an iteration."""
        return float(self.iteration_ms.mean())

    @property
    def bubble_rate(self) -> float:
        """Mean of `bubble_rates`."""
        return float(self.bubble_rates.mean())

    @property
    def percentiles_ms(self) -> Mapping[int, float]:
        """Percentiles 50, 95 and 99 of the iteration times in ms."""
        return {percent: float(np.percentile(self.iteration_ms, percent)) for percent in (50, 95, 99)}


def simulate(
    schedule: Schedule, conditions: Conditions | None = None, iterations: int = 1000, seed: int = 0
) -> SimulatedIterations:
    """Return the times of iterations in which devices keep their orders and start blocks as soon as they can.

    Without conditions each takes the makespan of the schedule, or less if the schedule starts blocks later
    than it could.

    Args:
        schedule: Valid.
        conditions: Differences from the placement's times; None for none.
        iterations: How many; at least 1. A thousand of 16 devices take about a second where no link is shared
            by devices, and some 10 s with 3000 blocks where one is.
        seed: Seed of all draws; equal for every schedule of a placement.

    Raises:
        ConditionsError: Conditions do not fit the placement, or a number is out of its range.
    """
    conditions = conditions or Conditions()
    conditions.check(schedule.placement)
    _check_whole("iterations", iterations, 1)
    _check_whole("seed", seed, 0)
    if schedule.placement.slowdown and conditions.links:
        raise ConditionsError(
            f"links: are given where streams of {schedule.placement.name} slow each other down, which no "
            "simulation knows together; leave one of them out"
        )
    steps = steps_of(schedule, conditions)
    chunk = max(1, _CELLS // max(1, len(steps.steps)))
    parts = [
        _simulate(schedule, conditions, steps, min(chunk, iterations - first), seed + number)
        for number, first in enumerate(range(0, iterations, chunk))
    ]
    makespan, busy = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    tick_ms = schedule.placement.tick_ms
    length = np.where(makespan > 0, makespan, 1.0)  # measured times may all be 0
    return SimulatedIterations(
        makespan * tick_ms,
        1 - busy.sum(axis=0) / (len(busy) * length),
        (makespan - busy).mean(axis=1) * tick_ms,
    )


def _simulate(
    schedule: Schedule, conditions: Conditions, steps: IterationSteps, iterations: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the last end of each iteration, and the busy ticks of each device in it.

    The shapes are ``(iterations,)`` and ``(num_devices, iterations)``.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    drawn = drawn_times(placement, number, conditions, iterations, seed, schedule.chosen)
    times = np.array([drawn[step.instance] for step in steps.steps]).reshape(-1, iterations)
    if placement.slowdown:
        ends, times = ends_side_by_side(schedule, steps, times)
    else:
        ends = (ends_by_events if steps.is_shared else ends_together)(steps, times)
    busy = np.zeros((placement.num_devices, iterations))
    for step, time in zip(steps.steps, times, strict=True):
        for lane in step.lanes:
            if lane < placement.num_devices:  # others than the stream compute come after these
                busy[lane] += time
    return ends.max(axis=0, initial=0.0), busy


def _check_whole(where: str, value: object, least: int) -> None:
    if not isinstance(value, SupportsIndex) or isinstance(value, bool) or value.__index__() < least:
        raise ConditionsError(f"{where}: {value!r} is not a whole number of {least} or more; give one")
