"""A slow accounting of an iteration that shares no code with the package: an event loop over devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from placements import OperatingPoint, Placement, Profile
from schedsearch.schedule import Instance, Schedule

Clocks = Mapping[str, Sequence[int]]
Factors = Mapping[Instance, float]
Latency = float | Mapping[tuple[int, int], float]
"""Of every change of clock, or by the clocks before and after it."""


def blocking_w(profile: Profile, clock_mhz: int) -> float:
    """Power of a GPU that waits at a clock: linear between the points, constant outside."""
    if not isinstance(profile.blocking_power_w, tuple):
        return profile.blocking_power_w
    clocks, watts = zip(*profile.blocking_power_w, strict=True)
    return float(np.interp(clock_mhz, clocks, watts))


def instance_points(
    schedule: Schedule, profile: Profile, clock_mhz: Clocks, factor: Factors | None = None
) -> dict[Instance, OperatingPoint]:
    """Points of all instances; of some, a factor says how much longer than usual they run."""
    by_clock = {name: {p.clock_mhz: p for p in reversed(points)} for name, points in profile.points.items()}
    points = {
        (name, n): by_clock[schedule.run_name(name, n)][clock_mhz[name][n]] for name, n in schedule.start_of
    }
    for instance, times in (factor or {}).items():
        p = points[instance]
        points[instance] = replace(p, time_ms=times * p.time_ms, energy_mj=times * p.energy_mj)
    return points


def change_ms(latency_ms: Latency, before_mhz: int, after_mhz: int) -> float:
    if before_mhz == after_mhz:
        return 0.0
    return latency_ms[before_mhz, after_mhz] if isinstance(latency_ms, Mapping) else latency_ms


def starts(
    schedule: Schedule,
    profile: Profile,
    clock_mhz: Clocks,
    latency_ms: Latency = 0.0,
    factor: Factors | None = None,
) -> dict[Instance, float]:
    """Start whatever is next on all of its devices and has its inputs, until all has run."""
    placement, point = schedule.placement, instance_points(schedule, profile, clock_mhz, factor)
    queue = {device: list(schedule.order(device)) for device in range(placement.num_devices)}
    free_ms = dict.fromkeys(queue, 0.0)
    at_mhz: dict[int, int] = {}
    start: dict[Instance, float] = {}
    while any(queue.values()):
        for device in queue:
            if not queue[device]:
                continue
            name, n = head = queue[device][0]
            block, chosen = schedule.block(name, n), point[head]
            inputs = [(source, n) for source in block.after]
            if any(queue[other][:1] != [head] for other in block.devices) or not set(inputs) <= set(start):
                continue
            arrivals = [
                start[key] + point[key].time_ms + placement.transfer_time(key[0], name) * placement.tick_ms
                for key in inputs
            ]
            ready = [
                free_ms[other] + change_ms(latency_ms, at_mhz.get(other, chosen.clock_mhz), chosen.clock_mhz)
                for other in block.devices
            ]
            start[head] = max(0.0, *arrivals, *ready)
            for other in block.devices:
                queue[other].pop(0)
                free_ms[other], at_mhz[other] = start[head] + chosen.time_ms, chosen.clock_mhz
    return start


def device_energy_mj(
    schedule: Schedule,
    profile: Profile,
    clock_mhz: Clocks,
    start_ms: Mapping[Instance, float],
    until_ms: float,
    factor: Factors | None = None,
) -> list[float]:
    """Energy of one GPU of each device: block by block, gap by gap."""
    point = instance_points(schedule, profile, clock_mhz, factor)
    every = {p.clock_mhz for points in profile.points.values() for p in points}
    energies = []
    for device in range(schedule.placement.num_devices):
        order = schedule.order(device)
        energy, now = 0.0, 0.0
        idle_w = (
            blocking_w(profile, point[order[0]].clock_mhz)
            if order
            else min(blocking_w(profile, clock) for clock in every)
        )
        for instance in order:
            chosen = point[instance]
            energy += idle_w * (start_ms[instance] - now) + chosen.energy_mj
            now, idle_w = start_ms[instance] + chosen.time_ms, blocking_w(profile, chosen.clock_mhz)
        energies.append(energy + idle_w * (until_ms - now))
    return energies


def accounted(
    schedule: Schedule,
    profile: Profile,
    clock_mhz: Clocks,
    until_ms: float = 0.0,
    latency_ms: float = 0.0,
    factor: Factors | None = None,
) -> tuple[float, float]:
    """Time of an iteration, and energy of all GPUs until its end or until a later time."""
    start = starts(schedule, profile, clock_mhz, latency_ms, factor)
    point = instance_points(schedule, profile, clock_mhz, factor)
    time = max(start[instance] + point[instance].time_ms for instance in start)
    energies = device_energy_mj(schedule, profile, clock_mhz, start, max(time, until_ms), factor)
    gpus = schedule.placement.num_gpus or (1,) * schedule.placement.num_devices
    return time, math.fsum(number * energy for number, energy in zip(gpus, energies, strict=True))


def bottom_w(placement: Placement, profile: Profile) -> float:
    """Power of all GPUs that wait at whatever clock of the profile is least."""
    every = {p.clock_mhz for points in profile.points.values() for p in points}
    gpus = placement.num_gpus or (1,) * placement.num_devices
    return min(blocking_w(profile, clock) for clock in every) * sum(gpus)


@st.composite
def curves(draw: st.DrawFn) -> tuple[tuple[int, float], ...]:
    """Blocking power by clock, also falling, and with points outside the clocks of `cases.profiles`."""
    clocks = draw(st.sets(st.integers(50, 600), min_size=2, max_size=4))
    return tuple((clock, draw(st.sampled_from([0.0, 2.0, 3.5, 6.0, 11.0]))) for clock in sorted(clocks))


@st.composite
def gpus(draw: st.DrawFn, num_devices: int) -> tuple[int, ...]:
    """GPUs of each device."""
    return tuple(draw(st.integers(1, 4)) for _ in range(num_devices))
