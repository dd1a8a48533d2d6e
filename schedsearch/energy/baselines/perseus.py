"""Perseus's own way to the frontier: shorten the iteration by a unit of time per minimum cut.

Perseus, Sec. 4.2 and 4.3 and App. D, Algorithms 1 to 3, to compare with:
`schedsearch.energy.compute_frontier` needs no unit of time, no fit, and rounds better.

The paper does not say what becomes of times that are no multiples of the unit. The authors' implementation
rounds them down, and so does this one, so that the highest clocks can be reached: at its highest clock a
block takes up to a unit longer than planned. Times and energies of the plans here are those of their
simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from placements import Profile
from schedsearch.energy.baselines.max_flow import MOST_FLOW, NO_LIMIT, FlowNetwork, minimum_cut
from schedsearch.energy.cost import CostCurve
from schedsearch.energy.frontier import TIME_TOLERANCE, Frontier, OnProgress
from schedsearch.energy.generators.candidates import PlanPool
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxed.exponential import exponential_curve
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
    everyone = np.arange(problem.graph.size)
    steps = energy_schedules(problem, unit_ms, curve, on_progress)
    while some := list(islice(steps, _PLANS_AT_ONCE)):
        planned_ms = np.column_stack([step.planned_ms for step in some])
        # the slowest clock that is not slower than planned (Perseus, Algorithm 2, last line)
        candidates.add("perseus", problem.table.slowest_within(everyone, planned_ms * (1 + TIME_TOLERANCE)))
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
    costs = _costs(problem, unit_ms, curve)
    graph = _in_units(problem.graph, unit_ms)
    slowest_ms = np.array([problem.curves[name].time_ms[-1] for name in graph.runs])
    units = costs.slowest
    longest, shortest = (_makespan(graph, each) for each in (costs.slowest, costs.fastest))
    if longest > MOST_UNITS:
        raise EnergyError(
            f"unit_ms: {unit_ms:g} is too short for an iteration of {longest * unit_ms:.6g} ms; "
            f"give at least {longest * unit_ms / MOST_UNITS:.3g}"
        )
    while True:
        length = _makespan(graph, units)
        planned_ms = np.where(units == costs.slowest, slowest_ms, units * unit_ms)
        yield EnergySchedule(planned_ms, length * unit_ms, costs.energy_mj(units))
        if on_progress is not None and longest > shortest:
            on_progress("cutting", longest - length, longest - shortest)
        if length <= shortest:
            return
        change = next_change(graph, units, costs)
        if change is None:
            return
        units = units + change


@dataclass(frozen=True, eq=False)
class Costs:
    """What each instance costs, in whole units of time.

    Attributes:
        fastest: Units of each instance's fastest option; shape ``(instances,)``.
        slowest: Units of its option of least effective energy.
        row: Row of each instance's block in the other fields.
        energy: Effective energy in mJ of each block at ``fastest, fastest + 1 ...``, padded with the last;
            shape ``(blocks, most)``.
        price: Whole number for the energy that it takes to be one unit faster than ``fastest + 1,
            fastest + 2 ...``, falling; padded with 0; shape ``(blocks, most)``.
    """

    fastest: Ints
    slowest: Ints
    row: Ints
    energy: Floats
    price: Ints

    def energy_mj(self, units: Ints) -> float:
        """Return the effective energy of all instances."""
        return float(self.energy[self.row, units - self.fastest].sum())

    def speed_up(self, units: Ints) -> Ints:
        """Return the price of one unit less; `NO_LIMIT` for the fastest (Perseus, Eq. 8)."""
        more = units - self.fastest
        return np.where(more > 0, self.price[self.row, more - 1], NO_LIMIT)

    def slow_down(self, units: Ints) -> Ints:
        """Return what one unit more gives back; 0 for the slowest."""
        return np.where(units < self.slowest, self.price[self.row, units - self.fastest], 0)


def next_change(graph: InstanceGraph, units: Ints, costs: Costs) -> Ints | None:
    """Return how the times change to make the iteration a unit shorter (Perseus, Algorithm 2).

    Only what is on a critical path takes part, and of the waiting between two such instances only what
    leaves no slack.

    Args:
        graph: Its delays in units.
        units: Time of each instance; a best choice for the length of the iteration.
        costs: Cost of each instance.

    Returns:
        -1, 0 or 1 for each instance, or None if nothing makes the iteration shorter.
    """
    start, critical = _critical(graph, units)
    members = np.flatnonzero(critical)
    number = np.full(graph.size, -1)
    number[members] = np.arange(len(members))
    end = start + units
    tail, head, delay = graph.edge_arrays
    tight = critical[tail] & critical[head] & (end[tail] + delay == start[head])
    k = len(members)
    source, sink = 2 * k, 2 * k + 1
    first = number[members[start[members] == 0]]
    last = number[members[end[members] == end.max()]]
    own = np.arange(k)
    waiting = tight.sum() + len(first) + len(last)
    network = FlowNetwork(
        tail=np.concatenate(
            [2 * own, 2 * number[tail[tight]] + 1, np.full(len(first), source), 2 * last + 1]
        ),
        head=np.concatenate([2 * own + 1, 2 * number[head[tight]], 2 * first, np.full(len(last), sink)]),
        lower=np.concatenate([costs.slow_down(units)[members], np.zeros(waiting, dtype=np.int64)]),
        upper=np.concatenate([costs.speed_up(units)[members], np.full(waiting, NO_LIMIT)]),
        num_nodes=2 * k + 2,
        source=source,
        sink=sink,
    )
    on_source_side = minimum_cut(network)
    if on_source_side is None:
        return None
    begins, ends = on_source_side[2 * own], on_source_side[2 * own + 1]
    change = np.zeros(graph.size, dtype=np.int64)
    change[members[begins & ~ends]] = -1
    change[members[~begins & ends & (units[members] < costs.slowest[members])]] = 1
    return change


def _critical(graph: InstanceGraph, units: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the earliest start of each instance, and whether it can start at no other time."""
    time = units[:, None].astype(np.float64)
    start = graph.earliest_start(time)
    latest = graph.latest_end(time, (start + time).max(axis=0)) - time
    return start[:, 0].astype(np.int64), (start == latest)[:, 0]


def _makespan(graph: InstanceGraph, units: Ints) -> int:
    return int(graph.makespan(units[:, None].astype(np.float64))[0])


def _in_units(graph: InstanceGraph, unit_ms: float) -> InstanceGraph:
    """Return the graph with its delays in whole units."""
    edges = tuple((a, b, float(math.floor(delay / unit_ms + _ALMOST))) for a, b, delay in graph.edges)
    return replace(graph, edges=edges)


def _costs(problem: ClockProblem, unit_ms: float, curve: str) -> Costs:
    """Return what the instances cost.

    Raises:
        EnergyError: The unit is no time above 0, or the curve is not known.
    """
    if not 0 < unit_ms < math.inf:
        raise EnergyError(
            f"unit_ms: {unit_ms:g} is not a time above 0; give milliseconds, such as {UNIT_MS:g}"
        )
    if curve not in CURVES:
        raise EnergyError(f"curve: {curve!r} is not known; use {' or '.join(CURVES)}")
    curves = problem.curves
    fastest, slowest = (
        np.floor([each.time_ms[i] / unit_ms + _ALMOST for each in curves.values()]) for i in (0, -1)
    )
    if slowest.max() > MOST_UNITS:
        raise EnergyError(
            f"unit_ms: {unit_ms:g} is too short for blocks of {slowest.max() * unit_ms:.6g} ms; "
            f"give at least {slowest.max() * unit_ms / MOST_UNITS:.3g}"
        )
    first, last = fastest.astype(np.int64), slowest.astype(np.int64)
    energy = np.zeros((len(curves), int((last - first).max()) + 2))
    for i, each in enumerate(curves.values()):
        times = np.arange(first[i], last[i] + 1) * unit_ms
        energy[i, : len(times)] = CURVES[curve](each)(np.maximum(times, each.time_ms[0]))
        energy[i, len(times) :] = energy[i, len(times) - 1]
    row = np.array([list(curves).index(name) for name in problem.graph.runs])
    return Costs(first[row], last[row], row, energy, _prices(energy, row))


def _prices(energy: Floats, row: Ints) -> Ints:
    """Return `Costs.price`.

    Between the fastest option and the unit below it there is no energy to know: the last step costs at
    least as much as the one before.
    """
    steps = np.maximum(energy[:, :-1] - energy[:, 1:], 0.0)
    falling = np.maximum.accumulate(steps[:, ::-1], axis=1)[:, ::-1]
    total = float(falling[row, 0].sum())
    scale = MOST_FLOW / total if total > 0 else 0.0
    price: Ints = np.floor(falling * scale).astype(np.int64)
    return np.pad(price, ((0, 0), (0, 1)))


def _hull(curve: CostCurve) -> EnergyOf:
    return lambda time_ms: np.interp(time_ms, curve.time_ms[curve.hull], curve.energy_mj[curve.hull])


CURVES: Mapping[str, Callable[[CostCurve], EnergyOf]] = {
    "exponential": lambda curve: exponential_curve(curve).energy_mj,
    "hull": _hull,
}
"""The energy of a block between its options."""
