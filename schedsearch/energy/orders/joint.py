"""Of a small schedule the best order and clocks together, and the best modes where its placement has some.

The program is one of CP-SAT: the rules of a schedule (`schedsearch.model.rules`) with clocks for times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from placements import Placement
from placements.modes import Chosen
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.improving import MAX_INSTANCES
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.memory_order import Run, memory_edges
from schedsearch.model.variables import Literal
from schedsearch.schedule import (
    CyclicOrderError,
    Instance,
    Schedule,
    as_soon_as_possible,
    dependencies,
    instances,
    micro_batches_of,
)
from schedsearch.validate import InvalidScheduleError, validate

if TYPE_CHECKING:  # as these load OR-Tools, which is slow
    from schedsearch.energy.orders.joint_model import ClockVariables
    from schedsearch.solver.budget import SolverBudget

_TICKS = 2.0**24
"""Ticks of the deadline; times are rounded down, so that the bound holds."""

_UNITS = 2.0**30
"""Units of the largest difference of two modes' energies."""


class Joint(NamedTuple):
    """What the program says.

    Attributes:
        schedule: Schedule of the best order and modes that it found; None where that is the one of before.
        bound_mj: Effective energy that no order and modes at any clocks that keep the deadline are below.
    """

    schedule: Schedule | None
    bound_mj: float


def is_small(schedule: Schedule) -> bool:
    """Tell whether `best_order_and_clocks` may be asked of a schedule."""
    placement, number = schedule.placement, schedule.num_micro_batches
    runs = sum(len(micro_batches_of(placement, block.name, number)) for block in placement.blocks)
    return runs <= MAX_INSTANCES


def best_order_and_clocks(
    problem: ClockProblem, clock_mhz: Clocks, deadline_ms: float, budget: SolverBudget
) -> Joint | None:
    """Return the order and modes that need the least effective energy at any clocks; None without an answer.

    Micro-batches stay in order, block by block: others are renamings (Tessel, Property IV.1). Where they may
    have different modes, only the first block runs them in order.

    Args:
        problem: A schedule with which the deadline is kept; the others are of its placement.
        clock_mhz: Its plan for the deadline.
        deadline_ms: Deadline to be kept.
        budget: What the solver may spend.

    Raises:
        KeyboardInterrupt: The solver was interrupted from the keyboard.
    """
    from schedsearch.energy.orders.joint_model import ClockVariables
    from schedsearch.solver.cpsat import solve, within
    from schedsearch.solver.query import Answer

    tick_ms = deadline_ms / _TICKS
    v = ClockVariables.of(problem, clock_mhz, tick_ms, math.ceil(_TICKS * (1 + TIME_TOLERANCE)), _UNITS)
    placement, number = problem.schedule.placement, problem.schedule.num_micro_batches
    for a, b, ticks in dependencies(placement, number):
        v.wait(a, b, v.time[a] + math.floor(placement.ms(ticks) / tick_ms))
    v.keep_rules()
    solver = within(budget)
    if solve(solver, v.model, budget.spend) is not Answer.YES:
        return None
    bound_mj = v.offset_mj + v.unit_mj * solver.best_objective_bound
    chosen = _chosen(v, number, solver.value)
    starts = {each: solver.value(v.start[each]) for each, _ in instances(placement, number, chosen)}
    lanes = range(len(placement.lanes))
    orders = [
        sorted((each for each in v.on_lane(lane) if each in starts), key=starts.__getitem__) for lane in lanes
    ]
    if tuple(map(tuple, orders)) == problem.schedule.lane_orders and chosen == problem.schedule.chosen:
        return Joint(None, bound_mj)
    waits = _memory_waits(placement, number, chosen, starts, {i: solver.value(v.time[i]) for i in starts})
    try:
        found = as_soon_as_possible(placement, number, orders, chosen, waits)
        return Joint(validate(found), bound_mj)
    except (CyclicOrderError, InvalidScheduleError):  # only equal starts, which rounded times may have
        return Joint(None, bound_mj)


def _chosen(v: ClockVariables, number: int, value: Callable[[Literal], int]) -> tuple[Chosen, ...]:
    """Return the choices of each micro-batch; nothing where nothing is decided."""
    decisions = range(len(v.placement.decisions))
    literals = [[v.choices[i, n] for i in decisions] for n in range(number if decisions else 0)]
    return tuple(tuple(list(map(value, each)).index(1) for each in own) for own in literals)


def _memory_waits(
    placement: Placement,
    number: int,
    chosen: tuple[Chosen, ...],
    starts: Mapping[Instance, int],
    time: Mapping[Instance, int],
) -> list[tuple[Instance, Instance, int]]:
    """Return who waits for whom where streams share a memory, from starts and times in other ticks."""
    if not placement.has_streams:
        return []
    blocks = dict(instances(placement, number, chosen))
    runs = [Run(each, replace(block, time=time[each]), starts[each]) for each, block in blocks.items()]
    found = (edge[:3] for edge in memory_edges(placement, runs))
    return [(earlier, later, blocks[earlier].time if ticks else 0) for earlier, later, ticks in found]
