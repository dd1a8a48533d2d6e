"""The repetends that a search begins with: greedy ones, and of hand-made and of simulated schedules."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from placements import Placement
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.baselines.interleaved import interleavings
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.starts.event_simulation import RULES, simulate
from schedsearch.starts.greedy_repetends import shortest_greedy_repetend
from schedsearch.starts.steady_state import folded, steady_state


class Start(NamedTuple):
    """A repetend to begin with, and the name of what made it."""

    repetend: Repetend
    made_by: str


def hand_made(placement: Placement, num_micro_batches: int) -> Iterator[tuple[str, Schedule]]:
    """Yield each hand-made schedule that is defined for a placement, with its name, whatever it holds.

    GPipe is the last.
    """
    for name, make in _makers():
        for schedule in make(placement, num_micro_batches):
            yield name, schedule


def _makers() -> Iterator[tuple[str, Callable[[Placement, int], Iterator[Schedule]]]]:
    """Yield a name and what makes the schedules so called, none where they are not defined."""

    def one(name: str, placement: Placement, number: int) -> Iterator[Schedule]:
        with contextlib.suppress(UnsuitablePlacementError):
            yield HAND_MADE[name](placement, number)

    def several(placement: Placement, number: int) -> Iterator[Schedule]:
        with contextlib.suppress(UnsuitablePlacementError):
            yield from interleavings(placement, number)

    yield from ((name, partial(one, name)) for name in HAND_MADE if name != "gpipe")
    yield "interleaved in groups", several
    yield "gpipe", partial(one, "gpipe")


def simulated(
    placement: Placement, num_micro_batches: int, deadline: float = math.inf
) -> Iterator[tuple[str, Schedule]]:
    """Yield the schedule that each rule makes under the placement's memory until a deadline, with a name."""
    for number, rule in enumerate(RULES, 1):
        schedule = simulate(placement, num_micro_batches, rule, deadline)
        if schedule is not None:
            yield f"simulation by rule {number}", schedule


def hand_made_repetends(placement: Placement, enough: Fraction, time_limit_s: float) -> dict[int, Start]:
    """Return the best repetend of a hand-made schedule for each number of micro-batches per repetend.

    These are up to as many as there are devices: interleaved 1F1B repeats after so many.

    Args:
        placement: What runs where, without optimizer blocks.
        enough: Ticks per micro-batch that no repetend beats; none is sought once it is reached.
        time_limit_s: Seconds after which no more are made. On a hundred devices one takes seconds.
    """
    deadline = time.monotonic() + time_limit_s
    depth = max(placement.num_devices, 2)
    best: dict[int, Start] = {}
    for name, make in _makers():
        for times in (4, 6):  # some repeat only after a long warmup
            schedules = _until(deadline, make(placement, times * depth))
            found = _steady_states(schedules, name, placement.num_devices, enough)
            if found:
                break
        best = better_of(best, found)
        if any(start.repetend.period_per_micro_batch <= enough for start in found.values()):
            return found
    return best


def greedy_repetends(placement: Placement, bound: Fraction, deadline: float) -> dict[int, Start]:
    """Return the greedy repetend of one micro-batch, if one is found until a deadline.

    It is for placements whose memory no hand-made schedule fits, and that are too large to simulate.
    """
    repetend = shortest_greedy_repetend(placement, bound, deadline)
    return {} if repetend is None else {1: Start(repetend, "greedy modulo scheduling")}


def simulated_repetends(
    placement: Placement,
    sizes: Sequence[int],
    enough: Fraction,
    time_limit_s: float,
    given_up: float = math.inf,
) -> dict[int, Start]:
    """Return likewise those of simulated schedules, folded into each of some numbers of micro-batches.

    One that is begun in time is made whole, unless it is not ready at `given_up`, in seconds of
    `time.monotonic`.
    """
    deadline = time.monotonic() + time_limit_s
    best: dict[int, Start] = {}
    for name, schedule in simulated(placement, 4 * max(placement.num_devices, 2), given_up):
        for size in sizes:
            INTERRUPTS.raise_if_seen()
            repetend = folded(schedule, size)
            if repetend is not None:
                best = better_of(best, {size: Start(repetend, name)})
                if repetend.period_per_micro_batch <= enough:
                    return best
            if time.monotonic() > deadline:
                return best
    return best


def _until(deadline: float, schedules: Iterator[Schedule]) -> Iterator[Schedule]:
    """Yield schedules as long as there is time to make one."""
    while time.monotonic() < deadline and (schedule := next(schedules, None)) is not None:
        yield schedule


def _steady_states(
    schedules: Iterable[Schedule], name: str, most_micro_batches: int, enough: Fraction
) -> dict[int, Start]:
    best: dict[int, Start] = {}
    for schedule in schedules:
        INTERRUPTS.raise_if_seen()
        repetend = steady_state(schedule, most_micro_batches)
        if repetend is not None:
            best = better_of(best, {repetend.micro_batches: Start(repetend, name)})
            if repetend.period_per_micro_batch <= enough:
                break
    return best


def better_of(one: dict[int, Start], other: dict[int, Start]) -> dict[int, Start]:
    """Return of each number of micro-batches the repetend of the lesser period."""
    better = {
        size: each
        for size, each in other.items()
        if size not in one or each.repetend.period < one[size].repetend.period
    }
    return one | better
