"""The way from a schedule and a profile to a frontier: relax, round, join, improve; the best plans stay."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from placements import Profile
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier, LowerBound, OnProgress
from schedsearch.energy.generators import PlanPool, fixed, rounded, spliced
from schedsearch.energy.graph import EnergyError, Floats, Ints
from schedsearch.energy.improving import MAX_INSTANCES, Improvement
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxation import Breakpoint, breakpoints, relaxed_plans
from schedsearch.energy.simulation import all_maximum_clocks
from schedsearch.schedule import Schedule

_DEADLINES_AT_ONCE = 512
"""Deadlines rounded in one go; bounds the memory and the time between two calls of `OnProgress`."""


def compute_frontier(
    schedule: Schedule,
    profile: Profile,
    num_plans: int = 200,
    deadline_ms: float | Sequence[float] | None = None,
    *,
    work_limit: float = 0.0,
    on_progress: OnProgress | None = None,
) -> Frontier:
    """Return the time-energy frontier of a schedule (Perseus, Sec. 4).

    Deadlines are spaced evenly from T_min, the shortest iteration, to T*, where every block runs at its
    least effective energy. For each, the exact relaxed plan is rounded in several ways, and the best plans so
    far around it are joined. Then the plans furthest above their bounds are improved, as far as the work
    goes. Every result is simulated, and the best one that keeps the deadline stays. One more deadline is the
    time of all clocks at maximum.

    Args:
        schedule: Any schedule that passes `schedsearch.validate.validate`; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        num_plans: Number of evenly spaced deadlines; some may end in the same plan.
        deadline_ms: One more deadline or several, to get a plan of their own each.
        work_limit: Units of work, of about a second, to improve plans with: those for the deadlines that are
            given and for the shortest time; for all, where the schedule is small enough for a proof.
        on_progress: Called with the progress.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: A deadline is too short, `num_plans` is below 1, the work is below 0, or the schedule is
            not valid.
    """
    for what, given, kind, remedy in (
        ("schedule", schedule, Schedule, "give the schedule of a search result, or one made by hand"),
        ("profile", profile, Profile, "give one of Profile.from_csv or modelled_profile"),
    ):
        if not isinstance(given, kind):
            raise EnergyError(f"{what}: a {type(given).__name__} is not a {what}; {remedy}")
    if num_plans < 1:
        raise EnergyError(f"num_plans: {num_plans} is not at least 1")
    if not work_limit >= 0:
        raise EnergyError(f"work_limit: {work_limit:g} is below 0; give units of work, or 0 for none")
    problem = ClockProblem(schedule, profile)
    all_maximum = problem.plan(all_maximum_clocks(schedule, profile), 0.0)
    asked = [] if deadline_ms is None else np.atleast_1d(deadline_ms).tolist()
    deadlines = _deadlines(problem, num_plans, [all_maximum.time_ms, *asked])
    wanted = np.unique(np.searchsorted(deadlines, [deadlines[0], *asked]).clip(max=len(deadlines) - 1))
    plans, bound, is_interrupted = _plans(problem, deadlines, wanted, work_limit, on_progress)
    all_maximum = replace(all_maximum, lower_bound_mj=bound.at(all_maximum.time_ms))
    return Frontier.of(plans, all_maximum, schedule.placement, profile, bound, is_interrupted)


def plan_for(problem: ClockProblem, deadline_ms: float, work_limit: float = 0.0) -> FrequencyPlan | None:
    """Return a plan of little energy for one deadline; None if no clocks keep the deadline.

    The plan is made like those of `compute_frontier` for its `deadline_ms`.
    """
    until = np.array([deadline_ms * (1 + TIME_TOLERANCE)])
    if problem.span_ms[0] > until[0]:
        return None
    return _plans(problem, until, np.array([0]), work_limit)[0][-1]


def _plans(
    problem: ClockProblem,
    deadlines: Floats,
    wanted: Ints,
    work_limit: float,
    on_progress: OnProgress | None = None,
) -> tuple[tuple[FrequencyPlan, ...], LowerBound, bool]:
    """Return the best plans for ascending deadlines, their lower bound, and whether Ctrl-C ended the search.

    None of the deadlines is below the shortest iteration; `wanted` are the indices of those that matter most.
    """
    pool, graph, ends, relaxed = PlanPool(problem), problem.graph, list[tuple[float, float]](), []

    def tell(step: str, done: int, most: int) -> None:
        if on_progress is not None:
            on_progress(step, done, most)

    def noted() -> Iterator[Breakpoint]:
        for point in breakpoints(graph, problem.curves):
            ends.append((point.time_ms, point.energy_mj))
            yield point

    for plan in relaxed_plans(noted(), deadlines[::-1].tolist()):
        relaxed.append(plan)
        tell("relaxing", len(relaxed), len(deadlines))
    relaxed.reverse()
    bound = LowerBound.of(ends, problem.waiting_w)
    planned_ms = np.column_stack([plan.planned_ms for plan in relaxed])
    as_fast_ms = np.array([[problem.profile.fastest(name).time_ms] for name in graph.runs])
    no_slower = problem.table.slowest_within(as_fast_ms)
    # the fastest modes keep every deadline, also where a higher clock is slower, as measured ones may be
    pool.add(np.hstack([no_slower, np.zeros_like(no_slower)]))
    firsts = range(0, len(deadlines), _DEADLINES_AT_ONCE)
    parts = [slice(first, first + _DEADLINES_AT_ONCE) for first in firsts]

    for i, part in enumerate(parts):
        pool.add(*rounded(problem, planned_ms[:, part], deadlines[part]))
        tell("rounding", i + 1, 2 * len(parts))
    for i in wanted:
        pool.add(*fixed(problem, relaxed[i]))
    envelope = pool.envelope()
    for i, part in enumerate(parts):
        pool.add(*spliced(problem, envelope, deadlines[part]))
        tell("rounding", len(parts) + i + 1, 2 * len(parts))
    aimed = deadlines[wanted]
    if work_limit > 0:  # what is best now stays the best for some deadline, or something better does
        deadlines = np.union1d(deadlines, [plan.time_ms for plan in pool.best(deadlines, bound)])
    improvement = Improvement(pool, bound, deadlines if graph.size <= MAX_INSTANCES else aimed)
    improvement.run(work_limit, on_progress)
    plans = tuple(map(improvement.bounded, pool.best(deadlines, bound)))
    return plans, bound, improvement.is_interrupted


def _deadlines(problem: ClockProblem, num_plans: int, extra_ms: list[float]) -> Floats:
    """Return the deadlines, ascending.

    Raises:
        EnergyError: One of the extra deadlines cannot be kept.
    """
    shortest_ms, longest_ms = problem.span_ms
    for deadline_ms in extra_ms:
        if not shortest_ms * (1 - TIME_TOLERANCE) <= deadline_ms < math.inf:
            raise EnergyError(
                f"deadline_ms: {deadline_ms:.12g} cannot be kept, the shortest iteration takes "
                f"{shortest_ms:.6g} ms; give at least that"
            )
    evenly = np.linspace(shortest_ms, longest_ms, num_plans)
    return np.unique(np.maximum(np.concatenate([evenly, extra_ms]), shortest_ms))
