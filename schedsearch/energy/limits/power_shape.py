"""The shape of a job's power over time, and the plan of least energy whose shape keeps limits.

Devices of a synchronous job compute and wait together, so its power swings. It is a step function: its
average over a meter's window is piecewise linear, and repeated iterations have Fourier coefficients in closed
form, so all figures are exact. Pieces shorter than `ROUNDING` count for no ramp.
Not known here: power within a block, the host, the network; the exchanges of copies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from placements import Profile
from placements.block import COMPUTE
from schedsearch.energy.frontier import TIME_TOLERANCE, Frontier
from schedsearch.energy.graph import EnergyError, Floats, device_orders, instance_graph
from schedsearch.energy.limits.plan import LimitedPlan
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.simulation import at_clocks
from schedsearch.schedule import Schedule

ROUNDING = 1e-9
"""Share of an iteration, or of a limit, that is a rounding error."""

_UNITS = {"peak_w": "W", "ramp_w_per_s": "W/s", "band_w": "W"}


@dataclass(frozen=True, eq=False)
class PowerTrace:
    """Power of all devices of one job over one iteration: a step function.

    Attributes:
        at_ms: Ends of the steps, ascending from 0 to the length of the iteration; shape ``(steps + 1,)``.
        power_w: Power in each step; shape ``(steps,)``.
    """

    at_ms: Floats
    power_w: Floats

    @property
    def length_ms(self) -> float:
        """Return the length of the iteration."""
        return float(self.at_ms[-1])

    @property
    def energy_mj(self) -> float:
        """Return the energy of the iteration."""
        return float(self.power_w @ np.diff(self.at_ms))


@dataclass(frozen=True)
class PowerLimits:
    """Limits on the power of all copies of a job together; None for no limit.

    Attributes:
        peak_w: Highest average over a window.
        ramp_w_per_s: Steepest rise or fall of that average while the window moves on.
        band_w: Root mean square of the power's part between two frequencies, without a window.
        window_ms: Time over which a meter averages.
        low_hz: Lowest frequency of the band, in it.
        high_hz: Highest frequency of the band, in it.

    Raises:
        EnergyError: One is not above 0, or the band is empty.
    """

    peak_w: float | None = None
    ramp_w_per_s: float | None = None
    band_w: float | None = None
    window_ms: float = 100.0
    low_hz: float = 0.1
    high_hz: float = 20.0

    def __post_init__(self) -> None:
        for name in (*_UNITS, "window_ms", "low_hz", "high_hz"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise EnergyError(f"{name}: {value:g} is not above 0 and finite; give another")
        if self.low_hz > self.high_hz:
            raise EnergyError(f"low_hz: {self.low_hz:g} is above high_hz {self.high_hz:g}; swap them")


@dataclass(frozen=True)
class PowerShape:
    """The figures that `PowerLimits` limits, and the average over an iteration, `mean_w`."""

    peak_w: float
    ramp_w_per_s: float
    band_w: float
    mean_w: float


class ShapedPower(NamedTuple):
    """The power of a plan's copies over time, whose shape the limits bound.

    Attributes:
        trace: Power of one copy until the iteration repeats: at the plan's end, or at the deadline.
        stagger_ms: Time from the start of each copy to that of the next.
        copies: Copies of the job, data-parallel.
        shape: Power shape of all copies.
        energy_mj: Energy of a copy until the deadline, with the wait at its end.
    """

    trace: PowerTrace
    stagger_ms: float
    copies: int
    shape: PowerShape
    energy_mj: float

    def price_over(self, other: ShapedPower) -> tuple[float, float]:
        """Return the shares of energy and time that this plan needs above another; below 0 if less."""
        return self.energy_mj / other.energy_mj - 1, self.trace.length_ms / other.trace.length_ms - 1


def power_trace(
    schedule: Schedule, profile: Profile, clock_mhz: Clocks, length_ms: float = 0.0
) -> PowerTrace:
    """Return the power of all devices over an iteration; its integral is the energy of `simulate_at_clocks`.

    A device that waits stays at the clock of the block before, and before its first block at that one's. The
    iteration lasts until the last block's end, or longer with a wait then.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: A clock is missing or not in the profile.
    """
    graph = instance_graph(schedule)
    time_ms, energy_mj, clock = at_clocks(schedule, profile, clock_mhz, graph)
    start = graph.earliest_start(time_ms)[:, 0]
    end = start + time_ms[:, 0]
    running_w = (energy_mj / time_ms)[:, 0]
    waiting_w = np.array([profile.blocking_w(each) for each in clock[:, 0].tolist()])
    at_ms = np.unique(np.concatenate([[0.0, length_ms], start, end]))
    power_w = np.zeros(len(at_ms) - 1)
    for order, gpus in zip(device_orders(schedule, graph), schedule.placement.gpus, strict=True):
        first_w = waiting_w[order[0]] if len(order) else profile.min_blocking_power_w
        # A wait, then by turns a block and the wait after it, which may take no time.
        from_ms = np.append(0.0, np.column_stack([start[order], end[order]]))
        step_w = np.append(first_w, np.column_stack([running_w[order], waiting_w[order]]))
        power_w += gpus * step_w[np.searchsorted(from_ms, at_ms[:-1], side="right") - 1]
    for i, block in enumerate(schedule.block(*instance) for instance in graph.instances):
        if block.stream != COMPUTE:  # beside what its devices compute: what it uses beyond waiting
            is_running = (start[i] <= at_ms[:-1]) & (at_ms[:-1] < end[i])
            more_w = running_w[i] - profile.min_blocking_power_w
            power_w += schedule.placement.gpus_of(block) * more_w * is_running
    return PowerTrace(at_ms, power_w)


def shape_of(trace: PowerTrace, limits: PowerLimits, copies: int = 1, stagger_ms: float = 0.0) -> PowerShape:
    """Return the shape of copies of a job, each shifted by the stagger around an iteration that repeats.

    Only the window and the band of the limits count.
    """
    frequency_hz, amplitude_w = spectrum(trace, copies, stagger_ms, limits.high_hz)
    in_band = frequency_hz >= limits.low_hz * (1 - ROUNDING)
    band_w = float(np.linalg.norm(amplitude_w[in_band])) / math.sqrt(2)
    starts_ms = np.arange(float(copies)) * stagger_ms % trace.length_ms
    return PowerShape(
        *_windowed(trace, starts_ms, limits.window_ms), band_w, copies * trace.energy_mj / trace.length_ms
    )


def spectrum(trace: PowerTrace, copies: int, stagger_ms: float, high_hz: float) -> tuple[Floats, Floats]:
    """Return the frequencies in the power of copies of a job up to one, and the amplitude of each in watts.

    They are the multiples of one over the length of the iteration, ascending, without 0. An amplitude is that
    of a sine: twice the modulus of the Fourier coefficient, and its root mean square times the root of 2.
    """
    starts_ms = np.arange(copies) * stagger_ms
    number = np.arange(1.0, math.floor(high_hz * trace.length_ms / 1e3 * (1 + ROUNDING)) + 1)
    turn = -2j * np.pi * number[:, None] / trace.length_ms
    coefficient_w = np.diff(np.exp(turn * trace.at_ms)) @ trace.power_w / (turn[:, 0] * trace.length_ms)
    frequency_hz: Floats = number * (1e3 / trace.length_ms)
    amplitude_w: Floats = 2 * np.abs(coefficient_w * np.exp(turn * starts_ms).sum(axis=1))
    return frequency_hz, amplitude_w


def shaped_plan(
    schedule: Schedule,
    profile: Profile,
    frontier: Frontier,
    limits: PowerLimits,
    deadline_ms: float,
    copies: int = 1,
) -> LimitedPlan[PowerLimits, ShapedPower]:
    """Return the plan of least energy until a deadline whose copies' power keeps limits.

    Tried are the frontier's plans, and those of one clock for all blocks, which swing less; each repeated at
    its own time and at the deadline. Copies add up their gradients, so all end before the first begins anew:
    the time left by the deadline is the longest over which they can start, tried in eighths. Of equals it is
    the one of the smallest stagger. Plans that need no more than the free one are its equals, after it.

    Returns:
        The plan of one copy, without a wait at its end; beside it the frontier's, whose copies repeat at its
        own time and start together.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: No plan keeps the deadline, or none that was tried keeps the limits.
    """
    if copies < 1:
        raise EnergyError(f"copies: {copies} is no count of copies; give at least 1")
    free, problem = frontier.at(deadline_ms), ClockProblem(schedule, profile)
    names = schedule.placement.runs
    clocks = set.intersection(*({point.clock for point in profile.points[name]} for name in names))
    at_one = [problem.for_every_micro_batch(dict.fromkeys(names, clock)) for clock in sorted(clocks)]
    plans = [free, *frontier.plans, *(problem.plan(each, 0.0) for each in at_one)]
    plans = [plan for plan in plans if plan.time_ms <= deadline_ms * (1 + TIME_TOLERANCE)]
    energy_mj = [frontier.energy_next_to(plan, deadline_ms) for plan in plans]
    shares = [each / (8 * (copies - 1)) for each in range(9)] if copies > 1 else [0.0]
    tries = sorted(
        (max(energy_mj[i], energy_mj[0]), share * (length_ms - plan.time_ms), i, length_ms)
        for i, plan in enumerate(plans)
        for length_ms in {plan.time_ms, max(plan.time_ms, deadline_ms)}
        for share in shares
    )
    trace_of = cache(lambda i, length_ms: power_trace(schedule, profile, plans[i].clock_mhz, length_ms))

    def shaped(i: int, length_ms: float, stagger_ms: float) -> ShapedPower:
        trace = trace_of(i, length_ms)
        shape = shape_of(trace, limits, copies, stagger_ms)
        return ShapedPower(trace, stagger_ms, copies, shape, energy_mj[i])

    nearest = (math.inf, "")
    for _, stagger_ms, i, length_ms in tries:
        found = shaped(i, length_ms, stagger_ms)
        nearest = min(nearest, _missed(limits, found.shape))
        if nearest[0] <= ROUNDING:
            at_free = shaped(0, free.time_ms, 0.0)
            return LimitedPlan(plans[i], limits, found, free, deadline_ms, free_outcome=at_free)
    raise EnergyError(f"{nearest[1]} at best; give more, or a later deadline")


def _missed(limits: PowerLimits, shape: PowerShape) -> tuple[float, str]:
    """Return the relative excess over the limit that a shape misses most, with an error text."""
    missed = [(-math.inf, "")]
    for name, unit in _UNITS.items():
        value, limit = getattr(shape, name), getattr(limits, name) or math.inf
        words = f"{name}: {limit:g} {unit} is missed by {value / limit - 1:.2%}, with {value:.6g} {unit}"
        missed.append((value / limit - 1, words))
    return max(missed)


def _windowed(trace: PowerTrace, starts_ms: Floats, window_ms: float) -> tuple[float, float]:
    """Return the highest average over a window in watts, and its steepest change in watts per second.

    The average bends only where an end of the window meets a step of a copy, and so it is highest there.
    """
    length_ms = trace.length_ms
    edges_ms = np.sort(np.add.outer(starts_ms, trace.at_ms[:-1]).ravel() % length_ms)
    edges_ms = np.append(edges_ms, edges_ms[0] + length_ms)
    middle_ms = np.subtract.outer((edges_ms[1:] + edges_ms[:-1]) / 2, starts_ms) % length_ms
    power_w = trace.power_w[np.searchsorted(trace.at_ms[1:-1], middle_ms, side="right")].sum(axis=1)
    until_mj = np.append(0.0, (power_w * np.diff(edges_ms)).cumsum())

    def energy_mj(until_ms: Floats) -> Floats:
        turns, rest_ms = np.divmod(until_ms - edges_ms[0], length_ms)
        found: Floats = turns * until_mj[-1] + np.interp(edges_ms[0] + rest_ms, edges_ms, until_mj)
        return found

    from_ms = np.sort(np.append(edges_ms[:-1], (edges_ms[:-1] - window_ms) % length_ms))
    from_ms = np.append(from_ms, from_ms[0] + length_ms)
    within_mj = energy_mj(from_ms + window_ms) - energy_mj(from_ms)
    is_piece = np.diff(from_ms) > ROUNDING * length_ms
    ramps = np.diff(within_mj)[is_piece] / np.diff(from_ms)[is_piece] / window_ms
    return float(within_mj.max()) / window_ms, 1e3 * float(np.abs(ramps).max())
