"""The best modes of some instances while the others keep theirs, as one program of CP-SAT.

Only the instances whose modes are free are in the program. What the others do to them is a release, a due
time, and the longest path from each free instance to the next through others. Where all are free this is the
whole choice of clocks for a deadline, and the answer is proved (Perseus, Sec. 4.1, Eq. 3 and 4; NP-hard, so
Perseus relaxes it in Sec. 4.2). Times are rounded down to ticks: so the bound holds for the real times, and a
choice is late by less than `TIME_TOLERANCE` as long as no path has more than `MAX_INSTANCES` instances.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.model.variables import Literal, Term

if TYPE_CHECKING:  # as it loads OR-Tools, which is slow
    from schedsearch.solver.budget import SolverBudget

MAX_INSTANCES = 32
"""Free instances of one program, at most."""

_TICKS = 2.0**37
"""Ticks of the deadline: 32 of them, and one for each path between, are less than half `TIME_TOLERANCE`."""

_UNITS = 2.0**34
"""Units of the largest difference of two modes' energies."""

_WORK = 0.4
"""CP-SAT's deterministic time for a unit of work, of about a second, in these programs."""

_WORK_OF_INSTANCE = 5e-6
"""Units of work for each instance of a schedule, to find the times that others leave to the free ones."""

_ROUNDING = 1e-3
"""Ticks that are a rounding error of floating-point numbers."""


class Improved(NamedTuple):
    """What the program says.

    Attributes:
        choice: The modes, those that are not free as before; shape ``(instances,)``.
        is_best: Whether no choice with the same modes of the others has less effective energy.
        bound_mj: Effective energy of all instances that no such choice is below.
    """

    choice: Ints
    is_best: bool
    bound_mj: float


@dataclass(frozen=True)
class _Window:
    """Free instances, and what the others make of their times; in ms.

    Attributes:
        release_ms: Earliest start of each free instance.
        due_ms: Latest end.
        delay_ms: Least time from the end of one free instance to the start of another.
    """

    release_ms: dict[int, float]
    due_ms: dict[int, float]
    delay_ms: dict[tuple[int, int], float]

    @classmethod
    def of(cls, problem: ClockProblem, choice: Ints, free: Collection[int], deadline_ms: float) -> _Window:
        """Return the window of some instances; see `improved`."""
        before, after = problem.graph.neighbors
        time = problem.table.times(choice[:, None])[:, 0].tolist()
        is_free = np.zeros(len(time), dtype=np.bool_)
        is_free[list(free)] = True
        inside: list[bool] = is_free.tolist()
        release: dict[int, float] = {}
        end = [0.0] * len(time)
        for i, own in enumerate(time):
            ready = max((end[a] + delay for a, delay in before[i] if not inside[a]), default=0.0)
            end[i] = ready + own
            if inside[i]:
                release[i] = max(ready, 0.0)
                end[i] = -math.inf
        due: dict[int, float] = {}
        start = [0.0] * len(time)
        for i in range(len(time) - 1, -1, -1):
            latest = min((start[b] - delay for b, delay in after[i] if not inside[b]), default=deadline_ms)
            start[i] = min(latest, deadline_ms) - time[i]
            if inside[i]:
                due[i] = min(latest, deadline_ms)
        delays: dict[tuple[int, int], float] = {}
        last = max(free)
        for i in release:
            longest = dict(after[i])
            for other in range(i + 1, last + 1):
                if other not in longest:
                    continue
                if inside[other]:
                    delays[i, other] = longest[other]
                    continue
                for b, delay in after[other]:
                    longest[b] = max(longest.get(b, -math.inf), longest[other] + time[other] + delay)
        return cls(release, due, delays)


def improved(
    problem: ClockProblem, choice: Ints, free: Collection[int], deadline_ms: float, budget: SolverBudget
) -> Improved | None:
    """Return the best modes of some instances, as far as the budget goes; None without an answer.

    Args:
        problem: Problem of the choice.
        choice: Modes with which the deadline is kept; shape ``(instances,)``.
        free: Instances whose modes may change, at most `MAX_INSTANCES`.
        deadline_ms: Deadline to be kept.
        budget: What the solver may spend.

    Raises:
        KeyboardInterrupt: The solver was interrupted from the keyboard.
    """
    from schedsearch.model.cpsat_model import CpSatModel
    from schedsearch.solver.cpsat import is_optimal, solve, within
    from schedsearch.solver.query import Answer

    budget.spend(_WORK_OF_INSTANCE * problem.graph.size)
    window = _Window.of(problem, choice, free, deadline_ms)
    table, tick_ms = problem.table, deadline_ms / _TICKS
    until_ms = deadline_ms * (1 + TIME_TOLERANCE / 2)

    def ticks(time_ms: float) -> int:
        return math.floor(time_ms / tick_ms + _ROUNDING)

    members = sorted(window.release_ms)
    row = {i: int(table.row[i]) for i in members}
    modes = {i: range(int(table.last[i]) + 1) for i in members}
    time = {i: [ticks(table.time_ms[row[i], mode]) for mode in modes[i]] for i in members}
    delay = {pair: ticks(delay_ms) for pair, delay_ms in window.delay_ms.items()}
    first = {i: ticks(window.release_ms[i]) for i in members}
    last = {i: ticks(window.due_ms[i] + until_ms - deadline_ms) for i in members}
    for (a, b), least in sorted(delay.items()):
        first[b] = max(first[b], first[a] + time[a][0] + least)
    for (a, b), least in sorted(delay.items(), reverse=True):
        last[a] = min(last[a], last[b] - time[b][0] - least)
    energy = {i: table.energy_mj[row[i], : len(modes[i])] for i in members}
    unit_mj = max(float(each[0] - each[-1]) for each in energy.values()) / _UNITS or 1.0
    model = CpSatModel()
    picks: dict[int, list[tuple[int, Literal]]] = {}
    length: dict[int, Term] = {}
    start: dict[int, Term] = {}
    terms, costs, offset_mj = [], [], 0.0
    for i in members:
        fits = [mode for mode in modes[i] if first[i] + time[i][mode] <= last[i]]
        if int(choice[i]) not in fits:
            return None  # only rounding errors of a deadline that is hardly kept
        start[i] = model.new_int_var(first[i], last[i] - time[i][0], f"start {i}")
        offset_mj += float(energy[i][fits[-1]])
        literals = [model.new_bool_var(f"mode {mode} of {i}") for mode in fits]
        model.add_exactly_one(literals)
        picks[i] = list(zip(fits, literals, strict=True))
        longer = [time[i][mode] - time[i][fits[0]] for mode in fits]
        length[i] = time[i][fits[0]] + model.weighted_sum(literals[1:], longer[1:])
        model.add(start[i] + length[i] <= last[i])
        for mode, literal in picks[i]:
            terms.append(literal)
            costs.append(math.floor(float(energy[i][mode] - energy[i][fits[-1]]) / unit_mj))
            model.add_hint(literal, mode == choice[i])
    for (a, b), least in delay.items():
        model.add(start[a] + length[a] + least <= start[b])
    model.minimize(model.weighted_sum(terms, costs))
    solver = within(replace(budget, work=budget.work * _WORK))
    solver.parameters.linearization_level = 2  # half the time of the default
    if solve(solver, model, budget.spend, work_of_time=1 / _WORK) is not Answer.YES:
        return None
    found = choice.copy()
    for i, pairs in picks.items():
        found[i] = next(mode for mode, literal in pairs if solver.boolean_value(literal))
    kept = np.setdiff1d(np.arange(len(choice)), members)
    others_mj = float(table.energy_mj[table.row[kept], choice[kept]].sum())
    bound_mj = others_mj + offset_mj + unit_mj * solver.best_objective_bound
    return Improved(found, is_optimal(solver), bound_mj)
