"""Time and energy of an iteration in which every block of every micro-batch has its own clock.

Blocks start as soon as their inputs and devices are there. Blocks take exactly their profiled time:
jitter, and the time that a change of clock takes, are not known here.

A device that waits stays at the clock of the block before, and before its first block at that of its first
block (Perseus, Sec. 4.1, has one blocking power for all). Effective energies are above the blocking power of
the clock where it is least, so that no plan uses less than the relaxed problem says; what a plan's own gaps
use beyond that is added to it here. A device without blocks waits at the least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placements import OperatingPoint, Placement, Profile
from placements.profiles.operating_point import config_of
from schedsearch.energy.frontier import FrequencyPlan
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints, device_orders, instance_graph
from schedsearch.schedule import Instance, Schedule


def waiting_w(placement: Placement, profile: Profile) -> float:
    """Return the power of the GPUs of all devices together while all wait at the clock of least power."""
    return profile.min_blocking_power_w * sum(placement.gpus)


@dataclass(frozen=True, eq=False)
class WaitingPower:
    """The power of waiting devices above the least blocking power, by device and clock.

    Attributes:
        orders: For each device the indices of its instances, in its order.
        num_gpus: GPUs of each device; shape ``(devices,)``.
        clock_mhz: The profile's clocks, ascending.
        above_w: Power of a waiting GPU at each of these clocks, above the least.
    """

    orders: tuple[Ints, ...]
    num_gpus: Ints
    clock_mhz: Ints
    above_w: Floats

    @classmethod
    def of(cls, schedule: Schedule, profile: Profile, graph: InstanceGraph) -> WaitingPower:
        """Return the waiting of a schedule."""
        clocks = sorted({point.clock_mhz for points in profile.points.values() for point in points})
        least = profile.min_blocking_power_w
        above = [profile.blocking_w(clock) - least if profile.waits_by_clock else 0.0 for clock in clocks]
        orders = tuple(device_orders(schedule, graph))
        return cls(orders, np.array(schedule.placement.gpus), np.array(clocks), np.array(above))

    @property
    def is_even(self) -> bool:
        """Tell whether the blocking power is the same at all clocks."""
        return not self.above_w.any()

    def of_all(
        self, start_ms: Floats, time_ms: Floats, clock_mhz: Ints, until_ms: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the waiting energy of all GPUs above the least, and their power after the last blocks.

        Args:
            start_ms: Shape ``(instances, plans)``.
            time_ms: Likewise.
            clock_mhz: Of the profile's; likewise, or ``(instances, 1)``.
            until_ms: End of the iteration; shape ``(plans,)``. None for that of its last block.

        Returns:
            Millijoules and watts; shape ``(plans,)`` each.
        """
        energy_mj, after_w = np.zeros((2, start_ms.shape[1]))
        if self.is_even:
            return energy_mj, after_w
        end_ms = start_ms + time_ms
        until_ms = end_ms.max(axis=0) if until_ms is None else until_ms
        for order, gpus in zip(self.orders, self.num_gpus.tolist(), strict=True):
            if len(order):
                above = gpus * self.above_w[np.searchsorted(self.clock_mhz, clock_mhz[order])]
                gap = np.vstack([start_ms[order[1:]], until_ms]) - end_ms[order]
                energy_mj += (above * gap).sum(axis=0) + above[0] * start_ms[order[0]]
                after_w += above[-1]
        return energy_mj, after_w


@dataclass(frozen=True)
class ClockedIteration:
    """The simulated iteration of a schedule at given clocks.

    Attributes:
        start_ms: Start of each (block, micro-batch), from the begin of the iteration.
        time_ms: Length of the iteration.
        energy_mj: Energy of all devices from the begin to the end of the iteration.
        waiting_w: Power of all devices after the end, as of `FrequencyPlan`.
    """

    start_ms: Mapping[Instance, float]
    time_ms: float
    energy_mj: float
    waiting_w: float | None = None


def simulate_at_clocks(
    schedule: Schedule,
    profile: Profile,
    clock_mhz: Mapping[str, Sequence[int]],
    graph: InstanceGraph | None = None,
) -> ClockedIteration:
    """Return time and energy of a schedule at given clocks (Perseus, Sec. 4.1, Eq. 3, without straggler).

    A block uses its energy once on each GPU of each of its devices. Of the schedule only the orders count;
    its graph may be given, where it is at hand.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: A clock is missing or not in the profile.
    """
    profile.require(schedule.placement)
    graph = instance_graph(schedule) if graph is None else graph
    time, used_mj, clock = at_clocks(schedule, profile, clock_mhz, graph)
    start = graph.earliest_start(time)
    makespan = float((start + time).max())
    gpus = {block.name: schedule.placement.gpus_of(block) for block in schedule.placement.blocks}
    number = np.array([gpus[name] for name, _ in graph.instances])
    effective = float(number @ (used_mj - profile.min_blocking_power_w * time)[:, 0])
    starts = dict(zip(graph.instances, start[:, 0].tolist(), strict=True))
    waiting = WaitingPower.of(schedule, profile, graph)
    above_mj, after_w = waiting.of_all(start, time, clock)
    min_w = waiting_w(schedule.placement, profile)
    energy = effective + float(above_mj[0]) + min_w * makespan
    return ClockedIteration(starts, makespan, energy, None if waiting.is_even else min_w + float(after_w[0]))


def simulated_plan(
    clock_mhz: Mapping[str, tuple[int, ...]], done: ClockedIteration, lower_bound_mj: float = 0.0
) -> FrequencyPlan:
    """Return the plan of given clocks with the time and energy of their simulation."""
    return FrequencyPlan(clock_mhz, done.time_ms, done.energy_mj, lower_bound_mj, done.waiting_w)


def at_clocks(
    schedule: Schedule, profile: Profile, clock_mhz: Mapping[str, Sequence[int]], graph: InstanceGraph
) -> tuple[Floats, Floats, Ints]:
    """Return time, energy on one GPU and MHz of every instance; shape ``(instances, 1)`` each."""
    chosen = operating_points(schedule, profile, clock_mhz)
    points = [chosen[instance] for instance in graph.instances]
    costs = np.array([(point.time_ms, point.energy_mj) for point in points])
    return costs[:, :1], costs[:, 1:], np.array([[point.clock_mhz] for point in points])


def operating_points(
    schedule: Schedule, profile: Profile, clock_mhz: Mapping[str, Sequence[int]]
) -> dict[Instance, OperatingPoint]:
    """Return the profiled cost of every instance at its clock.

    Raises:
        EnergyError: A clock is missing or not in the profile.
    """
    chosen: dict[Instance, OperatingPoint] = {}
    by_clock = {run: _by_clock(profile.points[run]) for run in schedule.placement.runs}
    for name, runs in schedule.runs_of.items():
        clocks = clock_mhz.get(name, ())
        if len(clocks) != len(runs):
            raise EnergyError(
                f"clock_mhz.{name}: has {len(clocks)} clocks for {len(runs)} micro-batches; give one for each"
            )
        for n, clock in zip(runs, clocks, strict=True):
            run = schedule.run_name(name, n)
            if clock not in by_clock[run]:
                raise EnergyError(f"clock_mhz.{name}[{n}]: {_not_known(clock, profile.points[run])}")
            chosen[name, n] = by_clock[run][clock]
    return chosen


def _by_clock(points: Sequence[OperatingPoint]) -> dict[int, OperatingPoint]:
    """Return the points by clock; a configuration must be named only if its clock has several."""
    several = Counter(point.clock_mhz for point in points)
    known = {point.clock_mhz: point for point in points if several[point.clock_mhz] == 1}
    return known | {point.clock: point for point in points}


def _not_known(clock: int, points: Sequence[OperatingPoint]) -> str:
    configs = ", ".join(point.config for point in points if point.clock_mhz == int(clock) and point.config)
    if configs and not config_of(clock):
        return f"{clock} MHz has the configurations {configs} in the profile; name one of them"
    if configs:
        return f"{clock} MHz of config {config_of(clock)} is not in the profile; it has {configs}"
    clocks = {point.clock_mhz for point in points}
    return (
        f"{clock} MHz is not in the profile; its clocks are {min(clocks)} to {max(clocks)} MHz, "
        f"{len(clocks)} of them"
    )


def all_maximum_clocks(schedule: Schedule, profile: Profile) -> dict[str, tuple[int, ...]]:
    """Return each block's highest clock for every micro-batch."""
    return clocks_of(schedule, {run: profile.fastest(run).clock for run in schedule.placement.runs})


def clocks_of(schedule: Schedule, clock_mhz: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return one clock for each block, in each of its modes, as clocks of all its micro-batches."""
    return {
        name: tuple(clock_mhz[schedule.run_name(name, n)] for n in runs)
        for name, runs in schedule.runs_of.items()
    }
