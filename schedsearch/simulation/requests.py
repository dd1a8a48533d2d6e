"""Requests of an inference: each is a micro-batch, comes at its own time, and ends with its last output.

Each device keeps the order of the schedule, as generated scripts do, so it waits for a late request even if
the next one in its order has arrived. The more requests there are, the less filling and draining the
pipeline counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from placements import Kind, Placement
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule
from schedsearch.simulation.conditions import Conditions, ConditionsError, check_known
from schedsearch.simulation.drawn_times import drawn_times
from schedsearch.simulation.iterations import percentiles
from schedsearch.simulation.messages import steps_of
from schedsearch.simulation.timing import ends_together


class Spacing(StrEnum):
    """How requests are spread: at random and independent of each other, or at equal distances."""

    POISSON = "poisson"
    FIXED = "fixed"


@dataclass(frozen=True)
class Arrivals:
    """Arrival times of an iteration's requests; the first one arrives at the begin.

    Attributes:
        rate_per_s: Mean number of requests per second; None if all arrive at the begin of the iteration.
        spacing: Distribution of the gaps between requests.
        seed: Seed of random gaps.
    """

    rate_per_s: float | None = None
    spacing: str = Spacing.POISSON
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the rate and the spacing."""
        if self.rate_per_s is not None and not 0 < self.rate_per_s < float("inf"):
            raise ConditionsError(f"rate_per_s: {self.rate_per_s!r} is not above 0 per s; give such a number")
        check_known("spacing", self.spacing, Spacing)

    def ms(self, number: int, iteration: int = 0) -> NDArray[np.float64]:
        """Return the arrival times of `number` requests, in ms from the begin of an iteration.

        >>> Arrivals(rate_per_s=100, spacing="fixed").ms(3).tolist()
        [0.0, 10.0, 20.0]
        """
        if self.rate_per_s is None:
            return np.zeros(number)
        gaps = np.full(number, 1e3 / self.rate_per_s)
        if self.spacing == Spacing.POISSON:
            gaps *= np.random.default_rng([self.seed, iteration]).exponential(size=number)
        gaps[:1] = 0
        return np.cumsum(gaps)


@dataclass(frozen=True, eq=False)
class ServedRequests:
    """Requests of some iterations, in ms from the begin of each; all of shape ``(iterations, requests)``.

    Attributes:
        arrived_ms: Arrival of each request.
        began_ms: Start of its first block.
        ended_ms: End of its last block.
    """

    arrived_ms: NDArray[np.float64]
    began_ms: NDArray[np.float64]
    ended_ms: NDArray[np.float64]

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """From the arrival of each request to its last output."""
        return self.ended_ms - self.arrived_ms

    @property
    def percentiles_ms(self) -> Mapping[int, float]:
        """The latency that a percentage of the requests does not exceed."""
        return percentiles(self.latency_ms)

    @property
    def waited_ms(self) -> float:
        """Mean time between a request's arrival and the start of its first block, in ms."""
        return float((self.began_ms - self.arrived_ms).mean())

    @property
    def throughput_per_s(self) -> float:
        """Requests that end in a second, from the first arrival of an iteration to its last output."""
        return self.ended_ms.size * 1e3 / float(self.ended_ms.max(axis=1).sum())

    def to_dict(self) -> dict[str, object]:
        """Return the figures, and the three times of each request, as plain data."""
        return {
            "latency_ms": {f"p{each}": value for each, value in self.percentiles_ms.items()},
            "mean_latency_ms": float(self.latency_ms.mean()),
            "mean_waited_ms": self.waited_ms,
            "throughput_per_s": self.throughput_per_s,
            **{name: getattr(self, name).tolist() for name in ("arrived_ms", "began_ms", "ended_ms")},
        }


def check_inference(placement: Placement, where: str = "placement") -> None:
    """Ensure that micro-batches are requests: all blocks are forward blocks.

    Raises:
        ConditionsError: One is not.
    """
    other = next((block.name for block in placement.blocks if block.kind is not Kind.F), None)
    if other is not None:
        raise ConditionsError(
            f"{where}: {placement.name} trains ({other} is no forward block), and requests are of an "
            "inference; use a placement of forward blocks only, as placement.inference=true makes"
        )


def entries(placement: Placement) -> frozenset[str]:
    """Return the blocks that begin a request: blocks without inputs."""
    return frozenset(block.name for block in placement.blocks if not block.after)


def max_rate_per_s(repetend: Repetend, times_ms: Mapping[str, float] | None = None) -> float:
    """Return the highest sustainable rate of requests per second: a period's micro-batches over its length.

    Args:
        repetend: Steady state of the schedule.
        times_ms: Times of all blocks instead of the placement's; then transfers take none.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.searches.search import search
    >>> repetend = search(v_shape(2, 10, inference=True), 4, work_limit=1).repetend
    >>> max_rate_per_s(repetend), max_rate_per_s(repetend, {"F0": 5, "F1": 20})
    (100.0, 50.0)
    """
    if times_ms is not None:
        placement = repetend.placement
        blocks = [replace(each, time=max(1, round(times_ms[each.name] * 1e3))) for each in placement.blocks]
        placement = replace(placement, blocks=tuple(blocks), transfer=(), tick_ms=1e-3)
        cycles = [repetend.cycle(lane) for lane in range(len(placement.lanes))]
        longest = repetend.micro_batches * sum(block.time for block in blocks)
        found = Repetend.of_min_period(placement, repetend.micro_batches, cycles, 1, longest)
        assert found is not None, "one block after the other keeps any order"
        repetend = found
    return repetend.micro_batches * 1e3 / repetend.placement.ms(repetend.period)


def serve(
    schedule: Schedule,
    arrivals: Arrivals | None = None,
    conditions: Conditions | None = None,
    iterations: int = 1,
    *,
    first: int = 0,
    seed: int = 0,
    times_ms: Mapping[Instance, Sequence[float] | float] | None = None,
) -> ServedRequests:
    """Return arrival, start and end of each request of an inference; a micro-batch is a request.

    Args:
        schedule: Valid; of forward blocks only.
        arrivals: Arrival times of requests; None if all arrive at the begin.
        conditions: Differences from the placement's times; None for none.
        iterations: Number of batches of requests, each of which meets an empty pipeline.
        first: Number of the first iteration; each number has its own arrival times.
        seed: Seed of the conditions.
        times_ms: Times of blocks in each iteration, instead of the placement's times and conditions.

    Raises:
        ConditionsError: The placement is no inference, or has what such a simulation does not know.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    arrivals, conditions = arrivals or Arrivals(), conditions or Conditions()
    check_inference(placement)
    conditions.check(placement)
    steps = steps_of(schedule, conditions)
    if steps.is_shared or placement.slowdown:
        raise ConditionsError(
            "links of several devices and streams that slow each other down are not known here; "
            "leave them out"
        )
    if times_ms is None:
        ticks = drawn_times(placement, number, conditions, iterations, seed, schedule.chosen)
    else:
        ticks = {each: np.full(iterations, given) / placement.tick_ms for each, given in times_ms.items()}
    arrived_ms = np.array([arrivals.ms(number, each) for each in range(first, first + iterations)])
    begin = entries(placement)
    earliest = {
        position: arrived_ms[:, step.instance[1]] / placement.tick_ms
        for position, step in enumerate(steps.steps)
        if step.instance[0] in begin
    }
    times = np.array([ticks[step.instance] for step in steps.steps])
    ends = ends_together(steps, times, earliest)
    began, ended = np.full((iterations, number), np.inf), np.zeros((iterations, number))
    for step, start, end in zip(steps.steps, ends - times, ends, strict=True):
        own = slice(None), step.instance[1]
        began[own], ended[own] = np.minimum(began[own], start), np.maximum(ended[own], end)
    return ServedRequests(arrived_ms, began * placement.tick_ms, ended * placement.tick_ms)
