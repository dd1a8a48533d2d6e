"""Perseus's own way to the frontier: shorten the iteration by a unit of time per minimum cut.

Perseus, Sec. 4.2 and 4.3 and App. D, Algorithms 1 to 3, to compare with:
`schedsearch.energy.compute_frontier` needs no unit of time, no fit, and rounds better. The cuts are those of
`schedsearch.energy.relaxation`, where all times are whole units: its breakpoints are then whole, and between
two of them each unit is one step.

The paper does not say what becomes of times that are no multiples of the unit. The authors' implementation
rounds them down, and so does this one, so that the highest clocks can be reached: at its highest clock a
block takes up to a unit longer than planned. Times and energies of the plans here are those of their
simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

import numpy as np

from placements import Profile
from schedsearch.energy.cost import CostCurve, exponential_curve
from schedsearch.energy.frontier import TIME_TOLERANCE, Frontier, OnProgress
from schedsearch.energy.generators import PlanPool
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxation import breakpoints, planned_between
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


def perseus_frontier(
    schedule: Schedule,
    profile: Profile,
    unit_ms: float,
    curve: str = "exponential",
    on_progress: OnProgress | None = None,
) -> Frontier:
    """Return the frontier that Perseus finds (Perseus, Algorithm 1).

    Args:
        schedule: Any valid schedule; only its orders are used.
        profile: Cost of each of its blocks at each clock; where a clock has several configurations, the
            fastest is taken.
        unit_ms: Time by which each step shortens the iteration (the paper's tau).
        curve: What stands for the options of a block: ``exponential``, as in the paper, or their lower convex
            ``hull``.
        on_progress: Told how many of the units between T* and T_min are cut off.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: The unit is no time above 0 or too short, the curve is not known, or the schedule is not
            valid.
    """
    problem = ClockProblem(schedule, profile.in_fastest_configs())
    return perseus_plans(problem, unit_ms, curve, on_progress)


def perseus_plans(
    problem: ClockProblem, unit_ms: float, curve: str = "exponential", on_progress: OnProgress | None = None
) -> Frontier:
    """Return the frontier of `perseus_frontier` for a problem whose bound may be known already."""
    candidates = PlanPool(problem)
    steps = energy_schedules(problem, unit_ms, curve, on_progress)
    while some := list(islice(steps, _PLANS_AT_ONCE)):
        planned_ms = np.column_stack([step.planned_ms for step in some])
        # the slowest clock that is not slower than planned (Perseus, Algorithm 2, last line)
        candidates.add("perseus", problem.table.slowest_within(planned_ms * (1 + TIME_TOLERANCE)))
    schedule, profile = problem.schedule, problem.profile
    all_maximum = problem.plan(all_maximum_clocks(schedule, profile))
    plans = candidates.best(None, problem.bound)
    return Frontier.of(plans, all_maximum, schedule.placement, profile, problem.bound)


@dataclass(frozen=True, eq=False)
class EnergySchedule:
    """A time planned for each instance (Perseus, Sec. 3.2), before it is turned into clocks.

    Attributes:
        planned_ms: Planned time of each instance: whole units, or exactly its time of least effective energy;
            shape ``(instances,)``.
        time_ms: Planned length of the iteration.
        effective_mj: Planned effective energy.
    """

    planned_ms: Floats
    time_ms: float
    effective_mj: float


def energy_schedules(
    problem: ClockProblem, unit_ms: float, curve: str = "exponential", on_progress: OnProgress | None = None
) -> Iterator[EnergySchedule]:
    """Yield the energy schedules from least energy to least time, one unit apart (Perseus, Algorithm 1).

    Raises:
        EnergyError: See `perseus_frontier`.
    """
    curves = _curves_in_units(problem, unit_ms, curve)
    graph = _in_units(problem.graph, unit_ms)
    fastest, slowest = (np.array([[curves[name].time_ms[i]] for name in graph.runs]) for i in (0, -1))
    longest, shortest = (round(float(graph.makespan(each)[0])) for each in (slowest, fastest))
    if longest > MOST_UNITS:
        raise EnergyError(
            f"unit_ms: {unit_ms:g} is too short for an iteration of {longest * unit_ms:.6g} ms; "
            f"give at least {longest * unit_ms / MOST_UNITS:.3g}"
        )
    slowest_ms = np.array([problem.curves[name].time_ms[-1] for name in graph.runs])
    energy = [(curves[name].time_ms[0], curves[name].energy_mj) for name in graph.runs]

    def step(length: int, planned: Floats) -> EnergySchedule:
        units = np.minimum(np.rint(planned), slowest[:, 0])
        planned_ms = np.where(units == slowest[:, 0], slowest_ms, units * unit_ms)
        mj = math.fsum(each[int(n - least)] for n, (least, each) in zip(units, energy, strict=True))
        if on_progress is not None and longest > shortest:
            on_progress("cutting", longest - length, longest - shortest)
        return EnergySchedule(planned_ms, length * unit_ms, mj)

    points = breakpoints(graph, curves)
    first = next(points)
    yield step(longest, first.event_ms[:, 1] - first.event_ms[:, 0])
    length = longest - 1
    for longer, shorter in pairwise(chain([first], points)):
        while length >= shorter.time_ms - 0.5:
            yield step(length, planned_between(longer, shorter, float(length)))
            length -= 1


def _in_units(graph: InstanceGraph, unit_ms: float) -> InstanceGraph:
    """Return the graph with its delays in whole units."""
    return replace(graph, delay_ms=np.floor(graph.delay_ms / unit_ms + _ALMOST))


def _curves_in_units(problem: ClockProblem, unit_ms: float, curve: str) -> dict[str, CostCurve]:
    """Return the curves of the blocks at whole units, from the fastest option to that of least energy.

    Between the fastest option and the unit below it there is no energy to know: the last step costs at
    least as much as the one before.

    Raises:
        EnergyError: The unit is no time above 0 or too short, or the curve is not known.
    """
    if not 0 < unit_ms < math.inf:
        raise EnergyError(
            f"unit_ms: {unit_ms:g} is not a time above 0; give milliseconds, such as {UNIT_MS:g}"
        )
    if curve not in CURVES:
        raise EnergyError(f"curve: {curve!r} is not known; use {' or '.join(CURVES)}")
    slowest_ms = max(float(each.time_ms[-1]) for each in problem.curves.values())
    if slowest_ms > MOST_UNITS * unit_ms:
        raise EnergyError(
            f"unit_ms: {unit_ms:g} is too short for blocks of {slowest_ms:.6g} ms; "
            f"give at least {slowest_ms / MOST_UNITS:.3g}"
        )
    found = {}
    for name, each in problem.curves.items():
        first, last = (math.floor(each.time_ms[i] / unit_ms + _ALMOST) for i in (0, -1))
        units = np.arange(first, last + 1)
        energy = CURVES[curve](each)(np.maximum(units * unit_ms, each.time_ms[0]))
        steps = np.maximum.accumulate(np.maximum(energy[:-1] - energy[1:], 0.0)[::-1])
        convex = energy[-1] + np.append(0.0, steps.cumsum())[::-1]
        found[name] = CostCurve(units, units.astype(np.float64), convex)
    return found


def _hull(curve: CostCurve) -> EnergyOf:
    return lambda time_ms: np.interp(time_ms, curve.time_ms[curve.hull], curve.energy_mj[curve.hull])


CURVES: Mapping[str, Callable[[CostCurve], EnergyOf]] = {
    "exponential": lambda curve: exponential_curve(curve).energy_mj,
    "hull": _hull,
}
"""The energy of a block between its options."""
