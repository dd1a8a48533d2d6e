"""What no order of a placement's blocks can beat, and of a small schedule the best order and modes together.

The bound leaves out who waits for whom, but for the ends: each device has the time between its first block's
inputs and what must follow its last block, and shares it among all its blocks as is best. A block on several
devices is shared equally among them, in parts that need not agree.

The program is one of CP-SAT: the rules of a schedule (`schedsearch.model.rules`) with modes for times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placements import Profile
from schedsearch.energy.cost import CostCurve, cost_curves
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.generators.neighbourhood import MAX_INSTANCES
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.waiting import waiting_w
from schedsearch.schedule import (
    CyclicOrderError,
    Schedule,
    as_soon_as_possible,
    dependencies,
    micro_batches_of,
)
from schedsearch.validate import InvalidScheduleError, validate

if TYPE_CHECKING:  # as it loads OR-Tools, which is slow
    from schedsearch.solver.budget import SolverBudget

_TICKS = 2.0**24
"""Ticks of the deadline; times are rounded down, so that the bound holds."""

_UNITS = 2.0**30
"""Units of the largest difference of two modes' energies."""


def any_order_mj(schedule: Schedule, profile: Profile, deadline_ms: float) -> float:
    """Return an energy until a deadline that no clocks of any order of a schedule's blocks are below.

    Args:
        schedule: Schedule whose placement and number of micro-batches count.
        profile: Cost of each block at each clock.
        deadline_ms: Deadline that some order keeps.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    curves = cost_curves(placement, profile)
    before, after = _fastest_paths(schedule, curves)
    effective_mj = 0.0
    for device in range(placement.num_devices):
        here = placement.on(device)
        if not here:
            continue
        slack_ms = deadline_ms * (1 + TIME_TOLERANCE)
        slack_ms -= min(before[block.name] for block in here) + min(after[block.name] for block in here)
        lengths, slopes = [], []
        for block in here:
            curve, runs = curves[block.name], len(micro_batches_of(placement, block.name, number))
            time, energy = curve.time_ms[curve.hull], curve.energy_mj[curve.hull] / len(block.devices)
            slack_ms -= runs * float(time[0])
            effective_mj += runs * float(energy[0])
            lengths.append(runs * np.diff(time))
            slopes.append(np.diff(energy) / np.diff(time))
        length, slope = np.concatenate(lengths), np.concatenate(slopes)
        steepest = np.argsort(slope, kind="stable")
        ends = np.minimum(np.cumsum(length[steepest]), max(slack_ms, 0.0))
        effective_mj += float(slope[steepest] @ np.diff(ends, prepend=0.0))
    return effective_mj + waiting_w(placement, profile) * deadline_ms


def _fastest_paths(
    schedule: Schedule, curves: Mapping[str, CostCurve]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least time of each block from the begin to its start, and from its end to the end."""
    placement = schedule.placement
    pairs = [
        (name, block.name, placement.ms(placement.transfer_time(name, block.name)))
        for block in placement.blocks
        for name in block.after
    ]
    fastest = {name: float(curve.time_ms[0]) for name, curve in curves.items()}
    before, after = dict.fromkeys(fastest, 0.0), dict.fromkeys(fastest, 0.0)
    for _ in placement.blocks:  # at most so many steps in a row
        for a, b, delay in pairs:
            before[b] = max(before[b], before[a] + fastest[a] + delay)
            after[a] = max(after[a], delay + fastest[b] + after[b])
    return before, after


class Joint(NamedTuple):
    """What the program says.

    Attributes:
        schedule: Schedule of the best order that it found; None where that is the one of before.
        bound_mj: Effective energy that no order and modes that keep the deadline are below.
    """

    schedule: Schedule | None
    bound_mj: float


def is_small(schedule: Schedule) -> bool:
    """Tell whether `best_order_and_modes` may be asked of a schedule."""
    return len(schedule.blocks) <= MAX_INSTANCES


def best_order_and_modes(
    problem: ClockProblem, clock_mhz: Clocks, deadline_ms: float, budget: SolverBudget
) -> Joint | None:
    """Return the order that, with the best modes, needs the least effective energy; None without an answer.

    Micro-batches stay in order, block by block: others are renamings (Tessel, Property IV.1).

    Args:
        problem: A schedule with which the deadline is kept; the others are of its placement.
        clock_mhz: Its plan for the deadline.
        deadline_ms: Deadline to be kept.
        budget: What the solver may spend.

    Raises:
        KeyboardInterrupt: The solver was interrupted from the keyboard.
    """
    from schedsearch.energy.orders.joint_model import ModeVariables
    from schedsearch.solver.cpsat import solve, within
    from schedsearch.solver.query import Answer

    tick_ms = deadline_ms / _TICKS
    v = ModeVariables.of(problem, clock_mhz, tick_ms, math.ceil(_TICKS * (1 + TIME_TOLERANCE)), _UNITS)
    placement = problem.schedule.placement
    for a, b, ticks in dependencies(placement, problem.schedule.num_micro_batches):
        v.wait(a, b, v.time[a] + math.floor(placement.ms(ticks) / tick_ms))
    v.keep_rules()
    solver = within(budget)
    if solve(solver, v.model, budget.spend) is not Answer.YES:
        return None
    starts = {instance: solver.value(start) for instance, start in v.start.items()}
    orders = [sorted(v.on(device), key=starts.__getitem__) for device in range(placement.num_devices)]
    bound_mj = v.offset_mj + v.unit_mj * solver.best_objective_bound
    now = [list(problem.schedule.order(device)) for device in range(placement.num_devices)]
    if orders == now:
        return Joint(None, bound_mj)
    try:
        found = as_soon_as_possible(placement, problem.schedule.num_micro_batches, orders)
        return Joint(validate(found), bound_mj)
    except (CyclicOrderError, InvalidScheduleError):  # only equal starts, which rounded times may have
        return Joint(None, bound_mj)
