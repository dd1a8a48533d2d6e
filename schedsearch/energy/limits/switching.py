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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements import Profile
from placements.hardware import ClockLatency
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, proved
from schedsearch.energy.graph import EnergyError, Floats, Ints
from schedsearch.energy.limits.plan import LimitedPlan
from schedsearch.energy.problem import ClockProblem, clocks_by_block
from schedsearch.energy.simulation import (
    ClockedIteration,
    at_clocks,
    simulated_plan,
)
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
    """Return how often each device changes its clock within an iteration."""
    return tuple(sum(a != b for a, b in pairwise(row)) for row in _clocks_by_device(schedule, clock_mhz))


def changes_per_iteration(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return how often each device changes its clock in each iteration of many, one after the other.

    This is `num_clock_changes`, and one more where a device's last clock is not its first.
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


class ClockChanges(NamedTuple):
    """What the limits look at.

    Attributes:
        simulation: When each block starts, with the waits for changes of clock.
        own: Changes of clock within the iteration, for each device.
        per_iteration: The same with that to the next iteration's first clock.
    """

    simulation: ClockedIteration
    own: tuple[int, ...]
    per_iteration: tuple[int, ...]


class SwitchArrays(NamedTuple):
    """A problem under switching limits as arrays for compiled loops; columns are clocks.

    Attributes:
        row: Row of each instance's block in its mode; shape ``(instances,)``.
        time_ms: Time of each block in its mode at each clock, infinite where it has it not; shape
            ``(blocks, clocks)``.
        energy_mj: Likewise, effective, on all devices of the block.
        first: Where the waits of each instance begin; shape ``(instances + 1,)``.
        tail: Who is waited for.
        delay_ms: Delay, at least.
        is_adjacent: Whether a device runs the head just after the tail.
        order: Instances of all devices, one device after the other, in its order.
        begins: Where each device begins there, and the end.
        group: Clock group of each instance.
        latency_ms: Latency from each clock to each other.
        dwell_ms: See `SwitchingLimits`, but for rounding errors.
        back_to_back: Likewise.
        latest_ms: For the length of the iteration.
    """

    row: Ints
    time_ms: Floats
    energy_mj: Floats
    first: Ints
    tail: Ints
    delay_ms: Floats
    is_adjacent: NDArray[np.bool_]
    order: Ints
    begins: Ints
    group: Ints
    latency_ms: Floats
    dwell_ms: float
    back_to_back: bool
    latest_ms: float


class SwitchState(NamedTuple):
    """Clocks and what they do.

    Attributes:
        column: Clock of each instance; a column of `SwitchArrays`.
        start_ms: Start of each instance.
        time_ms: Length of the iteration.
        effective_mj: Energy above the blocking power, the least of any clock.
        after_w: Power after the end above that.
        is_kept: Whether all limits are kept.
    """

    column: Ints
    start_ms: Floats
    time_ms: float
    effective_mj: float
    after_w: float
    is_kept: bool


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
        """All of it as arrays."""
        clocks, graph, placement = self.clock_mhz, self.graph, self.schedule.placement
        runs = placement.runs
        time, energy = np.full((2, len(runs), len(clocks)), np.inf)
        for row, (name, block) in enumerate(runs.items()):
            for p in self.profile.points[name]:
                effective_mj = p.energy_mj - self.profile.min_blocking_power_w * p.time_ms
                column = np.searchsorted(clocks, p.clock_mhz)
                time[row, column], energy[row, column] = p.time_ms, placement.gpus_of(block) * effective_mj
        rows = {name: row for row, name in enumerate(runs)}
        pairs = {pair for order in self.orders for pair in pairwise(order.tolist())}
        edges = zip(graph.tail.tolist(), graph.head.tolist(), strict=True)
        return SwitchArrays(
            np.array([rows[name] for name in graph.runs]),
            time,
            energy,
            graph.first,
            graph.tail,
            graph.delay_ms,
            np.array([edge in pairs for edge in edges], dtype=np.bool_),
            np.concatenate(self.orders),
            np.cumsum([0, *map(len, self.orders)]),
            np.arange(graph.size) if self.group is None else self.group,
            self.limits.latencies_ms(clocks[:, None], clocks[None]),
            self.limits.dwell_ms * (1 - TIME_TOLERANCE),
            self.limits.back_to_back,
            self.latest_ms,
        )

    @property
    def min_latency_ms(self) -> float:
        """Return what the quickest change takes."""
        others = ~np.eye(len(self.clock_mhz), dtype=np.bool_)
        return float(self.arrays.latency_ms[others].min(initial=self.limits.latency_ms))

    def columns(self, clock_mhz: Mapping[str, Sequence[int]]) -> Ints:
        """Return the column of each instance's clock, from those of each block by micro-batch."""
        _, _, clock = at_clocks(self.schedule, self.profile, clock_mhz, self.graph)
        return np.searchsorted(self.clock_mhz, clock[:, 0]).astype(np.int64)

    def state(self, column: Ints) -> SwitchState:
        """Simulate clocks."""
        from schedsearch.energy.limits.switching_kernel import simulate  # loads numba, which is slow

        arrays = self.arrays
        start, end = np.empty((2, len(column)))
        length_ms, over_ms = simulate(arrays, column, start, end)
        clock = self.clock_mhz[column][:, None]
        above_mj, after_w = self.waiting.of_all(
            start[:, None], (end - start)[:, None], clock, np.array([length_ms])
        )
        effective_mj = float(arrays.energy_mj[arrays.row, column].sum()) + float(above_mj[0])
        return SwitchState(column, start, length_ms, effective_mj, float(after_w[0]), over_ms <= 0)

    def one_for_each_device(self) -> Ints:
        """Return one clock for all blocks of each device, or of devices that share blocks; as columns.

        Each begins at the one at which its blocks are fastest together, and is lowered in turn as far as the
        limits allow. Where blocks have no clock in common, each has its own fastest.
        """
        arrays = self.arrays
        column: Ints = arrays.time_ms.argmin(axis=1)[arrays.row]
        groups: list[set[int]] = []
        for block in self.schedule.placement.blocks:
            joined = [group for group in groups if group & set(block.devices)]
            groups = [group for group in groups if group not in joined]
            groups.append(set(block.devices).union(*joined))
        ways = []
        for group in groups:
            members = np.unique(np.concatenate([self.orders[device] for device in group]))
            total_ms = arrays.time_ms[arrays.row[members]].sum(axis=0)
            order = np.lexsort((-self.clock_mhz, total_ms))  # of equally fast clocks the highest first
            common = order[np.isfinite(total_ms[order])]
            if len(common):
                ways.append((members, common))
                column[members] = common[0]
        for members, common in ways:
            kept, late = 0, len(common)
            while late - kept > 1:
                middle = (kept + late) // 2
                column[members] = common[middle]
                kept, late = (middle, late) if self.state(column).is_kept else (kept, middle)
            column[members] = common[kept]
        return column

    def simulation(self, state: SwitchState) -> ClockedIteration:
        """Return a state as a simulation."""
        return ClockedIteration(
            dict(zip(self.graph.instances, state.start_ms.tolist(), strict=True)),
            state.time_ms,
            state.effective_mj + self.waiting_w * state.time_ms,
            None if self.waiting.is_even else self.waiting_w + state.after_w,
        )

    def limited(
        self, state: SwitchState, free: FrequencyPlan, deadline_ms: float, min_mj: float
    ) -> LimitedPlan[SwitchingLimits, ClockChanges]:
        """Return a state that keeps the limits as a plan.

        Args:
            state: State.
            free: The plan without limits.
            deadline_ms: Deadline that both keep.
            min_mj: Effective energy that no plan is below.
        """
        simulation = self.simulation(state)
        (clocks,) = clocks_by_block(self.graph, self.clock_mhz[state.column][:, None])
        waiting_mj = self.waiting_w * deadline_ms
        bound_mj = proved(min_mj, state.effective_mj, waiting_mj) + waiting_mj
        plan = simulated_plan(clocks, simulation, self.bound.at(simulation.time_ms))
        found = ClockChanges(
            simulation, num_clock_changes(self.schedule, clocks), changes_per_iteration(self.schedule, clocks)
        )
        energy_mj = state.effective_mj + waiting_mj
        return LimitedPlan(plan, self.limits, found, free, deadline_ms, energy_mj, bound_mj)


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
    return problem.simulation(problem.state(problem.columns(clock_mhz)))
