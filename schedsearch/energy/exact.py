"""The best choice of clocks for a small schedule, and the best of the relaxed problem, each as one program.

Every instance picks one of its options; a mixed-integer program (scipy's HiGHS) makes the effective energy
least for a deadline, and proves it. That takes seconds for about thirty instances and far too long for more,
where `schedsearch.energy.compute_frontier` says by how much its plans may be above the best. Nothing is
shared with the way there but the options and the graph, so each can check the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array, csr_array, hstack

from placements import Profile
from schedsearch.energy.candidates import clocks_by_block
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.frontier import FrequencyPlan
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints, instance_graph
from schedsearch.energy.rounding import OptionTable, option_table
from schedsearch.energy.simulation import simulate
from schedsearch.schedule import Schedule

MOST_INSTANCES = 32
"""Up to so many instances the best choice of clocks is found within seconds."""

_SLACK = 1e-9
"""Share of the deadline that is added to it: without, it could be missed by rounding errors alone."""

_MILP_GAP = 1e-9
"""Share of its objective to which the mixed-integer program is solved."""


class ExactStatus(StrEnum):
    """What is known of an exact plan."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"


@dataclass(frozen=True)
class ExactPlan:
    """A plan, and whether none is better.

    Attributes:
        plan: Of least effective energy of those found; its `FrequencyPlan.lower_bound_mj` is the proved
            bound, for any plan that keeps the deadline, plus the waiting until the plan's end. It may be
            later than the deadline by about a millionth, the solver's tolerance.
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
        EnergyError: There are too many instances, the deadline cannot be kept, no plan was found in the
            time, or the schedule is not valid.
    """
    program = _Program.of(schedule, profile)
    size = program.graph.size
    if size > MOST_INSTANCES:
        raise EnergyError(
            f"schedule: has {size} block instances, an exact plan is for at most {MOST_INSTANCES}; "
            "use fewer micro-batches, or compute_frontier"
        )
    if not 0 < time_limit_s < math.inf:
        raise EnergyError(f"time_limit_s: {time_limit_s:g} is not a time above 0; give seconds")
    program.require(deadline_ms)
    picks = len(program.cost)
    found = milp(
        np.concatenate([program.cost, np.zeros(size)]),
        integrality=np.concatenate([np.ones(picks), np.zeros(size)]),
        bounds=Bounds(np.zeros(picks + size), np.concatenate([np.ones(picks), np.full(size, np.inf)])),
        constraints=[
            LinearConstraint(program.waits, ub=program.limits(deadline_ms)),
            LinearConstraint(program.one_each, np.ones(size), np.ones(size)),
        ],
        options={"time_limit": time_limit_s, "mip_rel_gap": _MILP_GAP},
    )
    if found.x is None:
        raise EnergyError(
            f"time_limit_s: no plan was found in {time_limit_s:g} s; give more, or use compute_frontier"
        )
    choice = program.choice(found.x)
    table, graph = program.table, program.graph
    (clock_mhz,) = clocks_by_block(graph, table.clock_mhz[table.row, choice][:, None])
    done = simulate(schedule, profile, clock_mhz, graph)
    effective = float(table.energy(choice[:, None])[0])
    bound = min(effective, program.offset_mj + program.unit_mj * float(found.mip_dual_bound))
    lower_bound = done.energy_mj - (effective - bound)
    status = ExactStatus.OPTIMAL if found.status == 0 else ExactStatus.FEASIBLE
    return ExactPlan(FrequencyPlan(clock_mhz, done.time_ms, done.energy_mj, lower_bound), status, bound)


def relaxed_effective_mj(schedule: Schedule, profile: Profile, deadline_ms: float) -> float:
    """Return the least effective energy if instances could mix their options, as one linear program.

    This is the relaxed problem of `schedsearch.energy.relaxation` at one deadline, solved in another way, for
    schedules of any size.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: The deadline cannot be kept, or the schedule is not valid.
    """
    program = _Program.of(schedule, profile)
    program.require(deadline_ms)
    size, picks = program.graph.size, len(program.cost)
    found = linprog(
        np.concatenate([program.cost, np.zeros(size)]),
        A_ub=program.waits,
        b_ub=program.limits(deadline_ms),
        A_eq=program.one_each,
        b_eq=np.ones(size),
        bounds=(0, None),
        method="highs",
    )
    assert found.status == 0, f"{picks} options of {size} instances: {found.message}"
    return program.offset_mj + program.unit_mj * float(found.fun)


@dataclass(frozen=True, eq=False)
class _Program:
    """The choice of options as linear constraints: on shares of options, then on starts over `unit_ms`.

    Attributes:
        graph: Who waits for whom.
        table: Options of the graph's instances.
        owner: Instance of each share; shape ``(shares,)``.
        option: Option of each share.
        cost: Effective energy of each share above the instance's least, over `unit_mj`.
        offset_mj: Sum of the least effective energies.
        unit_mj: Largest difference between two options.
        unit_ms: Time of the shortest iteration, T_min.
        one_each: Sums the shares of each instance.
        waits: Rows that must not exceed `limits`: for each edge, then for each instance and the deadline.
    """

    graph: InstanceGraph
    table: OptionTable
    owner: Ints
    option: Ints
    cost: Floats
    offset_mj: float
    unit_mj: float
    unit_ms: float
    one_each: csr_array
    waits: csr_array

    @classmethod
    def of(cls, schedule: Schedule, profile: Profile) -> _Program:
        """Return the program of a schedule."""
        profile.require(schedule.placement)
        graph = instance_graph(schedule)
        table = option_table(graph, cost_curves(schedule.placement, profile))
        owner, option = np.nonzero(np.isfinite(table.time_ms)[table.row])
        row = table.row[owner]
        count, shares = graph.size, len(owner)
        energy = table.energy_mj[row, option]
        least = np.where(np.isfinite(table.energy_mj), table.energy_mj, np.inf).min(axis=1)[table.row]
        unit_mj = float((energy - least[owner]).max()) or 1.0
        unit_ms = float(graph.makespan(table.time_ms[table.row, 0][:, None])[0])
        number = np.arange(shares)
        one_each = coo_array((np.ones(shares), (owner, number)), shape=(count, shares + count)).tocsr()
        time = coo_array(
            (table.time_ms[row, option] / unit_ms, (owner, number)), shape=(count, shares)
        ).tocsr()
        before = np.array([a for a, _, _ in graph.edges], dtype=np.int64)
        after = np.array([b for _, b, _ in graph.edges], dtype=np.int64)
        last = np.arange(count)
        of_row = np.concatenate([before, last])
        rows = np.arange(len(of_row))
        starts = coo_array(
            (
                np.concatenate([np.ones(len(rows)), -np.ones(len(before))]),
                (np.concatenate([rows, rows[: len(before)]]), np.concatenate([of_row, after])),
            ),
            shape=(len(rows), count),
        ).tocsr()
        waits = hstack([time[of_row], starts]).tocsr()
        return cls(
            graph,
            table,
            owner,
            option,
            (energy - least[owner]) / unit_mj,
            float(least.sum()),
            unit_mj,
            unit_ms,
            one_each,
            waits,
        )

    def require(self, deadline_ms: float) -> None:
        """Check that the deadline can be kept.

        Raises:
            EnergyError: It cannot.
        """
        if not self.unit_ms * (1 - _SLACK) <= deadline_ms < math.inf:
            raise EnergyError(
                f"deadline_ms: {deadline_ms:g} cannot be kept, the shortest iteration takes "
                f"{self.unit_ms:.6g} ms; give at least that"
            )

    def limits(self, deadline_ms: float) -> Floats:
        """Return what each row of `waits` must not exceed."""
        delays = [-delay for _, _, delay in self.graph.edges]
        until = max(deadline_ms, self.unit_ms) * (1 + _SLACK)
        return np.array([*delays, *[until] * self.graph.size]) / self.unit_ms

    def choice(self, solution: Floats) -> Ints:
        """Return the option of each instance that a solution picks."""
        choice = np.zeros(self.graph.size, dtype=np.int64)
        picked = np.flatnonzero(solution[: len(self.owner)] > 0.5)
        choice[self.owner[picked]] = self.option[picked]
        return choice
