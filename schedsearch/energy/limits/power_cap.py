"""The shortest iteration under a limit on the average power of the job, or of each device.

The average is over the iteration, waiting included (the energy of Perseus, Sec. 3.1 and 4.1, Eq. 3, over
its time). Of a plan whose blocks take the effective energy E, above the blocking power P of N devices, an
iteration must take at least ``E / (limit - N P)``, because waiting at the end lowers the average: so every
plan can keep a limit above the blocking power, and the question is which one is then the shortest.

The least time of the relaxed problem is a linear program, for a limit on each device as well, and no plan
beats it. Plans come from rounding its times, and those of the frontier are tried too.

A limit on each device is one on each of its GPUs, as NVML sets it: those of a device all run the same.
Where the blocking power depends on the clock, P is the least of any clock; a plan's power above it while
it waits is counted, and a plan whose last clocks wait at more than the limit cannot be saved by waiting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from placements import Profile
from schedsearch.energy.frontier import FrequencyPlan, Frontier, proved
from schedsearch.energy.generators import rounded
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.energy.limits.plan import LimitedPlan
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.programs import EnergyLimit, free_timing, min_energy
from schedsearch.energy.simulation import at_clocks
from schedsearch.schedule import Schedule

STRETCHES = (1.0, 1.0005, 1.001, 1.002, 1.004)
"""Deadlines to round plans for, over the least relaxed time: rounding costs energy, more time saves it."""


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
        for name in ("job_w", "device_w"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise EnergyError(f"{name}: {value:g} is not a power above 0; give watts")


class AveragePower(NamedTuple):
    """The average power of a plan, which a cap limits.

    Attributes:
        running_ms: End of the last block; the devices wait from then on.
        power_w: Average of one GPU of each device over the iteration.
    """

    running_ms: float
    power_w: tuple[float, ...]


def _of_devices(problem: ClockProblem, plan: FrequencyPlan) -> tuple[Floats, Floats]:
    """Return, for one GPU of each device, effective energy until the plan's end, and the power afterwards."""
    schedule, graph, least_w = problem.schedule, problem.graph, problem.profile.min_blocking_power_w
    time_ms, used_mj, clock = at_clocks(schedule, problem.profile, plan.clock_mhz, graph)
    start_ms = graph.earliest_start(time_ms)
    until_ms = np.array([plan.time_ms])
    above_mj, after_w = problem.waiting.of_devices(start_ms, time_ms, clock, until_ms)
    effective = dict(zip(graph.instances, (used_mj - least_w * time_ms)[:, 0].tolist(), strict=True))
    devices = range(graph.num_devices)
    own_mj = [math.fsum(map(effective.__getitem__, schedule.order(device))) for device in devices]
    return np.array(own_mj) + above_mj[:, 0], after_w[:, 0]


def capped_plan(
    schedule: Schedule, profile: Profile, frontier: Frontier, cap: PowerCap
) -> LimitedPlan[PowerCap, AveragePower]:
    """Return the plan of shortest iteration found under a power cap, with a lower bound of its time.

    Returns:
        The plan, with the wait at its end. The lower bound is the relaxed problem's least time, or where the
        solver failed, the shortest iteration without a cap.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: The cap leaves nothing above the blocking power, or no plan was found that keeps it.
    """
    problem = ClockProblem(schedule, profile)
    left: dict[str, float | None] = {}
    for name, waiting_w in (("job_w", problem.waiting_w), ("device_w", profile.min_blocking_power_w)):
        value = getattr(cap, name)
        if value is not None and value <= waiting_w:
            raise EnergyError(
                f"{name}: {value:g} W is not above the {waiting_w:g} W of waiting; "
                "give more, or fewer devices"
            )
        left[name] = value and value - waiting_w
    above = PowerCap(**left)
    min_ms, choices = _relaxed(problem, above)
    clocks = [*choices, *(plan.clock_mhz for plan in frontier.plans)]
    found = [each for each in (_stretched(problem, above, each) for each in clocks) if each is not None]
    if not found:
        name = "device_power_cap_w" if cap.job_w is None else "power_cap_w"
        raise EnergyError(
            f"{name}: is kept by no plan that was found, since devices wait at more after their last blocks; "
            "give more"
        )
    plan, running_ms = min(found, key=lambda each: (each[0].time_ms, each[0].energy_mj))
    power_w = profile.min_blocking_power_w + _of_devices(problem, plan)[0] / plan.time_ms
    power = AveragePower(running_ms, tuple(power_w.tolist()))
    return LimitedPlan(plan, cap, power, free=frontier.shortest, min_ms=proved(min_ms, plan.time_ms))


def _relaxed(problem: ClockProblem, above: PowerCap) -> tuple[float, list[Clocks]]:
    """Return the least relaxed time, and clocks of plans of about that time.

    A longer iteration keeps any limit. Where the solver finds none all the same, the least time is that
    without limits, and there are no clocks.
    """
    timing, placement = free_timing(problem.graph, problem.curves), problem.schedule.placement
    limits = [] if above.job_w is None else [EnergyLimit(np.ones(problem.graph.size), above.job_w)]
    for device in range(placement.num_devices) if above.device_w is not None else ():
        share = {block.name: 1 / placement.gpus_of(block) for block in placement.on(device)}
        weight = np.array([share.get(name, 0.0) for name, _ in problem.graph.instances])
        limits.append(EnergyLimit(weight, above.device_w or 0.0))
    shortest = min_energy(timing, None, limits)
    if shortest is None:
        return problem.span_ms[0], []
    min_ms = shortest.time_ms
    plans = [min_energy(timing, min_ms * stretch, limits) for stretch in STRETCHES]
    kept = [(plan.planned_ms, plan.time_ms) for plan in plans if plan is not None]
    if not kept:
        return min_ms, []
    planned, deadlines = zip(*kept, strict=True)
    ways = rounded(problem, np.column_stack(planned), np.array(deadlines))
    return min_ms, [clocks for choice in ways for clocks in problem.clocks(choice)]


def _stretched(
    problem: ClockProblem, above: PowerCap, clock_mhz: Clocks
) -> tuple[FrequencyPlan, float] | None:
    """Return the plan with the shortest wait at its end that keeps a cap, and its own end; None if none does.

    Each limit is on an average: of the energy until the plan's end, and of the wait after it.
    """
    plan = problem.plan(clock_mhz, 0.0)
    each_mj, each_w = _of_devices(problem, plan)
    gpus = problem.waiting.num_gpus
    # energy, power after the end, most power on average
    limits = [(float(gpus @ each_mj), float(gpus @ each_w), above.job_w or math.inf)]
    limits += [
        (*each, above.device_w or math.inf) for each in zip(each_mj.tolist(), each_w.tolist(), strict=True)
    ]
    least = [(mj - w * plan.time_ms) / (most_w - w) for mj, w, most_w in limits if w < most_w]
    length_ms = max([plan.time_ms, *least])
    wait_ms = length_ms - plan.time_ms
    if any(w >= most_w and mj + w * wait_ms > most_w * length_ms for mj, w, most_w in limits):
        return None
    after_w = problem.waiting_w if plan.waiting_w is None else plan.waiting_w
    return replace(plan, time_ms=length_ms, energy_mj=plan.energy_mj + after_w * wait_ms), plan.time_ms
