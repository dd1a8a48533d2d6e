"""Plans whose clocks change no more often than a device can change them, and that pay for every change.

A change of clock takes about ten milliseconds and is asked for by another process (Perseus, Sec. 3.1 and
5), long enough to matter for short blocks. Perseus lets the block begin meanwhile and counts the change as
nothing. Here a device waits, at the blocking power, until its new clock is there: a change can be asked for
as soon as the block before has ended, so it costs no time where the device waits for an input anyway, and
the latency where it does not. Running on at the old clock is never later than that, and needs no cost of
a block at a clock that the profile may lack.

Clocks may also repeat with the repetend, so that generated code can loop over them: instances of one clock
group change together then, and the limits hold from each repetend to the next as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placements import Profile
from schedsearch.energy.bound import proved
from schedsearch.energy.constrained.periodic import PeriodicPlan
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError, Ints
from schedsearch.energy.problem import ClockProblem, clocks_by_block
from schedsearch.energy.simulation import (
    ClockedIteration,
    all_maximum_clocks,
    operating_points,
    simulated_plan,
)
from schedsearch.energy.switching.bound import min_effective_mj
from schedsearch.energy.switching.limits import SwitchingLimits, changes_per_iteration, num_clock_changes
from schedsearch.energy.switching.model import SwitchingProblem, SwitchState
from schedsearch.schedule import Schedule, require_one_stream


@dataclass(frozen=True)
class SwitchedPlan:
    """A plan that keeps the limits, with the time and energy of its simulation under them.

    Attributes:
        plan: Clocks, time and energy, waiting for changes included; its lower bound is of plans of its time
            without limits.
        simulation: When each block starts.
        num_changes: Changes of clock within the iteration, for each device.
        changes_per_iteration: The same with that to the next iteration's first clock.
        free: The plan of the frontier for the same deadline, which knows no limits.
        limits: Limits that are kept.
        deadline_ms: Likewise.
        lower_bound_mj: Energy of all devices until the deadline that no plan under the limits is below.
        gap: By how much of the bound the plan, until the deadline, may be above the best one.
    """

    plan: FrequencyPlan
    simulation: ClockedIteration
    num_changes: tuple[int, ...]
    changes_per_iteration: tuple[int, ...]
    free: FrequencyPlan
    limits: SwitchingLimits
    deadline_ms: float
    lower_bound_mj: float
    gap: float


@dataclass(frozen=True)
class SwitchedPeriodicPlan:
    """A plan whose clocks repeat and that keeps the limits.

    Attributes:
        periodic: Its clocks.
        switched: The same for all micro-batches, with time and energy under the limits.
    """

    periodic: PeriodicPlan
    switched: SwitchedPlan


def simulate_switching(
    schedule: Schedule,
    profile: Profile,
    clock_mhz: Mapping[str, Sequence[int]],
    latency_ms: float,
    back_to_back: bool = True,
) -> ClockedIteration:
    """Return time and energy of a schedule whose devices wait for every change of clock.

    With a latency of 0 this is `schedsearch.energy.simulation.simulate_at_clocks`.

    Args:
        schedule: Gives the order of the blocks on each device.
        profile: Cost of each block at each clock.
        clock_mhz: For each block one clock per micro-batch.
        latency_ms: Latency of a change.
        back_to_back: See `SwitchingLimits`.

    Raises:
        ProfileError: The profile lacks a block, or has several configurations for a clock.
        EnergyError: A clock is missing or not in the profile, or the latency is not a time.
    """
    limits = SwitchingLimits(0.0, latency_ms, back_to_back)
    problem = SwitchingProblem(schedule, profile, limits=limits)
    chosen = operating_points(schedule, profile, clock_mhz)
    clock = np.array([chosen[instance].clock_mhz for instance in problem.graph.instances])
    return problem.simulation(problem.state(clock))


def switched_plan(
    schedule: Schedule, profile: Profile, frontier: Frontier, limits: SwitchingLimits, deadline_ms: float
) -> SwitchedPlan:
    """Return a plan of little energy that keeps both the switching limits and the deadline.

    Simulated annealing changes the clocks of stretches, from the plan without limits, and from one clock for
    each device.

    Args:
        schedule: Any valid schedule; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        frontier: Frontier of the schedule.
        limits: Limits to be kept.
        deadline_ms: For the end of the iteration.

    Raises:
        ProfileError: The profile has several configurations for a clock.
        EnergyError: The deadline is too short, or no plan was found that keeps it under the limits.
        PlacementError: Devices have several streams.
    """
    require_one_stream(schedule.placement, "a plan of few changes of clock", "leave its limits at 0")
    free = frontier.at(deadline_ms)
    latest_ms = deadline_ms * (1 + TIME_TOLERANCE)
    problem = SwitchingProblem(schedule, profile, frontier.relaxed, limits, latest_ms)
    best = _best_state(problem, problem.clocks_of(free.clock_mhz), problem.bound.price_w(deadline_ms))
    if best is None:
        raise _nothing_kept(limits, deadline_ms, "no plan that was found")
    return _plan_of(problem, best, free, deadline_ms, min_effective_mj(problem))


def switched_periodic_plan(
    alone: PeriodicPlan, limits: SwitchingLimits, free: FrequencyPlan, lower_bound_mj: float = 0.0
) -> SwitchedPeriodicPlan:
    """Return a plan of little energy whose clocks repeat, and that keeps limits and deadline.

    Args:
        alone: The periodic plan without limits, for the same micro-batches and deadline.
        limits: Limits to be kept, also from each repetend to the next.
        free: The plan without limits that does not repeat.
        lower_bound_mj: Energy until the deadline that no plan under the limits is below, where it is known.

    Raises:
        EnergyError: No plan was found that keeps the deadline.
    """
    number, deadline_ms = alone.num_micro_batches, alone.deadline_ms
    latest_ms = deadline_ms * (1 + TIME_TOLERANCE)
    free_problem = ClockProblem(alone.periodic.schedule(number), alone.profile)
    groups = [alone.periodic.groups(instance, number)[-1] for instance in free_problem.graph.instances]
    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    problem = SwitchingProblem(
        free_problem.schedule,
        alone.profile,
        limits=limits,
        latest_ms=latest_ms,
        group=np.array([numbers[group] for group in groups]),
    )
    best = _best_state(problem, problem.clocks_of(alone.unrolled(number).clock_mhz), 0.0)
    if best is None:
        raise _nothing_kept(limits, deadline_ms, "no plan that repeats and was found")
    made = alone.with_clocks(dict(zip(groups, best.clock.tolist(), strict=True)), limits)
    min_mj = max(alone.relaxed_mj, lower_bound_mj) - problem.waiting_w * deadline_ms
    return SwitchedPeriodicPlan(made, _plan_of(problem, best, free, deadline_ms, min_mj))


def _nothing_kept(limits: SwitchingLimits, deadline_ms: float, by: str) -> EnergyError:
    return EnergyError(
        f"deadline_ms: {deadline_ms:.12g} is kept by {by} under a dwell of {limits.dwell_ms:g} ms and "
        f"{limits.latency_ms:g} ms per change of clock; give more time"
    )


def _best_state(problem: SwitchingProblem, clock: Ints, price_w: float) -> SwitchState | None:
    """Return the state of least effective energy that was found, or None.

    Args:
        problem: Problem with limits.
        clock: MHz of each instance in the plan without limits.
        price_w: Shadow price of time there.
    """
    from schedsearch.energy.switching.annealing import annealed  # loads numba, which is slow

    if problem.limits.are_none:
        return problem.state(clock)
    maximum = problem.clocks_of(all_maximum_clocks(problem.schedule, problem.profile))
    starts = [clock, problem.one_for_each_device()]
    states = [problem.state(each) for each in (*starts, maximum)]
    found = annealed(problem, starts, price_w)
    kept = [state for state in states if problem.keeps(state)] + ([] if found is None else [found])
    return min(kept, key=lambda state: state.effective_mj, default=None)


def _plan_of(
    problem: SwitchingProblem, state: SwitchState, free: FrequencyPlan, deadline_ms: float, min_mj: float
) -> SwitchedPlan:
    """Return a state as a plan.

    Args:
        problem: Problem of the state.
        state: State that keeps the limits.
        free: The plan without limits.
        deadline_ms: Deadline that both keep.
        min_mj: Effective energy that no plan is below.
    """
    simulation = problem.simulation(state)
    (clocks,) = clocks_by_block(problem.graph, state.clock[:, None])
    waiting_mj = problem.waiting_w * deadline_ms
    min_mj = proved(min_mj, state.effective_mj, waiting_mj)
    lower_bound_mj = min_mj + waiting_mj
    return SwitchedPlan(
        simulated_plan(clocks, simulation, problem.bound.at(simulation.time_ms)),
        simulation,
        num_clock_changes(problem.schedule, clocks),
        changes_per_iteration(problem.schedule, clocks),
        free,
        problem.limits,
        deadline_ms,
        lower_bound_mj,
        (state.effective_mj - min_mj) / lower_bound_mj if lower_bound_mj > 0 else np.nan,
    )
