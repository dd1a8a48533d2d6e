"""Better plans for some deadlines, by ordering anew the modes of a few instances at a time, with proofs.

A step takes the deadline whose plan is furthest above its bound, and some instances that run at about the
same time; one program of CP-SAT finds their best modes while the others keep theirs. In a schedule that is
small enough these are all, and the result is proved to be the best (Perseus, Sec. 4.1, Eq. 3 and 4;
NP-hard, so Perseus relaxes it in Sec. 4.2). The work that may be done is counted, so that the plans do not
hang on how busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, LowerBound, OnProgress, proved
from schedsearch.energy.generators import PlanPool
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.model.variables import Literal, Term
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS

if TYPE_CHECKING:  # as it loads OR-Tools, which is slow
    from schedsearch.solver.budget import SolverBudget

WORK = 0.25
"""Units of work of a step at first."""

CLOSE = 1e-9
"""Share of the energy above the bound that is not worth a step."""

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
    """The best modes that CP-SAT found, with their bound.

    Attributes:
        choice: Mode of each instance; fixed instances keep theirs; shape ``(instances,)``.
        is_best: Whether no choice with the same modes of the fixed instances has less effective energy.
        bound_mj: Lower bound of the effective energy of all instances over these choices.
    """

    choice: Ints
    is_best: bool
    bound_mj: float


def improved(
    problem: ClockProblem, choice: Ints, free: Collection[int], deadline_ms: float, budget: SolverBudget
) -> Improved | None:
    """Return the best modes of some instances, as far as the budget goes; None without an answer.

    The choice keeps the deadline. Only the instances whose modes are free are in the program. What the others
    do to them is a release, a due time, and the longest path from each free instance to the next through
    others. Times are rounded down to ticks: so the bound holds for the real times, and a choice is late by
    less than `TIME_TOLERANCE` as long as no path has more than `MAX_INSTANCES` instances.
    """
    from schedsearch.model.cpsat_model import CpSatModel
    from schedsearch.solver.cpsat import is_optimal, solve, within
    from schedsearch.solver.query import Verdict

    budget.spend(_WORK_OF_INSTANCE * problem.graph.size)
    graph, table, tick_ms = problem.graph, problem.table, deadline_ms / _TICKS
    members = np.array(sorted(free))
    time_ms = table.times(choice[:, None])[:, 0]
    # the longest paths through others: from the end of each that is free (a column), and from the begin
    far_ms, columns = 1024 * deadline_ms, np.arange(len(members))
    times_ms = np.repeat(time_ms[:, None], len(members) + 1, axis=1)
    times_ms[members] = -4 * far_ms  # no path leads through these
    times_ms[members, columns] = far_ms
    start_ms = graph.earliest_start(times_ms)
    delay_ms = start_ms[members, :-1] - start_ms[members, columns] - far_ms
    until_ms = np.array([deadline_ms * (1 + TIME_TOLERANCE / 2)])
    release_ms, due_ms = start_ms[:, -1], graph.latest_end(times_ms[:, -1:], until_ms)[:, 0]

    def ticks(time: float) -> int:
        return math.floor(time / tick_ms + _ROUNDING)

    rows = {i: int(table.row[i]) for i in members.tolist()}
    time = {i: [ticks(ms) for ms in table.time_ms[rows[i], : table.last[i] + 1]] for i in rows}
    first, last = ({i: ticks(limit_ms[i]) for i in rows} for limit_ms in (release_ms, due_ms))
    pairs = [(a, b, delay_ms[i, k]) for k, a in enumerate(rows) for i, b in enumerate(rows) if a != b]
    delay = {(a, b): ticks(least) for a, b, least in pairs if least > -far_ms / 2}
    for (a, b), least in sorted(delay.items()):
        first[b] = max(first[b], first[a] + time[a][0] + least)
    for (a, b), least in sorted(delay.items(), reverse=True):
        last[a] = min(last[a], last[b] - time[b][0] - least)
    energy = {i: table.energy_mj[rows[i], : len(time[i])] for i in rows}
    unit_mj = max(float(mj[0] - mj[-1]) for mj in energy.values()) / _UNITS or 1.0
    model = CpSatModel()
    picks: dict[int, list[Literal]] = {}
    length: dict[int, Term] = {}
    start: dict[int, Term] = {}
    costs: list[int] = []
    offset_mj = 0.0
    for i in rows:  # faster modes fit wherever slower ones do
        fits = sum(first[i] + duration <= last[i] for duration in time[i])
        if int(choice[i]) >= fits:
            return None  # only rounding errors of a deadline that is hardly kept
        start[i] = model.new_int_var(first[i], last[i] - time[i][0], f"start {i}")
        picks[i] = [model.new_bool_var(f"mode {mode} of {i}") for mode in range(fits)]
        model.add_exactly_one(picks[i])
        longer = [time[i][mode] - time[i][0] for mode in range(1, fits)]
        length[i] = time[i][0] + model.weighted_sum(picks[i][1:], longer)
        model.add(start[i] + length[i] <= last[i])
        offset_mj += float(energy[i][fits - 1])
        costs += [math.floor(float(mj - energy[i][fits - 1]) / unit_mj) for mj in energy[i][:fits]]
        for mode, literal in enumerate(picks[i]):
            model.add_hint(literal, mode == choice[i])
    for (a, b), least in delay.items():
        model.add(start[a] + length[a] + least <= start[b])
    model.minimize(model.weighted_sum([literal for pick in picks.values() for literal in pick], costs))
    solver = within(replace(budget, work=budget.work * _WORK))
    solver.parameters.linearization_level = 2  # half the time of the default
    if solve(solver, model, budget.spend, work_of_time=1 / _WORK) is not Verdict.YES:
        return None
    modes = choice.copy()
    for i, literals in picks.items():
        modes[i] = next(mode for mode, literal in enumerate(literals) if solver.boolean_value(literal))
    kept = np.setdiff1d(np.arange(len(choice)), members)
    others_mj = float(table.energy_mj[table.row[kept], choice[kept]].sum())
    bound_mj = others_mj + offset_mj + unit_mj * solver.best_objective_bound
    return Improved(modes, is_optimal(solver), bound_mj)


@dataclass
class Improvement:
    """The steps for some deadlines.

    Attributes:
        pool: All plans that are known; better ones are added.
        bound: The relaxed problem's bound of all plans.
        deadline_ms: Ascending, each kept by some plan.
        bound_mj: Lower bound of the effective energy of plans for each deadline.
        is_interrupted: Whether Ctrl-C ended the improvement.
    """

    pool: PlanPool
    bound: LowerBound
    deadline_ms: Floats
    bound_mj: Floats = field(init=False)
    is_interrupted: bool = False

    def __post_init__(self) -> None:
        waiting_mj = self.bound.waiting_w * self.deadline_ms
        self.bound_mj = np.array([self.bound.at(ms) for ms in self.deadline_ms.tolist()]) - waiting_mj

    def run(self, work_limit: float, on_progress: OnProgress | None = None) -> None:
        """Improve plans until `work_limit` units of work are done, or no gap is left to close."""
        effort, random, problem = Effort(limit=work_limit), np.random.default_rng(0), self.pool.problem
        size = problem.graph.size
        is_whole = size <= MAX_INSTANCES
        waiting_mj = self.bound.waiting_w * self.deadline_ms
        failures, work = np.zeros(len(waiting_mj)), np.full(len(waiting_mj), WORK)
        is_best = np.zeros(len(waiting_mj), dtype=bool)
        best = [self.pool.best_for(ms) for ms in self.deadline_ms.tolist()]
        with INTERRUPTS.answered() as ending:
            while not effort.is_over:
                INTERRUPTS.raise_if_seen()
                energy_mj = np.array([energy for _, energy in best])
                all_mj = np.maximum(energy_mj + waiting_mj, 0.0)
                above_mj = np.where(is_best, 0.0, energy_mj - self.bound_mj)
                gap = above_mj / np.where(all_mj > 0, all_mj, 1.0)
                i = int((gap / (1 + failures)).argmax())
                if gap[i] <= CLOSE:
                    break
                choice, ms = best[i][0], float(self.deadline_ms[i])
                free = range(size)
                if not is_whole:  # those that start at about the time of a random one
                    start = problem.graph.earliest_start(problem.table.times(choice[:, None]))[:, 0]
                    distance = np.abs(start - start[random.integers(size)])
                    free = np.argsort(distance, kind="stable")[:MAX_INSTANCES].tolist()
                try:
                    budget = effort.budget(float(work[i]), int(random.integers(2**31)))
                except OutOfTimeError:
                    break
                improvement = improved(problem, choice, free, ms, budget)
                failures[i] += 1
                if is_whole or improvement is None:
                    work[i] *= 2
                if improvement is not None and (improvement.choice != choice).any():
                    self.pool.add(improvement.choice[:, None])
                    again = [self.pool.best_for(ms) for ms in self.deadline_ms.tolist()]
                    is_better = np.array([energy for _, energy in again]) < energy_mj * (1 - CLOSE)
                    failures[is_better] = 0
                    best = [
                        new if better else old
                        for new, old, better in zip(again, best, is_better, strict=True)
                    ]
                if improvement is not None and is_whole:
                    # what no plan for a later deadline is below, none for an earlier one is
                    self.bound_mj[: i + 1] = np.maximum(self.bound_mj[: i + 1], improvement.bound_mj)
                    is_best[i] = improvement.is_best
                if on_progress is not None:
                    on_progress("improving", round(100 * min(effort.spent / work_limit, 1.0)), 100)
        self.is_interrupted = ending.interrupted

    def bounded(self, plan: FrequencyPlan) -> FrequencyPlan:
        """Return a plan with the highest bound that is proved for its time."""
        is_known = plan.time_ms <= self.deadline_ms * (1 + TIME_TOLERANCE)
        waiting_mj = self.bound.waiting_w * plan.time_ms
        bound_mj = max([plan.lower_bound_mj, *(self.bound_mj[is_known] + waiting_mj).tolist()])
        return replace(plan, lower_bound_mj=proved(bound_mj, plan.energy_mj, waiting_mj))
