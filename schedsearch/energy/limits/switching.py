"""Plans whose clocks change no more often than a device can change them, and that pay for every change.

A change of clock takes about ten milliseconds and is asked for by another process (Perseus, Sec. 3.1 and
5), long enough to matter for short blocks. Perseus lets the block begin meanwhile and counts the change as
nothing. Here a device waits, at the blocking power (that of the old clock, where it depends on the clock),
until its new clock is there: a change can be asked for as soon as the block before has ended, so it costs no
time where the device waits for an input anyway, and the latency where it does not. Running on at the old
clock is never later than that, and needs no cost of a block at a clock that the profile may lack.

Where iterations follow each other, the next one begins once this one has ended and every device can have its
first clock in time, so that the same starts hold in all of them; a job that starts everything as soon as it
can is never later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placements import Profile
from placements.hardware import ClockLatency
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import EnergyError, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.simulation import ClockedIteration, all_maximum_clocks, at_clocks
from schedsearch.schedule import Schedule

if TYPE_CHECKING:
    from schedsearch.energy.limits.annealing import SwitchArrays


@dataclass(frozen=True)
class SwitchingLimits:
    """Limits on the number and speed of clock changes of a device.

    Attributes:
        dwell_ms: Least time from the start of the first block at one clock to that at the next one.
        latency_ms: Time from when a change is asked for until the clock is there; the device waits meanwhile.
        back_to_back: Whether the next iteration begins at once with the same clocks, so that the change from
            the clock of a device's last block to that of its first is paid for, and both stretches are one
            where the clocks are equal. A job does so, unless it waits between iterations anyway.
        table: Time of a change by its two clocks, in place of `latency_ms`, which is then the longest.

    Raises:
        EnergyError: One is not a time.
    """

    dwell_ms: float = 0.0
    latency_ms: float = 0.0
    back_to_back: bool = True
    table: ClockLatency | None = None

    def __post_init__(self) -> None:
        for name in ("dwell_ms", "latency_ms"):
            if not 0 <= getattr(self, name) < math.inf:
                raise EnergyError(f"{name}: {getattr(self, name):g} is not a time; give 0 ms or more")

    @property
    def are_none(self) -> bool:
        """Tell whether every plan keeps them at no cost."""
        return self.dwell_ms == self.latency_ms == 0


def num_clock_changes(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return the number of clock changes of each device within an iteration."""
    return tuple(sum(a != b for a, b in pairwise(row)) for row in _clocks_by_device(schedule, clock_mhz))


def changes_per_iteration(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return the clock changes of each device per repeated iteration, the one to the first clock included."""
    rows = _clocks_by_device(schedule, clock_mhz)
    return tuple(sum(a != b for a, b in pairwise([*row[-1:], *row])) for row in rows)


def _clocks_by_device(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> list[list[int]]:
    clock = {
        (name, n): int(mhz)
        for name, clocks in clock_mhz.items()
        for n, mhz in zip(schedule.runs_of[name], clocks, strict=True)
    }
    computed = schedule.lane_orders[: schedule.placement.num_devices]  # copies have no clock to change to
    return [[clock[instance] for instance in order] for order in computed]


class ClockChanges(NamedTuple):
    """Clock changes of a plan: the quantities that switching limits bound.

    Attributes:
        simulation: When each block starts, with the waits for changes of clock.
        within: Changes of clock within the iteration, for each device.
        per_iteration: The same with that to the next iteration's first clock.
    """

    simulation: ClockedIteration
    within: tuple[int, ...]
    per_iteration: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SwitchingProblem(ClockProblem):
    """A clock problem under limits on changes of clock.

    Attributes:
        limits: Limits to be kept.
        latest_ms: For the length of the iteration.
        group: Clock group of each instance, from 0; shape ``(instances,)``. None: every one has its own.
    """

    limits: SwitchingLimits = field(default_factory=SwitchingLimits)
    latest_ms: float = math.inf
    group: Ints | None = None

    @cached_property
    def clock_mhz(self) -> Ints:
        """The clocks of any block, ascending."""
        self.profile.require_one_config("limits")
        points = (p for name in self.schedule.placement.runs for p in self.profile.points[name])
        return np.array(sorted({p.clock_mhz for p in points}), dtype=np.int64)

    @cached_property
    def arrays(self) -> SwitchArrays:
        """The problem as arrays for compiled loops."""
        from schedsearch.energy.limits.annealing import SwitchArrays  # loads numba, which is slow

        clocks, graph, placement, limits = self.clock_mhz, self.graph, self.schedule.placement, self.limits
        time, energy = np.full((2, len(placement.runs), len(clocks)), np.inf)
        for row, (name, block) in enumerate(placement.runs.items()):
            for p in self.profile.points[name]:
                effective_mj = p.energy_mj - self.profile.min_blocking_power_w * p.time_ms
                column = np.searchsorted(clocks, p.clock_mhz)
                time[row, column], energy[row, column] = p.time_ms, placement.gpus_of(block) * effective_mj
        rows = {name: row for row, name in enumerate(placement.runs)}
        pairs = {pair for order in self.waiting.orders for pair in pairwise(order.tolist())}
        edges = zip(graph.tail.tolist(), graph.head.tolist(), strict=True)
        group = np.arange(graph.size) if self.group is None else self.group
        latency = np.where(clocks[:, None] == clocks, 0.0, limits.latency_ms)
        if limits.table is not None:
            between = np.vectorize(limits.table.between_ms, otypes=[np.float64])
            latency = between(clocks[:, None], clocks)
        return SwitchArrays(
            np.array([rows[name] for name in graph.runs]),
            time,
            energy,
            graph.first,
            graph.tail,
            graph.delay_ms,
            np.array([edge in pairs for edge in edges], dtype=np.bool_),
            np.concatenate(self.waiting.orders),
            np.cumsum([0, *map(len, self.waiting.orders)]),
            group,
            np.argsort(group, kind="stable"),
            np.cumsum([0, *np.bincount(group)]),
            latency,
            limits.dwell_ms * (1 - TIME_TOLERANCE),
            limits.back_to_back,
            self.latest_ms,
        )

    def columns(self, clock_mhz: Mapping[str, Sequence[int]]) -> Ints:
        """Return the column of each instance's clock in the arrays, from the clocks of each block."""
        _, _, clock = at_clocks(self.schedule, self.profile, clock_mhz, self.graph)
        return np.searchsorted(self.clock_mhz, clock[:, 0]).astype(np.int64)

    def simulated(self, column: Ints) -> tuple[ClockedIteration, float]:
        """Return the simulated iteration of given clocks, and the ms by which they miss the limits."""
        from schedsearch.energy.limits.annealing import simulate

        arrays, waiting = self.arrays, self.waiting
        start, end = np.empty((2, len(column)))
        length_ms, over_ms = simulate(arrays, column, start, end)
        clock = self.clock_mhz[column][:, None]
        took = (end - start)[:, None]
        above_mj, after_w = waiting.of_all(start[:, None], took, clock, np.array([length_ms]))
        used_mj = float(arrays.energy_mj[arrays.row, column].sum()) + float(above_mj[0])
        iteration = ClockedIteration(
            dict(zip(self.graph.instances, start.tolist(), strict=True)),
            length_ms,
            used_mj + self.waiting_w * length_ms,
            None if waiting.is_even else self.waiting_w + float(after_w[0]),
        )
        return iteration, over_ms

    def at_one_clock(self) -> Ints:
        """Return the lowest clock that all blocks can have under the limits, or else each block's fastest."""
        arrays = self.arrays
        for column in np.flatnonzero(np.isfinite(arrays.time_ms).all(axis=0)):
            columns = np.full(self.graph.size, column)
            if self.simulated(columns)[1] <= 0:
                return columns
        return self.columns(all_maximum_clocks(self.schedule, self.profile))


def simulate_switching(
    schedule: Schedule,
    profile: Profile,
    clock_mhz: Mapping[str, Sequence[int]],
    latency_ms: float,
    back_to_back: bool = True,
) -> ClockedIteration:
    """Return time and energy of a schedule whose devices wait for every change of clock.

    With a latency of 0 this is `schedsearch.energy.simulation.simulate_at_clocks`.

    Raises:
        ProfileError: The profile lacks a block, or has several configurations for a clock.
        EnergyError: A clock is missing or not in the profile, or the latency is not a time.
    """
    limits = SwitchingLimits(0.0, latency_ms, back_to_back)
    problem = SwitchingProblem(schedule, profile, limits=limits)
    return problem.simulated(problem.columns(clock_mhz))[0]
