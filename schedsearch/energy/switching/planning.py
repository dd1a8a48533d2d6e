"""Plans whose clocks change no more often than a device can change them, and that pay for every change.

A change of clock takes about ten milliseconds and is asked for by another process (Perseus, Sec. 3.1 and
5), long enough to matter for short blocks. Perseus lets the block begin meanwhile and counts the change as
nothing. Here a device waits, at the blocking power, until its new clock is there: a change can be asked for
as soon as the block before has ended, so it costs no time where the device waits for an input anyway, and
the latency where it does not. Running on at the old clock is never later than that, and needs no cost of
a block at a clock that the profile may lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placements import Profile
from schedsearch.energy.bound import LowerBound, proved
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError, Ints
from schedsearch.energy.problem import clocks_by_block
from schedsearch.energy.simulation import Simulation, all_maximum_clocks, operating_points, simulated_plan
from schedsearch.energy.switching.bound import least_effective_mj
from schedsearch.energy.switching.descent import lowered, lowered_in_parts, one_for_each_device
from schedsearch.energy.switching.limits import SwitchingLimits, changes_per_iteration, num_clock_changes
from schedsearch.energy.switching.model import State, SwitchingModel
from schedsearch.energy.switching.repair import raised
from schedsearch.energy.switching.windows import chosen_in_windows
from schedsearch.energy.waiting import waiting_w
from schedsearch.schedule import Schedule

MOST_STARTS = 6
"""Free plans, of the deadline or faster, that changes are taken out of."""

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

    Plans of the frontier, of the deadline and faster ones, are the start, beside one clock for all blocks
    of a device. Stretches that are too short take a faster clock together with a neighbor, and so do those
    between which the critical path waits. Then clocks are lowered as far as slack and limits allow, and
    chosen anew for one device after the other. The best result stays.

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
    best = best_state(model, _starts(model, schedule, profile, frontier, free))
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


def best_state(model: SwitchingModel, starts: Iterable[Ints]) -> State | None:
    """Return the state of least effective energy that is reached from any start, or None.

    Args:
        model: Perhaps with ties.
        starts: Clocks, the same where they are tied.
    """
    starts = iter(starts)
    if model.limits.are_none:
        return raised(model, next(starts))
    states = []
    calmer = _calmer(model)
    for clock in starts:
        ways = [raised(model, clock), raised(calmer, clock) if model.limits.latency_ms > 0 else None]
        states += [state for state in ways if state is not None]
    states.sort(key=lambda state: state.effective_mj)
    improved = [lowered(model, state) for state in states[:MOST_IMPROVED]]
    if not improved:
        return None
    best = lowered_in_parts(model, min(improved, key=lambda state: state.effective_mj), MOST_PARTS)
    return best if model.group is not None else chosen_in_windows(model, best)


def _calmer(model: SwitchingModel) -> SwitchingModel:
    """Return the problem with longer stretches than asked for, where changes cost time."""
    dwell_ms = max(model.limits.dwell_ms, CALM * model.limits.latency_ms)
    return replace(model, limits=replace(model.limits, dwell_ms=dwell_ms))


def _one_for_each_block(model: SwitchingModel) -> SwitchingModel:
    """Return the problem in which a block has one clock for all its micro-batches."""
    return replace(model, group=model.costs.row)


def _starts(
    model: SwitchingModel, schedule: Schedule, profile: Profile, frontier: Frontier, free: FrequencyPlan
) -> Iterator[Ints]:
    """Yield clocks to take changes out of, those of the free plan first."""
    plans = [free, *(plan for plan in reversed(frontier.plans) if plan.time_ms < free.time_ms)]
    for i in np.unique(np.linspace(0, len(plans) - 1, min(len(plans), MOST_STARTS)).round().astype(int)):
        yield model.clocks_of(plans[i].clock_mhz)
    maximum = model.clocks_of(all_maximum_clocks(schedule, profile))
    steady = [maximum, *model.faster_than(maximum), one_for_each_device(model, maximum)]
    yield from steady
    of_blocks = best_state(_one_for_each_block(model), steady)
    if of_blocks is not None:
        yield of_blocks.clock
