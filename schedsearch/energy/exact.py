"""The best choice of clocks for a small schedule, as one program.

Every instance picks one of its options; a mixed-integer program (scipy's HiGHS) makes the effective energy
least for a deadline, and proves it. That takes seconds for about thirty instances and far too long for more,
where `schedsearch.energy.compute_frontier` says by how much its plans may be above the best. Nothing is
shared with the way there but the options and the graph, so each can check the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from placements import Profile
from schedsearch.energy.candidates import clocks_by_block
from schedsearch.energy.clock_program import ClockProgram
from schedsearch.energy.frontier import FrequencyPlan
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.highs import SolverError
from schedsearch.energy.simulation import simulate
from schedsearch.schedule import Schedule

MOST_INSTANCES = 32
"""Up to so many instances the best choice of clocks is found within seconds."""


class ExactStatus(StrEnum):
    """What is known of an exact plan."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"


@dataclass(frozen=True)
class ExactPlan:
    """A plan, and whether none is better.

    Attributes:
        plan: Of least effective energy of those found; its `FrequencyPlan.lower_bound_mj` is the proved
            bound, for any plan that keeps the deadline, plus the waiting until the plan's end.
        status: OPTIMAL if no plan that keeps the deadline has less effective energy.
        bound_effective_mj: Effective energy that no plan that keeps the deadline is below.
    """

    plan: FrequencyPlan
    status: ExactStatus
    bound_effective_mj: float


def exact_plan(
    schedule: Schedule, profile: Profile, deadline_ms: float, time_limit_s: float = 60.0
) -> ExactPlan:
    """Return the plan of least effective energy that keeps a deadline (Perseus, Sec. 4.1, Eq. 3 and 4).

    The problem is NP-hard, which is why Perseus relaxes it (Perseus, Sec. 4.2); few instances can be solved.

    Args:
        schedule: Any valid schedule of at most `MOST_INSTANCES` instances; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        deadline_ms: By when the iteration must end.
        time_limit_s: Wall-clock seconds; when they are over, the best plan found is returned, as FEASIBLE.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: The blocking power depends on the clock, there are too many instances, the deadline
            cannot be kept, no plan was found in the time, the solver failed, or the schedule is not valid.
    """
    require_one_power(profile)
    program = ClockProgram.of(schedule, profile)
    require_few(program.graph.size)
    if not 0 < time_limit_s < math.inf:
        raise EnergyError(f"time_limit_s: {time_limit_s:g} is not a time above 0; give seconds")
    program.require(deadline_ms)
    found = program.solve(deadline_ms, time_limit_s)
    if found.choice is None and found.failure:
        raise SolverError(f"schedule: the exact solver failed ({found.failure}); use compute_frontier")
    if found.choice is None:
        raise EnergyError(
            f"time_limit_s: no plan was found in {time_limit_s:g} s; give more, or use compute_frontier"
        )
    table, graph = program.table, program.graph
    (clock_mhz,) = clocks_by_block(graph, table.clock_mhz[table.row, found.choice][:, None])
    done = simulate(schedule, profile, clock_mhz, graph)
    lower_bound = done.energy_mj - (found.effective_mj - found.bound_mj)
    status = ExactStatus.OPTIMAL if found.is_best else ExactStatus.FEASIBLE
    plan = FrequencyPlan(clock_mhz, done.time_ms, done.energy_mj, lower_bound)
    return ExactPlan(plan, status, found.bound_mj)


def require_one_power(profile: Profile) -> None:
    """Check that the blocking power is the same at all clocks.

    Raises:
        EnergyError: It is not.
    """
    if profile.waits_by_clock:
        raise EnergyError(
            "blocking_power_w: depends on the clock, an exact plan is for one number; "
            "give one, or use compute_frontier"
        )


def require_few(num_instances: int) -> None:
    """Check that a schedule is small enough.

    Raises:
        EnergyError: It is not.
    """
    if num_instances > MOST_INSTANCES:
        raise EnergyError(
            f"schedule: has {num_instances} block instances, an exact plan is for at most {MOST_INSTANCES}; "
            "use fewer micro-batches, or compute_frontier"
        )
