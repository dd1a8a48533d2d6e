"""Plans whose clocks change no more often than a device can change them, and that pay for every change.

A change of clock takes about ten milliseconds and is asked for by another process (Perseus, Sec. 3.1 and
5), long enough to matter for short blocks. Perseus lets the block begin meanwhile and counts the change as
nothing. Here a device waits, at the blocking power, until its new clock is there: a change can be asked for
as soon as the block before has ended, so it costs no time where the device waits for an input anyway, and
the latency where it does not. Running on at the old clock is never later than that, and needs no cost of
a block at a clock that the profile may lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placements import Profile
from schedsearch.energy.bound import LowerBound, proved
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError, Ints
from schedsearch.energy.problem import clocks_by_block
from schedsearch.energy.simulation import Simulation, all_maximum_clocks, operating_points, simulated_plan
from schedsearch.energy.switching.bound import least_effective_mj
from schedsearch.energy.switching.descent import lowered, lowered_in_parts
from schedsearch.energy.switching.limits import SwitchingLimits, changes_per_iteration, num_clock_changes
from schedsearch.energy.switching.model import State, SwitchingModel
from schedsearch.energy.switching.repair import raised
from schedsearch.energy.waiting import waiting_w
from schedsearch.schedule import Schedule

MOST_IMPROVED = 3
"""Plans without needless changes, the best ones, that are improved."""

MOST_PARTS = 64
"""Parts of a device's order, at most, that are lowered together in the end."""

CALM = 30
"""Length of a stretch, in latencies, from which on a change is likely to pay."""


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
        limits: That are kept.
        deadline_ms: Likewise.
        lower_bound_mj: Energy of all devices until the deadline that no plan under the limits is below.
        gap: By how much of that the plan, until the deadline, may be above the best one.
    """

    plan: FrequencyPlan
    simulation: Simulation
    num_changes: tuple[int, ...]
    changes_per_iteration: tuple[int, ...]
    free: FrequencyPlan
    limits: SwitchingLimits
    deadline_ms: float
    lower_bound_mj: float
    gap: float


def simulate_switching(
    schedule: Schedule,
    profile: Profile,
    clock_mhz: Mapping[str, Sequence[int]],
    latency_ms: float,
    back_to_back: bool = True,
) -> Simulation:
    """Return time and energy of a schedule whose devices wait for every change of clock.

    With a latency of 0 this is `schedsearch.energy.simulation.simulate`.

    Args:
        schedule: Gives the order of the blocks on each device.
        profile: Cost of each block at each clock.
        clock_mhz: For each block one clock per micro-batch.
        latency_ms: Of a change.
        back_to_back: See `SwitchingLimits`.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: A clock is missing or not in the profile, or the latency is not a time.
    """
    profile.require(schedule.placement)
    chosen = operating_points(schedule, profile, clock_mhz)
    limits = SwitchingLimits(0.0, latency_ms, back_to_back)
    model = SwitchingModel(schedule, profile, limits, np.inf)
    clock = np.array([chosen[instance].clock_mhz for instance in model.graph.instances])
    return model.simulation(model.state(clock))


def switched_plan(
    schedule: Schedule,
    profile: Profile,
    frontier: Frontier,
    limits: SwitchingLimits,
    deadline_ms: float,
    bound: LowerBound | None = None,
) -> SwitchedPlan:
    """Return a plan of little energy that keeps both the switching limits and the deadline.

    The plan without limits is the start, beside the highest clocks. In it, stretches that are too short take
    a faster clock together with a neighbor, and so do those between which the critical path waits. From all
    three, simulated annealing changes the clocks of stretches. The best result stays.

    Args:
        schedule: Any valid schedule; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        frontier: Of the schedule.
        limits: To be kept.
        deadline_ms: For the end of the iteration.
        bound: Of the schedule without limits, where it is at hand; the lower bound of `SwitchedPlan.plan` is
            0 without.

    Raises:
        EnergyError: The deadline is too short, or no plan was found that keeps it under the limits.
    """
    free = frontier.at(deadline_ms)
    model = SwitchingModel(schedule, profile, limits, deadline_ms * (1 + TIME_TOLERANCE))
    relaxed = frontier.relaxed or bound
    best = _best_state(model, free, relaxed.price_w(deadline_ms) if relaxed else 0.0)
    if best is None:
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.12g} is kept by no plan that was found under a dwell of "
            f"{limits.dwell_ms:g} ms and {limits.latency_ms:g} ms per change of clock; give more time"
        )
    return plan_of(model, best, free, deadline_ms, least_effective_mj(model), bound)


def plan_of(
    model: SwitchingModel,
    state: State,
    free: FrequencyPlan,
    deadline_ms: float,
    least_mj: float,
    bound: LowerBound | None = None,
) -> SwitchedPlan:
    """Return a state of a model without ties as a plan.

    Args:
        model: Of the state.
        state: That keeps the limits.
        free: The plan without limits.
        deadline_ms: That both keep.
        least_mj: Effective energy that no plan is below.
        bound: Of plans without limits.
    """
    simulation = model.simulation(state)
    (clocks,) = clocks_by_block(model.graph, state.clock[:, None])
    unlimited_mj = bound.at(simulation.time_ms) if bound else 0.0
    waiting_mj = waiting_w(model.schedule.placement, model.profile) * deadline_ms
    least_mj = proved(least_mj, state.effective_mj, waiting_mj)
    lower_bound_mj = least_mj + waiting_mj
    return SwitchedPlan(
        simulated_plan(clocks, simulation, unlimited_mj),
        simulation,
        num_clock_changes(model.schedule, clocks),
        changes_per_iteration(model.schedule, clocks),
        free,
        model.limits,
        deadline_ms,
        lower_bound_mj,
        (state.effective_mj - least_mj) / lower_bound_mj if lower_bound_mj > 0 else np.nan,
    )


def _best_state(model: SwitchingModel, free: FrequencyPlan, price_w: float) -> State | None:
    """Return the state of least effective energy that was found, or None.

    Args:
        model: Without ties.
        free: The plan without limits.
        price_w: Shadow price of time there.
    """
    from schedsearch.energy.switching.annealing import annealed  # loads numba, which is slow

    clock = model.clocks_of(free.clock_mhz)
    if model.limits.are_none:
        return raised(model, clock)
    maximum = model.clocks_of(all_maximum_clocks(model.schedule, model.profile))
    starts = [clock, maximum, *model.faster_than(maximum)]
    states = [state for start in starts for state in _repaired(model, start)]
    states.sort(key=lambda state: state.effective_mj)
    found = annealed(model, [*starts, *(state.clock for state in states[:1])], price_w)
    return min([*states[:1], *([] if found is None else [found])], key=lambda s: s.effective_mj, default=None)


def _repaired(model: SwitchingModel, clock: Ints) -> list[State]:
    """Return states that keep the limits, with needless changes taken out of some clocks."""
    ways = [raised(model, clock)]
    if model.limits.latency_ms > 0:
        ways.append(raised(_calmer(model), clock))
    return [state for state in ways if state is not None]


def best_tied_state(model: SwitchingModel, starts: Iterable[Ints]) -> State | None:
    """Return the state of least effective energy that is reached from any start, or None.

    Args:
        model: With ties.
        starts: Clocks, the same where they are tied.
    """
    starts = iter(starts)
    if model.limits.are_none:
        return raised(model, next(starts))
    states = [state for clock in starts for state in _repaired(model, clock)]
    states.sort(key=lambda state: state.effective_mj)
    improved = [lowered(model, state) for state in states[:MOST_IMPROVED]]
    if not improved:
        return None
    return lowered_in_parts(model, min(improved, key=lambda state: state.effective_mj), MOST_PARTS)


def _calmer(model: SwitchingModel) -> SwitchingModel:
    """Return the problem with longer stretches than asked for, where changes cost time."""
    dwell_ms = max(model.limits.dwell_ms, CALM * model.limits.latency_ms)
    return replace(model, limits=replace(model.limits, dwell_ms=dwell_ms))
