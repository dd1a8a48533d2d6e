"""The way from a schedule and a profile to a frontier: relax, round, join, improve; the best plans stay."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from placements import Profile
from schedsearch.energy.cost import planning_curves
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier, LowerBound, OnProgress
from schedsearch.energy.generators import PlanPool, fixed, rounded, spliced
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.energy.improving import MAX_INSTANCES, DeadlineImprovement
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.programs import SolverError, free_timing, min_energy
from schedsearch.energy.relaxation import breakpoints, relaxed_plans
from schedsearch.energy.simulation import all_maximum_clocks
from schedsearch.schedule import Schedule

GENERATORS = ("fastest", "floor", "forward", "backward", "fixed", "spliced", "neighbourhoods", "exact")
"""What makes plans, by name; see `FrequencyPlan.made_by`."""

_DEADLINES_AT_ONCE = 512
"""Deadlines rounded in one go; bounds the memory and the time between two calls of `OnProgress`."""


def compute_frontier(
    schedule: Schedule,
    profile: Profile,
    num_plans: int = 200,
    deadline_ms: float | Sequence[float] | None = None,
    *,
    work_limit: float = 0.0,
    without: Collection[str] = (),
    on_progress: OnProgress | None = None,
    curve: str = "hull",
) -> Frontier:
    """Return the time-energy frontier of a schedule (Perseus, Sec. 4).

    Deadlines are spaced evenly from T_min, the shortest iteration, to T*, where every block runs at its
    least effective energy. For each, the exact relaxed plan is rounded in several ways, and the best plans so
    far around it are joined. Then the plans furthest above their bounds are improved, as far as the work
    goes. Every result is simulated, and the best one that keeps the deadline stays. One more deadline is the
    time of all clocks at maximum.

    With Perseus's exponential for a curve (Perseus, Sec. 4.1) the relaxed plans are made for the fitted
    energies; what is rounded, simulated and bounded are the modes themselves, as with the hull. Where the
    fit misses the modes, time has another price than planned, and the wrong blocks are slowed down: that
    costs energy, which `FrequencyPlan.gap` shows, but no deadline and no bound.

    Args:
        schedule: Any schedule that passes `schedsearch.validate.validate`; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        num_plans: Number of evenly spaced deadlines; some may end in the same plan.
        deadline_ms: One more deadline or several, to get a plan of their own each.
        work_limit: Units of work, of about a second, to improve plans with: those for the deadlines that are
            given and for the shortest time; for all, where the schedule is small enough for a proof.
        without: Names of `GENERATORS` to leave out, to see what they bring; all but the first can be.
        on_progress: Told about the progress.
        curve: What stands for the modes of a block between them: their lower convex ``hull``, or the fitted
            ``exponential``.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: A deadline is too short, `num_plans` is below 1, the curve is not known, a generator
            cannot be left out, the work is below 0, or the schedule is not valid.
    """
    for what, given, wanted, remedy in (
        ("schedule", schedule, Schedule, "give the schedule of a search result, or one made by hand"),
        ("profile", profile, Profile, "give that of Profile.from_csv, or of modelled_profile"),
    ):
        if not isinstance(given, wanted):
            raise EnergyError(f"{what}: a {type(given).__name__} is not a {what}; {remedy}")
    if num_plans < 1:
        raise EnergyError(f"num_plans: {num_plans} is not at least 1")
    if not work_limit >= 0:
        raise EnergyError(f"work_limit: {work_limit:g} is below 0; give units of work, or 0 for none")
    known = GENERATORS[1:]
    if unknown := sorted(set(without) - set(known)):
        raise EnergyError(f"without: {unknown[0]!r} cannot be left out; the names are {', '.join(known)}")
    problem = ClockProblem(schedule, profile)
    planning = planning_curves(problem.curves, curve)
    all_maximum = problem.plan(all_maximum_clocks(schedule, profile), 0.0)
    asked = [] if deadline_ms is None else np.atleast_1d(deadline_ms).tolist()
    deadlines = _deadlines(problem, num_plans, [all_maximum.time_ms, *asked])
    relaxed = relaxed_plans(breakpoints(problem.graph, planning), deadlines, problem.waiting_w, on_progress)
    bound = relaxed.bound if curve == "hull" else problem.bound
    candidates = PlanPool(problem, without)
    as_fast_ms = np.array([[profile.fastest(name).time_ms] for name in problem.graph.runs])
    no_slower = problem.table.slowest_within(as_fast_ms)
    # the fastest modes keep every deadline, also where a higher clock is slower, as measured ones may be
    candidates.add("fastest", np.hstack([no_slower, np.zeros_like(no_slower)]))
    firsts = range(0, len(deadlines), _DEADLINES_AT_ONCE)
    parts = [slice(first, first + _DEADLINES_AT_ONCE) for first in firsts]

    def tell(done: int) -> None:
        if on_progress is not None:
            on_progress("rounding", done, 2 * len(parts))

    for i, part in enumerate(parts):
        candidates.add_all(rounded(problem, relaxed.planned_ms[:, part], deadlines[part]))
        tell(i + 1)
    at = np.unique(np.searchsorted(deadlines, [deadlines[0], *asked]).clip(max=len(deadlines) - 1))
    wanted_ms = deadlines[at]
    for i in at:
        planned_ms, price_w = relaxed.planned_ms[:, i], relaxed.price_w[:, i]
        candidates.add_all(fixed(problem, planned_ms, price_w, float(deadlines[i])))
    envelope = candidates.envelope()
    for i, part in enumerate(parts):
        candidates.add_all(spliced(problem, envelope, deadlines[part]))
        tell(len(parts) + i + 1)
    if work_limit > 0:  # what is best now stays the best for some deadline, or something better does
        deadlines = np.union1d(deadlines, candidates.times_of_best(deadlines))
    is_small = problem.graph.size <= MAX_INSTANCES
    improvement = DeadlineImprovement(candidates, bound, deadlines if is_small else wanted_ms)
    if ("exact" if is_small else "neighbourhoods") not in without:
        improvement.run(work_limit, on_progress)
    return Frontier.of(
        tuple(map(improvement.bounded, candidates.best(deadlines, bound))),
        replace(all_maximum, lower_bound_mj=bound.at(all_maximum.time_ms)),
        schedule.placement,
        profile,
        bound,
        improvement.is_interrupted,
    )


def plan_for(problem: ClockProblem, deadline_ms: float, work_limit: float = 0.0) -> FrequencyPlan | None:
    """Return a plan of little energy for one deadline, None where no clocks keep it.

    It is made as those of `compute_frontier` for a deadline that is asked for, from one linear program in
    place of the whole relaxed frontier. Its bound is of all plans that keep the deadline. Where the solver
    fails, it begins with the fastest modes, and the bound is all blocks at their cheapest.

    Args:
        problem: Problem whose modes are chosen.
        deadline_ms: For the end of the iteration.
        work_limit: Units of work, of about a second, to improve the plan with.
    """
    until_ms = deadline_ms * (1 + TIME_TOLERANCE)
    if problem.span_ms[0] > until_ms:
        return None
    table, graph = problem.table, problem.graph
    planned_ms, price_w = table.time_ms[table.row, 0], np.zeros(graph.size)
    min_mj = float(table.energy(table.last[:, None])[0])
    with contextlib.suppress(SolverError):
        relaxed = min_energy(free_timing(graph, problem.curves), until_ms)
        if relaxed is not None:
            planned_ms, min_mj = relaxed.planned_ms, relaxed.energy_mj
            np.add.at(price_w, graph.tail, relaxed.edge_price)
    bound = LowerBound(np.array([until_ms]), np.array([min_mj]), problem.waiting_w)
    candidates, at = PlanPool(problem), np.array([until_ms])
    candidates.add("fastest", np.zeros((graph.size, 1), dtype=np.int64))
    candidates.add_all(rounded(problem, planned_ms[:, None], at))
    candidates.add_all(fixed(problem, planned_ms, price_w, until_ms))
    improvement = DeadlineImprovement(candidates, bound, at)
    improvement.run(work_limit)
    return improvement.bounded(candidates.best(at, bound)[-1])


def _deadlines(problem: ClockProblem, num_plans: int, extra_ms: list[float]) -> Floats:
    """Return the deadlines, ascending.

    Raises:
        EnergyError: One of the extra deadlines cannot be kept.
    """
    shortest_ms, longest_ms = problem.span_ms
    for deadline in extra_ms:
        problem.reachable(deadline)
    evenly = np.linspace(shortest_ms, longest_ms, num_plans)
    return np.unique(np.maximum(np.concatenate([evenly, extra_ms]), shortest_ms))
