"""Perseus's own way to the frontier: shorten the iteration by a unit of time per minimum cut.

Perseus, Sec. 4.1 to 4.3 and App. D, Algorithms 1 to 3, to compare with:
`schedsearch.energy.compute_frontier` needs no unit of time, no fit, and rounds better. The cuts are those of
`schedsearch.energy.relaxation`, where all times are whole units: its breakpoints are then whole, and between
two of them each unit is one step.

The paper does not say how times that are no multiples of the unit are treated. The authors' implementation
rounds them down, and so does this one, so that the highest clocks can be reached: at its highest clock a
block takes up to a unit longer than planned. Times and energies of the plans here are those of their
simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from placements import Profile
from schedsearch.energy.cost import CostCurve
from schedsearch.energy.frontier import TIME_TOLERANCE, Frontier, LowerBound, OnProgress
from schedsearch.energy.generators import PlanPool
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxation import RelaxedPlan, breakpoints, relaxed_plans
from schedsearch.energy.simulation import all_maximum_clocks
from schedsearch.schedule import Schedule

UNIT_MS = 1.0
"""The unit of time in all of Perseus's experiments (App. B)."""

MOST_UNITS = 10**6
"""More units than that, of an iteration, take longer than anyone waits."""

EnergyOf = Callable[[Floats], Floats]
"""A block's effective energy at some times, convex and falling."""

_ALMOST = 1e-6
"""Share of a unit by which rounding errors may make a time that is whole seem less."""

_PLANS_AT_ONCE = 100
"""Plans rounded in one go."""

_RATES = (1e-3, 1e2)
"""Least and greatest curvature of a fit: how often the energy falls by e over the times of the options."""


def perseus_frontier(
    schedule: Schedule,
    profile: Profile,
    unit_ms: float,
    on_progress: OnProgress | None = None,
    bound: LowerBound | None = None,
) -> Frontier:
    """Return the frontier that Perseus finds (Perseus, Algorithm 1) for the orders of a valid schedule.

    Where a clock has several configurations, the fastest is taken. Each step shortens the iteration by
    `unit_ms` (the paper's tau); `on_progress` is told how many of the units between T* and T_min are cut off.
    `bound` is the lower bound of every plan; None to compute it.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: The unit is not above 0, too short or too long, or the schedule is not valid.
    """
    problem = ClockProblem(schedule, profile.in_fastest_configs(), bound)
    pool = PlanPool(problem)
    steps = energy_schedules(problem, unit_ms, on_progress)
    while some := list(islice(steps, _PLANS_AT_ONCE)):
        planned_ms = np.column_stack([step.planned_ms for step in some])
        # the slowest clock that is not slower than planned (Perseus, Algorithm 2, last line)
        pool.add(problem.table.slowest_within(planned_ms * (1 + TIME_TOLERANCE)))
    all_maximum = problem.plan(all_maximum_clocks(schedule, problem.profile))
    plans = pool.best(None, problem.bound)
    return Frontier.of(plans, all_maximum, schedule.placement, problem.profile, problem.bound)


def exponential(curve: CostCurve) -> EnergyOf:
    """Return the least-squares fit a * exp(b * t) + c to a cost curve with any number of options.

    For a given rate, a and c are a linear regression, so that the rate alone is searched for. One option
    gives a constant, two the straight line between them, which the smallest rate all but is.
    """
    from scipy.optimize import minimize_scalar

    fastest_ms, least_mj = float(curve.time_ms[0]), float(curve.energy_mj[-1])
    span_ms, range_mj = float(curve.time_ms[-1]) - fastest_ms, float(curve.energy_mj[0]) - least_mj
    if span_ms <= 0 or range_mj <= 0:
        return lambda time_ms: np.full_like(time_ms, least_mj)
    time, energy = (curve.time_ms - fastest_ms) / span_ms, (curve.energy_mj - least_mj) / range_mj

    def regression(rate: float) -> tuple[float, float, float]:
        """Return the sum of squares, the amplitude, which is never negative, and the offset."""
        falling = np.exp(-rate * time)
        centered = falling - falling.mean()
        amplitude = float(centered @ energy / (centered @ centered))
        offset = float(energy.mean() - amplitude * falling.mean())
        return float(((amplitude * falling + offset - energy) ** 2).sum()), amplitude, offset

    def squares(log_rate: float) -> float:
        return regression(np.exp(log_rate))[0]

    optimum = minimize_scalar(squares, bounds=np.log(_RATES), method="bounded", options={"xatol": 1e-9})
    rate = float(np.exp(optimum.x))
    _, amplitude, offset = regression(rate)
    return lambda time_ms: (
        (amplitude * np.exp(-rate * (time_ms - fastest_ms) / span_ms) + offset) * range_mj + least_mj
    )


def energy_schedules(
    problem: ClockProblem,
    unit_ms: float,
    on_progress: OnProgress | None = None,
    fit: Callable[[CostCurve], EnergyOf] = exponential,
) -> Iterator[RelaxedPlan]:
    """Yield the energy schedules from least energy to least time, one unit apart (Perseus, Algorithm 1).

    Their planned times (Perseus, Sec. 3.2), before rounding to clocks, are whole units, or exactly an
    instance's time of least effective energy.

    Raises:
        EnergyError: See `perseus_frontier`.
    """
    if not 0 < unit_ms < math.inf:
        raise EnergyError(f"unit_ms: {unit_ms:g} is not a time above 0; give milliseconds, as {UNIT_MS:g}")
    if (longest_ms := problem.span_ms[1]) > MOST_UNITS * unit_ms:
        raise EnergyError(
            f"unit_ms: {unit_ms:g} is too short for an iteration of {longest_ms:.6g} ms; "
            f"give at least {longest_ms / MOST_UNITS:.3g}"
        )
    curves = {name: _in_units(curve, unit_ms, fit(curve)) for name, curve in problem.curves.items()}
    graph = replace(problem.graph, delay_ms=np.floor(problem.graph.delay_ms / unit_ms + _ALMOST))
    slowest = np.array([curves[name].time_ms[-1] for name in graph.runs])
    slowest_ms = np.array([problem.curves[name].time_ms[-1] for name in graph.runs])
    if not slowest.any():
        raise EnergyError(f"unit_ms: {unit_ms:g} exceeds every block; give at most {slowest_ms.max():.6g}")
    fastest = np.array([[curves[name].time_ms[0]] for name in graph.runs])
    longest, shortest = (round(float(graph.makespan(times)[0])) for times in (slowest[:, None], fastest))
    lengths = range(longest, shortest - 1, -1)
    for length, plan in zip(lengths, relaxed_plans(breakpoints(graph, curves), lengths), strict=False):
        planned = np.minimum(np.rint(plan.planned_ms), slowest)
        planned_ms = np.where(planned == slowest, slowest_ms, planned * unit_ms)
        if on_progress is not None and longest > shortest:
            on_progress("cutting", longest - length, longest - shortest)
        yield plan._replace(planned_ms=planned_ms, time_ms=length * unit_ms)


def _in_units(curve: CostCurve, unit_ms: float, energy_of: EnergyOf) -> CostCurve:
    """Return a cost curve at whole units of time, from the fastest option to the option of least energy.

    No energy is known between the fastest option and the unit below it: the last step costs at least as
    much as the one before.
    """
    first, last = (math.floor(curve.time_ms[i] / unit_ms + _ALMOST) for i in (0, -1))
    units = np.arange(first, last + 1)
    energy = energy_of(np.maximum(units * unit_ms, curve.time_ms[0]))
    steps = np.maximum.accumulate(np.maximum(energy[:-1] - energy[1:], 0.0)[::-1])
    convex = energy[-1] + np.append(0.0, steps.cumsum())[::-1]
    return CostCurve(tuple(units.tolist()), units.astype(np.float64), convex)
