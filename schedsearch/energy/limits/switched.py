"""Plans whose clocks change seldom: clocks annealed under the limits, with what no such plan can beat."""

from __future__ import annotations

from placements import Profile
from schedsearch.energy.frontier import TIME_TOLERANCE, Frontier
from schedsearch.energy.graph import EnergyError, Ints
from schedsearch.energy.limits.plan import LimitedPlan
from schedsearch.energy.limits.switching import ClockChanges, SwitchingLimits, SwitchingProblem, SwitchState
from schedsearch.energy.limits.switching_bound import min_effective_mj
from schedsearch.energy.simulation import all_maximum_clocks
from schedsearch.schedule import Schedule, require_one_stream


def switched_plan(
    schedule: Schedule, profile: Profile, frontier: Frontier, limits: SwitchingLimits, deadline_ms: float
) -> LimitedPlan[SwitchingLimits, ClockChanges]:
    """Return a plan of little energy that keeps both the switching limits and the deadline.

    Raises:
        ProfileError: The profile has several configurations for a clock.
        EnergyError: The deadline is too short, or no plan was found that keeps it under the limits.
        PlacementError: Devices have several streams.
    """
    require_one_stream(schedule.placement, "a plan of few changes of clock", "leave its limits at 0")
    free = frontier.at(deadline_ms)
    latest_ms = deadline_ms * (1 + TIME_TOLERANCE)
    problem = SwitchingProblem(schedule, profile, frontier.relaxed, limits, latest_ms)
    price_w = problem.bound.price_w(deadline_ms)
    best = best_state(problem, problem.columns(free.clock_mhz), price_w, "no plan that was found")
    return problem.limited(best, free, deadline_ms, min_effective_mj(problem))


def best_state(problem: SwitchingProblem, column: Ints, price_w: float, kept_by: str) -> SwitchState:
    """Return the state of least effective energy that was found.

    Simulated annealing changes the clocks of stretches, from the plan without limits, and from one clock
    for each device.

    Args:
        problem: Problem under limits.
        column: Clock of each instance in the plan without limits.
        price_w: Shadow price of time there.
        kept_by: What keeps nothing, for the message.

    Raises:
        EnergyError: None was found that keeps the limits.
    """
    from schedsearch.energy.limits.annealing import annealed  # loads numba, which is slow

    if problem.limits.are_none:
        return problem.state(column)
    starts = [column, problem.one_for_each_device()]
    maximum = problem.columns(all_maximum_clocks(problem.schedule, problem.profile))
    states = [problem.state(each) for each in (*starts, maximum)]
    states += [problem.state(each) for each in annealed(problem, starts, price_w)]
    kept = [state for state in states if state.is_kept]
    if not kept:
        raise EnergyError(
            f"deadline_ms: {problem.latest_ms / (1 + TIME_TOLERANCE):.12g} is kept by {kept_by} "
            f"under a dwell of {problem.limits.dwell_ms:g} ms and {problem.limits.latency_ms:g} ms per "
            "change of clock; give more time"
        )
    return min(kept, key=lambda state: state.effective_mj)
