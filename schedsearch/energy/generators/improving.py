"""Better plans for some deadlines, by ordering anew the modes of a few instances at a time, with proofs.

A step takes the deadline whose plan is furthest above its bound, and some instances that run at about the
same time; `neighbourhood` finds their best modes. In a schedule that is small enough these are all, and what
is found is proved to be the best. The work that may be done is counted, so that the plans do not hang on how
busy the machine is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from placements import Profile
from schedsearch.energy.bound import LowerBound, proved
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, OnProgress
from schedsearch.energy.generators.candidates import PlanPool
from schedsearch.energy.generators.neighbourhood import MAX_INSTANCES, improved
from schedsearch.energy.graph import EnergyError, Floats, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS

WORK = 0.25
"""Units of work of a step at first."""

CLOSE = 1e-9
"""Share of the energy above the bound that is not worth a step."""


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
        """Look at all deadlines."""
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

    def plans(self, found: tuple[FrequencyPlan, ...]) -> tuple[FrequencyPlan, ...]:
        """Return plans with the highest bound that is proved of each one's time."""
        return tuple(self._bounded(plan) for plan in found)

    def _step(self, deadline: _Deadline, random: np.random.Generator, effort: Effort) -> None:
        problem = self.candidates.problem
        is_whole = problem.graph.size <= MAX_INSTANCES
        free = range(problem.graph.size) if is_whole else _neighbours(problem, deadline.choice, random)
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
        self.candidates.add(made_by, choice[:, None])
        group = self.candidates.groups[-1]
        for each in self._open:
            late_ms = float(group.time_ms[0]) - each.time_ms
            energy_mj = float(group.energy_mj[0]) + float(group.after_w[0]) * max(-late_ms, 0.0)
            if late_ms <= TIME_TOLERANCE * each.time_ms and energy_mj < each.energy_mj * (1 - CLOSE):
                each.choice, each.energy_mj, each.failures = choice, energy_mj, 0

    def _bounded(self, plan: FrequencyPlan) -> FrequencyPlan:
        known = [each.bound_mj for each in self._open if plan.time_ms <= each.time_ms * (1 + TIME_TOLERANCE)]
        waiting_mj = self.bound.waiting_w * plan.time_ms
        bound_mj = max([plan.lower_bound_mj, *(each + waiting_mj for each in known)])
        return replace(plan, lower_bound_mj=proved(bound_mj, plan.energy_mj, waiting_mj))


def _neighbours(problem: ClockProblem, choice: Ints, random: np.random.Generator) -> list[int]:
    """Return instances that start at about the time of a random one."""
    start = problem.graph.earliest_start(problem.table.times(choice[:, None]))[:, 0]
    distance = np.abs(start - start[random.integers(len(start))])
    nearest: list[int] = np.argsort(distance, kind="stable")[:MAX_INSTANCES].tolist()
    return nearest


class ExactStatus(StrEnum):
    """What is known of an exact plan."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"


@dataclass(frozen=True)
class ExactPlan:
    """A plan, and whether none is better.

    Attributes:
        plan: Plan of least effective energy of those found; its `FrequencyPlan.lower_bound_mj` is the proved
            bound, for any plan that keeps the deadline, plus the waiting until the plan's end.
        status: OPTIMAL if no plan that keeps the deadline has less effective energy.
        bound_effective_mj: Effective energy that no plan that keeps the deadline is below.
    """

    plan: FrequencyPlan
    status: ExactStatus
    bound_effective_mj: float


def exact_plan(
    schedule: Schedule, profile: Profile, deadline_ms: float, work_limit: float = 60.0
) -> ExactPlan:
    """Return the plan of least effective energy that keeps a deadline, from nothing but the fastest modes.

    Nothing is shared with rounding but the graph and the modes, so each can check the other.

    Args:
        schedule: Any valid schedule of at most `MAX_INSTANCES` instances; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        deadline_ms: Time by which the iteration must end.
        work_limit: Units of work, of about a second; after it the best plan found is returned, as FEASIBLE.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: The blocking power depends on the clock, there are too many instances, the deadline
            cannot be kept, there is no work to do, or the schedule is not valid.
    """
    if not work_limit > 0:
        raise EnergyError(f"work_limit: {work_limit:g} is not above 0; give units of work, of about a second")
    problem = ClockProblem(schedule, profile)
    if problem.waiting is not None:
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
    shortest_ms, _ = problem.span_ms
    if not shortest_ms * (1 - TIME_TOLERANCE) <= deadline_ms < np.inf:
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.12g} cannot be kept, the shortest iteration takes "
            f"{shortest_ms:.6g} ms; give at least that"
        )
    fastest = np.zeros(size, dtype=np.int64)
    until_ms = max(deadline_ms, shortest_ms)
    found = improved(problem, fastest, range(size), until_ms, Effort().budget(work_limit, 0))
    choice, is_best = (fastest, False) if found is None else (found.choice, found.is_best)
    (clocks,) = problem.clocks(choice[:, None])
    plan = problem.plan(clocks, 0.0)
    effective_mj = float(problem.table.energy(choice[:, None])[0])
    min_mj = float(problem.table.energy(problem.table.last[:, None])[0])
    bound_mj = proved(min_mj if found is None else found.bound_mj, effective_mj, abs(plan.energy_mj))
    plan = replace(plan, lower_bound_mj=plan.energy_mj - (effective_mj - bound_mj), made_by="exact")
    return ExactPlan(plan, ExactStatus.OPTIMAL if is_best else ExactStatus.FEASIBLE, bound_mj)
