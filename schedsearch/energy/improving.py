"""Better plans for some deadlines, by ordering anew the modes of a few instances at a time, with proofs.

A step takes the deadline whose plan is furthest above its bound, and some instances that run at about the
same time; one program of CP-SAT finds their best modes while the others keep theirs. In a schedule that is
small enough these are all, and what is found is proved to be the best (Perseus, Sec. 4.1, Eq. 3 and 4;
NP-hard, so Perseus relaxes it in Sec. 4.2). The work that may be done is counted, so that the plans do not
hang on how busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placements import Profile
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, LowerBound, OnProgress, proved
from schedsearch.energy.generators import PlanPool
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.model.variables import Literal, Term
from schedsearch.schedule import Schedule
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
    """What the program says.

    Attributes:
        choice: The modes, those that are not free as before; shape ``(instances,)``.
        is_best: Whether no choice with the same modes of the others has less effective energy.
        bound_mj: Effective energy of all instances that no such choice is below.
    """

    choice: Ints
    is_best: bool
    bound_mj: float


def _longest_to_free(graph: InstanceGraph, time_ms: Floats, free: Ints) -> tuple[Floats, Floats]:
    """Return the longest paths through others from the begin, and from the end of each free instance.

    Returns:
        When each instance is ready as far as the others say, and the least time from the end of each free
        instance (a column) to the start of each instance, minus infinity without a path.
    """
    sources = len(free) + 1
    ready = np.full((graph.size, sources), -math.inf)
    ready[:, -1] = 0.0
    column = {i: k for k, i in enumerate(free.tolist())}
    tail, head, delay = graph.tail.tolist(), graph.head.tolist(), graph.delay_ms.tolist()
    at = 0
    for i in range(graph.size):
        while at < len(head) and head[at] == i:
            j, least = tail[at], delay[at]
            if j in column:
                ready[i, column[j]] = max(ready[i, column[j]], least)
            else:
                np.maximum(ready[i], ready[j] + (time_ms[j] + least), out=ready[i])
            at += 1
    return ready[:, -1], ready[:, :-1]


def improved(
    problem: ClockProblem, choice: Ints, free: Collection[int], deadline_ms: float, budget: SolverBudget
) -> Improved | None:
    """Return the best modes of some instances, as far as the budget goes; None without an answer.

    Only the instances whose modes are free are in the program. What the others do to them is a release, a
    due time, and the longest path from each free instance to the next through others. Times are rounded down
    to ticks: so the bound holds for the real times, and a choice is late by less than `TIME_TOLERANCE` as
    long as no path has more than `MAX_INSTANCES` instances.

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
    graph, table, tick_ms = problem.graph, problem.table, deadline_ms / _TICKS
    members = np.array(sorted(free))
    time_ms = table.times(choice[:, None])[:, 0]
    release_ms, delay_ms = _longest_to_free(graph, time_ms, members)
    from_end_ms, _ = _longest_to_free(graph.reversed, time_ms[::-1], graph.size - 1 - members)
    due_ms = deadline_ms * (1 + TIME_TOLERANCE / 2) - from_end_ms[::-1]

    def ticks(time: float) -> int:
        return math.floor(time / tick_ms + _ROUNDING)

    modes = {i: range(int(table.last[i]) + 1) for i in members.tolist()}
    time = {i: [ticks(table.time_ms[table.row[i], mode]) for mode in modes[i]] for i in modes}
    first, last = ({i: ticks(each[i]) for i in modes} for each in (release_ms, due_ms))
    delay = {
        (a, b): ticks(delay_ms[b, k])
        for k, a in enumerate(modes)
        for b in modes
        if delay_ms[b, k] > -math.inf
    }
    for (a, b), least in sorted(delay.items()):
        first[b] = max(first[b], first[a] + time[a][0] + least)
    for (a, b), least in sorted(delay.items(), reverse=True):
        last[a] = min(last[a], last[b] - time[b][0] - least)
    energy = {i: table.energy_mj[table.row[i], : len(modes[i])] for i in modes}
    unit_mj = max(float(each[0] - each[-1]) for each in energy.values()) / _UNITS or 1.0
    model = CpSatModel()
    picks: dict[int, list[tuple[int, Literal]]] = {}
    length: dict[int, Term] = {}
    start: dict[int, Term] = {}
    terms, costs, offset_mj = [], [], 0.0
    for i in modes:
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


@dataclass
class _Deadline:
    """A deadline, and what is known of the plans for it.

    Attributes:
        time_ms: The deadline.
        bound_mj: Effective energy that no plan for it is below.
        choice: Modes of its best plan; shape ``(instances,)``.
        energy_mj: Effective energy of that until the deadline.
        waiting_mj: Energy of waiting all that time at the least power.
        failures: Steps since its plan became better.
        work: Units of work of its next step.
        is_best: Whether no other plan for it has less effective energy.
    """

    time_ms: float
    bound_mj: float
    choice: Ints
    energy_mj: float
    waiting_mj: float
    failures: int = 0
    work: float = WORK
    is_best: bool = False

    @property
    def gap(self) -> float:
        """The share of the plan's energy by which it may be above the best plan."""
        above_mj = 0.0 if self.is_best else self.energy_mj - self.bound_mj
        all_mj = self.energy_mj + self.waiting_mj
        return above_mj / all_mj if all_mj > 0 else above_mj


@dataclass
class DeadlineImprovement:
    """The steps of some deadlines.

    Attributes:
        candidates: All plans that are known; better ones are added.
        bound: The relaxed problem's bound of all plans.
        deadline_ms: Ascending, each kept by some plan.
        is_interrupted: Whether Ctrl-C ended it.
    """

    candidates: PlanPool
    bound: LowerBound
    deadline_ms: Floats
    is_interrupted: bool = False
    _open: list[_Deadline] = field(init=False)

    def __post_init__(self) -> None:
        waiting_w = self.bound.waiting_w
        self._open = [
            _Deadline(ms, self.bound.at(ms) - waiting_w * ms, *self.candidates.best_for(ms), waiting_w * ms)
            for ms in self.deadline_ms.tolist()
        ]

    def run(self, work_limit: float, on_progress: OnProgress | None = None) -> None:
        """Take steps until so many units of work are done, or nothing is left to improve."""
        effort = Effort(limit=work_limit)
        random = np.random.default_rng(0)
        with INTERRUPTS.answered() as ending:
            while not effort.is_over:
                INTERRUPTS.raise_if_seen()
                deadline = max(self._open, key=lambda each: each.gap / (1 + each.failures))
                if deadline.gap <= CLOSE:
                    break
                self._step(deadline, random, effort)
                if on_progress is not None:
                    done = min(effort.spent / work_limit, 1.0)
                    on_progress("improving", round(100 * done), 100)
        self.is_interrupted = ending.interrupted

    def _step(self, deadline: _Deadline, random: np.random.Generator, effort: Effort) -> None:
        problem = self.candidates.problem
        size = problem.graph.size
        is_whole = size <= MAX_INSTANCES
        free = range(size)
        if not is_whole:  # those that start at about the time of a random one
            start = problem.graph.earliest_start(problem.table.times(deadline.choice[:, None]))[:, 0]
            distance = np.abs(start - start[random.integers(size)])
            free = np.argsort(distance, kind="stable")[:MAX_INSTANCES].tolist()
        try:
            budget = effort.budget(deadline.work, int(random.integers(2**31)))
        except OutOfTimeError:
            return
        found = improved(problem, deadline.choice, free, deadline.time_ms, budget)
        deadline.failures += 1
        if is_whole or found is None:
            deadline.work *= 2
        if found is None:
            return
        if (found.choice != deadline.choice).any():
            self._take("exact" if is_whole else "neighbourhoods", found.choice)
        if is_whole:  # what no plan for a later deadline is below, none for an earlier one is
            for each in self._open:
                if each.time_ms <= deadline.time_ms:
                    each.bound_mj = max(each.bound_mj, found.bound_mj)
            deadline.is_best = found.is_best

    def _take(self, made_by: str, choice: Ints) -> None:
        """Keep a plan, for all deadlines that it is better for."""
        done = self.candidates.add(made_by, choice[:, None])
        assert done is not None, "no step is taken by what is left out"
        end_ms, effective_mj, after_w = done
        for each in self._open:
            late_ms = end_ms - each.time_ms
            energy_mj = effective_mj + after_w * max(-late_ms, 0.0)
            if late_ms <= TIME_TOLERANCE * each.time_ms and energy_mj < each.energy_mj * (1 - CLOSE):
                each.choice, each.energy_mj, each.failures = choice, energy_mj, 0

    def bounded(self, plan: FrequencyPlan) -> FrequencyPlan:
        """Return a plan with the highest bound that is proved of its time."""
        known = [each.bound_mj for each in self._open if plan.time_ms <= each.time_ms * (1 + TIME_TOLERANCE)]
        waiting_mj = self.bound.waiting_w * plan.time_ms
        bound_mj = max([plan.lower_bound_mj, *(each + waiting_mj for each in known)])
        return replace(plan, lower_bound_mj=proved(bound_mj, plan.energy_mj, waiting_mj))


def exact_plan(
    schedule: Schedule, profile: Profile, deadline_ms: float, work_limit: float = 60.0
) -> FrequencyPlan:
    """Return the plan of least effective energy that keeps a deadline, from nothing but the fastest modes.

    Nothing is shared with rounding but the graph and the modes, so each can check the other.

    Args:
        schedule: Any valid schedule of at most `MAX_INSTANCES` instances; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        deadline_ms: Time by which the iteration must end.
        work_limit: Units of work, of about a second; after it the best plan found is returned.

    Returns:
        The plan. Its bound is of all plans that keep the deadline, plus the waiting until the plan's end:
        the plan is proved to be the best where that is its own energy, but for rounding errors.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: The blocking power depends on the clock, there are too many instances, the deadline
            cannot be kept, there is no work to do, or the schedule is not valid.
    """
    if not work_limit > 0:
        raise EnergyError(f"work_limit: {work_limit:g} is not above 0; give units of work, of about a second")
    problem = ClockProblem(schedule, profile)
    if not problem.waiting.is_even:
        raise EnergyError(
            "blocking_power_w: depends on the clock, an exact plan is for one number; "
            "give one, or use compute_frontier"
        )
    size = problem.graph.size
    if size > MAX_INSTANCES:
        raise EnergyError(
            f"schedule: has {size} block instances, an exact plan is for at most {MAX_INSTANCES}; "
            "use fewer micro-batches, or compute_frontier"
        )
    shortest_ms = problem.reachable(deadline_ms)
    fastest = np.zeros(size, dtype=np.int64)
    until_ms = max(deadline_ms, shortest_ms)
    found = improved(problem, fastest, range(size), until_ms, Effort().budget(work_limit, 0))
    choice = fastest if found is None else found.choice
    (clocks,) = problem.clocks(choice[:, None])
    plan = problem.plan(clocks, 0.0)
    effective_mj = float(problem.table.energy(choice[:, None])[0])
    min_mj = float(problem.table.energy(problem.table.last[:, None])[0])
    bound_mj = proved(min_mj if found is None else found.bound_mj, effective_mj, abs(plan.energy_mj))
    return replace(plan, lower_bound_mj=plan.energy_mj - (effective_mj - bound_mj), made_by="exact")
