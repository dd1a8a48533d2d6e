"""The choice of clocks for a deadline as a mixed-integer program."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp
from scipy.sparse import coo_array, csr_array, hstack, vstack

from placements import Profile
from schedsearch.energy.bound import proved
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints, instance_graph
from schedsearch.energy.highs import SolverStatus, status_of
from schedsearch.energy.quiet import quiet_stdout
from schedsearch.energy.rounding import OptionTable, option_table
from schedsearch.schedule import Schedule

_MILP_GAP = 1e-9
"""Share of its objective to which the mixed-integer program is solved."""


@dataclass(frozen=True, eq=False)
class Solution:
    """What is known of the best choice for a deadline.

    Attributes:
        choice: Option of each instance, that keep the deadline; None if none was found.
        effective_mj: Effective energy of the choice; infinite without.
        bound_mj: Effective energy that no choice that keeps the deadline is below.
        is_best: Whether there is a choice, and none is better.
        failure: What the solver says where it ended before the time was up and without an answer.
    """

    choice: Ints | None
    effective_mj: float
    bound_mj: float
    is_best: bool
    failure: str = ""


@dataclass(frozen=True, eq=False)
class ClockProgram:
    """The choice of options as linear constraints: on shares of options, then on starts over `unit_ms`.

    Attributes:
        graph: Who waits for whom.
        table: Options of the graph's instances.
        owner: Instance of each share; shape ``(shares,)``.
        option: Option of each share; those of an instance by increasing time.
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
    def of(cls, schedule: Schedule, profile: Profile) -> ClockProgram:
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
        before, after, _ = graph.edge_arrays
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

    def solve(self, deadline_ms: float, time_limit_s: float) -> Solution:
        """Return the choice of least effective energy that keeps a deadline.

        The solver may return a plan that is late by its own tolerance, about a millionth of T_min. A chain of
        instances makes it late; all choices that are no faster on any of them are then excluded, and the
        program is solved again. No choice that keeps the deadline is lost, so that every bound on the way
        holds.

        Args:
            deadline_ms: That passes `require`.
            time_limit_s: Wall-clock seconds above 0.
        """
        ends = time.monotonic() + time_limit_s
        until = max(deadline_ms, self.unit_ms) * (1 + TIME_TOLERANCE)
        late: list[csr_array] = []
        bound_mj, failure = self.offset_mj, ""
        while (left_s := ends - time.monotonic()) > 0:
            found = self._milp(deadline_ms, left_s, late)
            status = status_of(found)
            if not status.has_answer:  # that none exists is wrong: the fastest options keep the deadline
                failure = "" if found.status == 1 else found.message
                break
            bound_mj = max(bound_mj, self.offset_mj + self.unit_mj * float(found.mip_dual_bound))
            choice = self.choice(found.x)
            chain = self._late_chain(choice, until)
            if not chain:
                effective = float(self.table.energy(choice[:, None])[0])
                bound_mj = proved(bound_mj, effective, self.unit_mj * self.graph.size)
                return Solution(choice, effective, bound_mj, status is SolverStatus.OPTIMAL)
            late.append(self._no_faster_on(chain, choice))
        return Solution(None, math.inf, bound_mj, False, failure)

    def _milp(self, deadline_ms: float, time_limit_s: float, late: list[csr_array]) -> OptimizeResult:
        """Return the solver's answer, with some chains of which one instance at least must be faster."""
        size, picks = self.graph.size, len(self.cost)
        constraints = [
            LinearConstraint(self.waits, ub=self.limits(deadline_ms)),
            LinearConstraint(self.one_each, np.ones(size), np.ones(size)),
        ]
        if late:
            rows = vstack(late).tocsr()
            lengths = np.array([np.unique(self.owner[row.indices]).size for row in late])
            constraints.append(LinearConstraint(rows, ub=lengths - 1.0))
        with quiet_stdout():
            return milp(
                np.concatenate([self.cost, np.zeros(size)]),
                integrality=np.concatenate([np.ones(picks), np.zeros(size)]),
                bounds=Bounds(
                    np.zeros(picks + size), np.concatenate([np.ones(picks), np.full(size, np.inf)])
                ),
                constraints=constraints,
                options={"time_limit": time_limit_s, "mip_rel_gap": _MILP_GAP},
            )

    def _late_chain(self, choice: Ints, until_ms: float) -> list[int]:
        """Return instances of which each waits for the one before and the last ends too late; or none."""
        time_ms = self.table.times(choice[:, None])
        end = (self.graph.earliest_start(time_ms) + time_ms)[:, 0]
        if end.max() <= until_ms:
            return []
        ready: dict[int, list[tuple[float, int]]] = {}
        for before, after, delay in self.graph.edges:
            ready.setdefault(after, []).append((float(end[before]) + delay, before))
        chain = [int(end.argmax())]
        while chain[-1] in ready:
            chain.append(max(ready[chain[-1]])[1])
        return chain[::-1]

    def _no_faster_on(self, chain: list[int], choice: Ints) -> csr_array:
        """Return a row that sums the shares, over a chain, of options no faster than those chosen."""
        shares = np.flatnonzero(np.isin(self.owner, chain) & (self.option >= choice[self.owner]))
        row = np.zeros(len(shares), dtype=np.int64)
        width = len(self.cost) + self.graph.size
        return coo_array((np.ones(len(shares)), (row, shares)), shape=(1, width)).tocsr()

    def require(self, deadline_ms: float) -> None:
        """Check that the deadline can be kept.

        Raises:
            EnergyError: It cannot.
        """
        if not self.unit_ms * (1 - TIME_TOLERANCE) <= deadline_ms < math.inf:
            raise EnergyError(
                f"deadline_ms: {deadline_ms:.12g} cannot be kept, the shortest iteration takes "
                f"{self.unit_ms:.6g} ms; give at least that"
            )

    def limits(self, deadline_ms: float) -> Floats:
        """Return what each row of `waits` must not exceed."""
        delays = [-delay for _, _, delay in self.graph.edges]
        until = max(deadline_ms, self.unit_ms) * (1 + TIME_TOLERANCE)
        return np.array([*delays, *[until] * self.graph.size]) / self.unit_ms

    def choice(self, solution: Floats) -> Ints:
        """Return the option of each instance that a solution picks."""
        choice = np.zeros(self.graph.size, dtype=np.int64)
        picked = np.flatnonzero(solution[: len(self.owner)] > 0.5)
        choice[self.owner[picked]] = self.option[picked]
        return choice
