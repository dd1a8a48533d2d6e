"""The best clocks under switching limits for a small schedule, as one program, to judge other plans by.

Every instance picks a clock, and every pair of neighbors on a device pays the latency where it picks two. A
mixed-integer program (scipy's HiGHS) makes the effective energy least and proves it, in seconds for about a
dozen instances. It shares nothing with `planning` but the model's costs and waits, so each can check the
other.

In the program a block may also start later than it could, so that a stretch lasts for the dwell; a job
starts everything as soon as it can. With a dwell its value is therefore a bound, and the clocks are the best
if simulating them keeps the dwell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from placements import Profile
from schedsearch.energy.bound import proved
from schedsearch.energy.candidates import clocks_by_block
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.highs import SolverError, SolverStatus, status_of
from schedsearch.energy.switching.limits import SwitchingLimits
from schedsearch.energy.switching.model import SwitchingModel
from schedsearch.schedule import Schedule

MOST_INSTANCES = 16
"""Up to so many instances the best clocks are found within seconds."""

_MILP_GAP = 1e-9
"""Share of its objective to which the program is solved."""

_SLACK = 1e-7
"""Share of the deadline by which a plan may be late or a stretch short: the solver's tolerance."""


@dataclass(frozen=True)
class ExactSwitchedPlan:
    """The best clocks, and what is proved of them.

    Attributes:
        plan: As soon as possible, under the limits; None where none exists in the program.
        keeps_dwell: Whether the plan, started as soon as possible, keeps the dwell; then it is the best, if
            its effective energy is the bound.
        bound_effective_mj: Effective energy that no plan within the limits is below; infinite where there
            is none.
    """

    plan: FrequencyPlan | None
    keeps_dwell: bool
    bound_effective_mj: float


def exact_switched_plan(
    schedule: Schedule,
    profile: Profile,
    limits: SwitchingLimits,
    deadline_ms: float,
    time_limit_s: float = 60.0,
) -> ExactSwitchedPlan:
    """Return the plan of least effective energy under switching limits.

    Args:
        schedule: Of at most `MOST_INSTANCES` instances; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        limits: To be kept; where iterations are back to back, all of them start alike.
        deadline_ms: For the end of the iteration.
        time_limit_s: Wall-clock seconds, after which the bound may be below the best plan.

    Raises:
        EnergyError: There are too many instances, nothing was found or disproved in the time, or the solver
            failed.
    """
    model = SwitchingModel(schedule, profile, limits, deadline_ms * (1 + TIME_TOLERANCE))
    size = model.graph.size
    if size > MOST_INSTANCES:
        raise EnergyError(
            f"schedule: has {size} block instances, an exact switched plan is for at most {MOST_INSTANCES}; "
            "use fewer micro-batches, or switched_plan"
        )
    program = _Program(model)
    answer = program.solve(time_limit_s)
    status = status_of(answer)
    if status is SolverStatus.INFEASIBLE:
        return ExactSwitchedPlan(None, False, math.inf)
    if not status.has_answer and answer.status != 1:
        raise SolverError(f"schedule: the exact solver failed ({answer.message}); use switched_plan")
    if not status.has_answer:
        raise EnergyError(
            f"time_limit_s: no plan was found in {time_limit_s:g} s; give more, or use switched_plan"
        )
    pick = answer.x[: program.num_picks].reshape(size, -1).argmax(axis=1)
    state = model.state(model.costs.clock_mhz[pick])
    done = model.simulation(state)
    (clocks,) = clocks_by_block(model.graph, state.clock[:, None])
    bound = proved(float(answer.mip_dual_bound) * program.unit_mj, state.effective_mj, program.unit_mj * size)
    return ExactSwitchedPlan(
        FrequencyPlan(clocks, done.time_ms, done.energy_mj, done.energy_mj - state.effective_mj + bound),
        not any(True for _ in model.too_short(state)),
        bound,
    )


class _Program:
    """Columns: pick of each instance and clock, change of each pair of neighbors, start, length of iteration.

    Times are in units of the deadline, energies of the largest.
    """

    def __init__(self, model: SwitchingModel) -> None:
        self.model = model
        self.size, self.clocks = model.graph.size, len(model.costs.clock_mhz)
        self.num_picks = self.size * self.clocks
        pairs = {pair for order in model.orders for pair in pairwise(order)}
        if model.limits.back_to_back:
            pairs |= {(order[-1], order[0]) for order in model.orders if len(order) > 1}
        self.change = {pair: self.num_picks + k for k, pair in enumerate(sorted(pairs))}
        self.start = self.num_picks + len(self.change)
        self.length = self.start + self.size
        self.unit_ms = model.latest_ms
        self.row = model.costs.row
        self.is_there = np.isfinite(model.costs.time_ms[self.row])
        self.time = np.where(self.is_there, model.costs.time_ms[self.row], 0.0) / self.unit_ms
        energy = np.where(self.is_there, model.costs.energy_mj[self.row], 0.0)
        self.unit_mj = float(np.abs(energy).max()) or 1.0
        self.energy = energy / self.unit_mj
        self.rows: list[dict[int, float]] = []
        self.limit: list[float] = []

    def solve(self, time_limit_s: float):  # type: ignore[no-untyped-def]  # scipy has no types
        """Return scipy's answer."""
        self._add_waits()
        self._add_changes()
        self._add_dwell()
        count = self.length + 1
        upper = np.full(count, 1.0 + _SLACK)
        upper[: self.num_picks] = self.is_there.ravel()
        upper[self.num_picks : self.start] = 1.0
        entries = [(i, j, v) for i, row in enumerate(self.rows) for j, v in row.items()]
        i, j, v = (np.array(part) for part in zip(*entries, strict=True))
        matrix = coo_array((v, (i.astype(int), j.astype(int))), shape=(len(self.rows), count)).tocsr()
        picks = np.arange(self.num_picks)
        one = coo_array((np.ones(self.num_picks), (picks // self.clocks, picks)), shape=(self.size, count))
        objective = np.zeros(count)
        objective[: self.num_picks] = self.energy.ravel()
        return milp(
            objective,
            integrality=(np.arange(count) < self.start).astype(int),
            bounds=Bounds(np.zeros(count), upper),
            constraints=[
                LinearConstraint(matrix, ub=np.array(self.limit)),
                LinearConstraint(one.tocsr(), np.ones(self.size), np.ones(self.size)),
            ],
            options={"time_limit": time_limit_s, "mip_rel_gap": _MILP_GAP},
        )

    def _add(self, row: dict[int, float], limit: float) -> None:
        self.rows.append(row)
        self.limit.append(limit)

    def _ends(self, i: int) -> dict[int, float]:
        """Return the end of an instance."""
        return {self.start + i: 1.0} | {
            i * self.clocks + k: float(self.time[i, k]) for k in range(self.clocks) if self.is_there[i, k]
        }

    def _add_waits(self) -> None:
        """Every block waits for its inputs, its device and its clock; the iteration for all ends."""
        latency = self.model.limits.latency_ms / self.unit_ms
        for before, after, delay_ms in self.model.graph.edges:
            delay = delay_ms / self.unit_ms
            row = self._ends(before) | {self.start + after: -1.0}
            if (before, after) in self.change and latency > delay:
                row[self.change[before, after]] = latency - delay
            self._add(row, -delay)
        for i in range(self.size):
            self._add(self._ends(i) | {self.length: -1.0}, 0.0)
        if self.model.limits.back_to_back and latency > 0:
            for order in filter(lambda order: len(order) > 1, self.model.orders):
                row = self._ends(order[-1]) | {self.length: -1.0, self.start + order[0]: -1.0}
                # Without a change this must ask for nothing: the first starts no later than the last ends.
                row[self.change[order[-1], order[0]]] = latency + 1.0
                self._add(row, 1.0)

    def _add_changes(self) -> None:
        """Neighbors at two clocks are a change."""
        for (before, after), change in self.change.items():
            for k in range(self.clocks):
                one, other = before * self.clocks + k, after * self.clocks + k
                self._add({other: 1.0, one: -1.0, change: -1.0}, 0.0)

    def _add_dwell(self) -> None:
        """From each change of a device to every later one it takes the dwell."""
        dwell = self.model.limits.dwell_ms / self.unit_ms
        if dwell == 0:
            return
        back = self.model.limits.back_to_back
        for order in self.model.orders:
            into = list(pairwise(order))
            if back and len(order) > 1:
                into = [(order[-1], order[0]), *into]
            much = dwell + 1.0
            for (a, i), (b, j) in combinations(into, 2):
                both = {self.change[a, i]: much, self.change[b, j]: much}
                self._add(both | {self.start + i: 1.0, self.start + j: -1.0}, 2 * much - dwell)
                if back:
                    gap = {self.start + j: 1.0, self.start + i: -1.0, self.length: -1.0}
                    self._add(both | gap, 2 * much - dwell)
            if back and len(order) > 1:
                for a, i in into:  # a single change in an iteration cannot be: the clock would not come back
                    others = {self.change[b, j]: -1.0 for b, j in into if (b, j) != (a, i)}
                    self._add({self.change[a, i]: 1.0} | others, 0.0)
