"""The shortest iteration under a limit on the average power of the job, or of each device.

The average is over the iteration, waiting included (the energy of Perseus, Sec. 3.1 and 4.1, Eq. 3, over
its time). Of a plan whose blocks take the effective energy E, above the blocking power P of N devices, an
iteration must take at least ``E / (limit - N P)``, because waiting at the end lowers the average: so every
plan can keep a limit above the blocking power, and the question is which one is then the shortest.

The least time of the relaxed problem is a linear program, for a limit on each device as well, and no plan
beats it. Plans come from rounding its times, and those of the frontier are tried too.

A limit on each device is one on each of its GPUs, as NVML sets it: those of a device all run the same.
Where the blocking power depends on the clock, P is the least of any clock; what a plan draws above it while
it waits is counted, and a plan whose last clocks wait at more than the limit cannot be saved by waiting.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from placements import OperatingPoint, Profile
from schedsearch.energy.bound import proved
from schedsearch.energy.frontier import FrequencyPlan, Frontier
from schedsearch.energy.generators.rounding import rounded
from schedsearch.energy.graph import EnergyError, instance_graph
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.relaxed.highs import SolverError
from schedsearch.energy.relaxed.timing_program import EnergyLimit, free_timing, least_time, min_energy
from schedsearch.energy.simulation import operating_points
from schedsearch.energy.waiting import WaitingPower
from schedsearch.schedule import Instance, Schedule

STRETCHES = (1.0, 1.0005, 1.001, 1.002, 1.004)
"""Deadlines that are rounded, over the least relaxed time; rounding costs energy that some time pays for."""


@dataclass(frozen=True)
class PowerCap:
    """Limits on average power; None for no limit.

    Attributes:
        job_w: Power of all devices together.
        device_w: Power of each GPU.

    Raises:
        EnergyError: One is not a power.
    """

    job_w: float | None = None
    device_w: float | None = None

    def __post_init__(self) -> None:
        """Check both."""
        for name in ("job_w", "device_w"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise EnergyError(f"{name}: {value:g} is not a power above 0; give watts")


@dataclass(frozen=True)
class CappedPlan:
    """The shortest iteration that was found under a power cap.

    Attributes:
        plan: Clocks, and time and energy of the iteration, with the wait at its end.
        running_ms: End of the last block; the devices wait from then on.
        power_w: Average of one GPU of each device.
        min_ms: No iteration under the cap is shorter, at any clocks; from the relaxed problem, or where the
            solver failed on it, the shortest iteration without a cap.
        cap: Cap that is kept.
    """

    plan: FrequencyPlan
    running_ms: float
    power_w: tuple[float, ...]
    min_ms: float
    cap: PowerCap

    @property
    def job_power_w(self) -> float:
        """Return the average power of all devices together."""
        return self.plan.energy_mj / self.plan.time_ms

    @property
    def gap(self) -> float:
        """Return by how much of the least time the iteration may be above the shortest one."""
        return self.plan.time_ms / self.min_ms - 1


def device_power_w(schedule: Schedule, profile: Profile, plan: FrequencyPlan) -> tuple[float, ...]:
    """Return the average power in watts of a GPU of each device over an iteration, blocking included."""
    chosen = operating_points(schedule, profile, plan.clock_mhz)
    power = profile.min_blocking_power_w
    devices = range(schedule.placement.num_devices)
    runs = [[chosen[instance] for instance in schedule.order(device)] for device in devices]
    above_mj = _above_min_mj(schedule, profile, chosen, plan.time_ms)
    return tuple(
        power + (math.fsum(point.energy_mj - power * point.time_ms for point in run) + above) / plan.time_ms
        for run, above in zip(runs, above_mj, strict=True)
    )


def _above_min_mj(
    schedule: Schedule, profile: Profile, chosen: Mapping[Instance, OperatingPoint], length_ms: float
) -> list[float]:
    """Return what a GPU of each device uses while it waits above the least blocking power."""
    graph = instance_graph(schedule)
    waiting = WaitingPower.of(schedule, profile, graph)
    if waiting is None:
        return [0.0] * graph.num_devices
    points = [chosen[instance] for instance in graph.instances]
    time_ms = np.array([[point.time_ms] for point in points])
    above_w = waiting.of_clocks(np.array([[point.clock_mhz] for point in points]))
    found = waiting.above_min_mj(graph.earliest_start(time_ms), time_ms, above_w, np.array([length_ms]))
    above: list[float] = found[:, 0].tolist()
    return above


def capped_plan(schedule: Schedule, profile: Profile, frontier: Frontier, cap: PowerCap) -> CappedPlan:
    """Return the shortest iteration under a power cap, and how short it can be at best.

    Args:
        schedule: Any valid schedule; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        frontier: Frontier of the schedule.
        cap: Cap to be kept.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: The cap leaves nothing above the blocking power, or no plan was found that keeps it.
    """
    capped = _Capped(ClockProblem(schedule, profile), cap)
    min_ms, choices = capped.relaxed()
    found = [capped.stretched(clocks) for clocks in choices]
    found += [capped.stretched(plan.clock_mhz) for plan in frontier.plans]
    found = [each for each in found if each[1].time_ms < math.inf]
    if not found:
        name = "device_power_cap_w" if cap.job_w is None else "power_cap_w"
        raise EnergyError(
            f"{name}: is kept by no plan that was found, since devices wait at more after their last blocks; "
            "give more"
        )
    running_ms, plan = min(found, key=lambda each: (each[1].time_ms, each[1].energy_mj))
    power_w = device_power_w(schedule, profile, plan)
    return CappedPlan(plan, running_ms, power_w, proved(min_ms, plan.time_ms), cap)


class _Capped:
    """A problem under a cap."""

    def __init__(self, problem: ClockProblem, cap: PowerCap) -> None:
        self.problem, self.cap = problem, cap
        self.blocking_w = problem.profile.min_blocking_power_w
        self.job_w = _above(cap.job_w, "job_w", problem.waiting_w)
        self.device_w = _above(cap.device_w, "device_w", self.blocking_w)

    def relaxed(self) -> tuple[float, list[Clocks]]:
        """Return the least relaxed time, and clocks of plans of about that time.

        A longer iteration keeps any limit. Where the solver finds none all the same, the least time is that
        without limits, and there are no clocks.
        """
        problem = self.problem
        timing = free_timing(problem.graph, problem.curves)
        limits = list(self._limits())
        kept = []
        shortest = None
        with contextlib.suppress(SolverError):
            shortest = least_time(timing, limits)
            deadlines = [shortest.time_ms * stretch for stretch in STRETCHES] if shortest else []
            for deadline in deadlines:
                plan = min_energy(timing, deadline, limits)
                kept += [] if plan is None else [(plan.planned_ms, plan.time_ms)]
        if shortest is None or not kept:
            return problem.span_ms[0] if shortest is None else shortest.time_ms, []
        planned = np.column_stack([times for times, _ in kept])
        ways = rounded(problem, planned, np.array([deadline for _, deadline in kept]))
        return shortest.time_ms, [clocks for _, choice in ways for clocks in problem.clocks(choice)]

    def _limits(self) -> Iterator[EnergyLimit]:
        """Yield what the cap says of the effective energies of the instances."""
        placement = self.problem.schedule.placement
        gpus = {block.name: placement.gpus_of(block) for block in placement.blocks}
        if self.job_w is not None:
            yield EnergyLimit(np.ones(self.problem.graph.size), self.job_w)
        if self.device_w is not None:
            for device in range(self.problem.graph.num_devices):
                here = {block.name for block in placement.on(device)}
                share = [1 / gpus[name] if name in here else 0.0 for name, _ in self.problem.graph.instances]
                yield EnergyLimit(np.array(share), self.device_w)

    def stretched(self, clock_mhz: Clocks) -> tuple[float, FrequencyPlan]:
        """Return the end of the last block, and the plan with as long a wait after it as the cap asks for."""
        plan = self.problem.plan(clock_mhz, 0.0)
        length_ms = self._length_ms(plan)
        after_w = self.problem.waiting_w if plan.waiting_w is None else plan.waiting_w
        waiting_mj = after_w * (length_ms - plan.time_ms)
        return plan.time_ms, replace(plan, time_ms=length_ms, energy_mj=plan.energy_mj + waiting_mj)

    def _length_ms(self, plan: FrequencyPlan) -> float:
        """Return the shortest iteration in which a plan keeps the cap; infinite if it never does.

        Each limit is on an average: of the energy until the plan's end, and of the wait after it.
        """
        device_w = device_power_w(self.problem.schedule, self.problem.profile, plan)
        effective = [(power - self.blocking_w) * plan.time_ms for power in device_w]
        after_w = self._after_last_w(plan)
        gpus = self.problem.schedule.placement.gpus
        limits: list[tuple[float, float, float]] = []  # energy, power after the end, most power on average
        if self.job_w is not None:
            job_mj = math.fsum(number * each for number, each in zip(gpus, effective, strict=True))
            job_after_w = math.fsum(number * each for number, each in zip(gpus, after_w, strict=True))
            limits.append((job_mj, job_after_w, self.job_w))
        if self.device_w is not None:
            limits += [(mj, watts, self.device_w) for mj, watts in zip(effective, after_w, strict=True)]
        length_ms = plan.time_ms
        for mj, watts, max_w in limits:
            if watts < max_w:
                length_ms = max(length_ms, (mj - watts * plan.time_ms) / (max_w - watts))
        is_kept = all(
            watts < max_w or mj + watts * (length_ms - plan.time_ms) <= max_w * length_ms
            for mj, watts, max_w in limits
        )
        return length_ms if is_kept else math.inf

    def _after_last_w(self, plan: FrequencyPlan) -> list[float]:
        """Return what a GPU of each device draws after its last block above the least blocking power."""
        waiting = self.problem.waiting
        if waiting is None:
            return [0.0] * self.problem.graph.num_devices
        chosen = operating_points(self.problem.schedule, self.problem.profile, plan.clock_mhz)
        clocks = np.array([[chosen[instance].clock_mhz] for instance in self.problem.graph.instances])
        after: list[float] = waiting.after_last_w(waiting.of_clocks(clocks))[:, 0].tolist()
        return after


def _above(cap_w: float | None, name: str, blocking_w: float) -> float | None:
    """Return what a cap leaves above the blocking power.

    Raises:
        EnergyError: Nothing.
    """
    if cap_w is not None and cap_w <= blocking_w:
        raise EnergyError(
            f"{name}: {cap_w:g} W is not above the {blocking_w:g} W of waiting; give more, or fewer devices"
        )
    return None if cap_w is None else cap_w - blocking_w
