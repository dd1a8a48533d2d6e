"""Time and energy of an iteration in which every block of every micro-batch has its own clock.

Blocks start as soon as their inputs and devices are there. Blocks take exactly their profiled time:
jitter, and the time that a change of clock takes, are not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placements import OperatingPoint, Profile
from placements.profiles.operating_point import config_of
from schedsearch.energy.frontier import FrequencyPlan
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints, instance_graph
from schedsearch.energy.waiting import WaitingPower, waiting_w
from schedsearch.schedule import Instance, Schedule


@dataclass(frozen=True)
class ClockedIteration:
    """What an iteration does at given clocks.

    Attributes:
        start_ms: Start of each (block, micro-batch), from the begin of the iteration.
        time_ms: Length of the iteration.
        energy_mj: Energy of all devices from the begin to the end of the iteration.
        waiting_w: Power of all devices after the end, next to a straggler, at the clocks of their last
            blocks; None where the blocking power does not depend on the clock.
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

    A block uses its energy once on each GPU of each of its devices. A device that waits stays at the clock of
    the block before, and before its first block at that of its first block.

    Args:
        schedule: Gives the order of the blocks on each device; its start times are not used.
        profile: Cost of each block at each clock.
        clock_mhz: For each block one clock per micro-batch.
        graph: Graph of the schedule, where it is at hand.

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
    """Return clocks with what their simulation says as a plan."""
    return FrequencyPlan(clock_mhz, done.time_ms, done.energy_mj, lower_bound_mj, done.waiting_w)


def at_clocks(
    schedule: Schedule, profile: Profile, clock_mhz: Mapping[str, Sequence[int]], graph: InstanceGraph
) -> tuple[Floats, Floats, Ints]:
    """Return time, energy on one GPU and MHz of every instance at its clock; shape ``(instances, 1)`` each.

    Raises:
        EnergyError: A clock is missing or not in the profile.
    """
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
            known = by_clock[schedule.run_name(name, n)]
            if clock not in known:
                raise EnergyError(f"clock_mhz.{name}[{n}]: {_not_known(clock, known)}")
            chosen[name, n] = known[clock]
    return chosen


def _by_clock(points: Sequence[OperatingPoint]) -> dict[int, OperatingPoint]:
    """Return the points by clock; a configuration needs to be named only where the clock has several."""
    several = Counter(point.clock_mhz for point in points)
    known = {point.clock_mhz: point for point in points if several[point.clock_mhz] == 1}
    return known | {point.clock: point for point in points}


def _not_known(clock: int, known: Mapping[int, OperatingPoint]) -> str:
    configs = [point.config for point in known.values() if point.clock_mhz == int(clock)]
    if configs and not config_of(clock):
        return f"{clock} MHz has the configurations {', '.join(configs)} in the profile; name one of them"
    if configs:
        return f"{clock} MHz of config {config_of(clock)} is not in the profile; it has {', '.join(configs)}"
    clocks = {int(clock) for clock in known}
    return (
        f"{clock} MHz is not in the profile; its clocks are {min(clocks)} to {max(clocks)} MHz, "
        f"{len(clocks)} of them"
    )


def all_maximum_clocks(schedule: Schedule, profile: Profile) -> dict[str, tuple[int, ...]]:
    """Return each block's highest clock for every micro-batch."""
    return {
        name: tuple(profile.fastest(schedule.run_name(name, n)).clock for n in runs)
        for name, runs in schedule.runs_of.items()
    }
