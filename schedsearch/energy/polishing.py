"""The plans of a frontier made the best of all, with proof, where the schedule is small enough.

For each deadline the choice of clocks is solved as a mixed-integer program; a better plan takes the place of
the frontier's, and a bound that is proved raises `FrequencyPlan.lower_bound_mj`. How the frontier was made is
not known here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placements import Profile
from schedsearch.energy.bound import LowerBound, lower_bound, proved
from schedsearch.energy.candidates import clocks_by_block
from schedsearch.energy.clock_program import ClockProgram
from schedsearch.energy.cost import cost_curves, pareto
from schedsearch.energy.exact import require_few, require_one_power
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError, Ints
from schedsearch.energy.planning import OnProgress
from schedsearch.energy.simulation import simulate
from schedsearch.energy.waiting import waiting_w
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import INTERRUPTS

_FIRST_SLICE_S = 10.0
"""Most seconds for a deadline at first, doubled from round to round; Ctrl-C waits for one at most."""

_WORTHWHILE = 2.0
"""Times as long as before that a deadline must be given to be tried again."""

_LEAST_SLICE_S = 1e-3
"""Seconds below which a deadline is not tried."""

_BETTER = 1e-9
"""Share of the energy that a plan must save to take another's place; less may be rounding errors."""


@dataclass(frozen=True)
class Polished:
    """A frontier with better plans, and how far the proofs got.

    Attributes:
        frontier: Never worse than before at any deadline.
        num_deadlines: Deadlines to solve.
        num_proved: Those of them whose plan no other beats.
        interrupted: Whether Ctrl-C ended it early.
    """

    frontier: Frontier
    num_deadlines: int
    num_proved: int
    interrupted: bool


def polished(
    schedule: Schedule,
    profile: Profile,
    frontier: Frontier,
    deadline_ms: float | Sequence[float] = (),
    time_limit_s: float = 60.0,
    on_progress: OnProgress | None = None,
) -> Polished:
    """Return a frontier with the best plan for each deadline, as far as the time suffices.

    Deadlines are those that are given, and the times of the frontier's plans. Each gets an equal share of the
    time that is left; those that are not proved by then share what the others did not need. Ctrl-C keeps
    what is found, as soon as the deadline at hand has had its share: ten seconds at most, in each later round
    twice as much.

    Args:
        schedule: Valid, of at most `schedsearch.energy.exact.MOST_INSTANCES` instances.
        profile: Cost of each of its blocks at each clock.
        frontier: Of both.
        deadline_ms: One more deadline or several, none before the frontier's shortest plan.
        time_limit_s: Wall-clock seconds for all deadlines together.
        on_progress: Told how many deadlines are proved.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: The blocking power depends on the clock, there are too many instances, a deadline cannot
            be kept, or the time limit is no time above 0.
    """
    require_one_power(profile)
    program = ClockProgram.of(schedule, profile)
    require_few(program.graph.size)
    if not 0 < time_limit_s < math.inf:
        raise EnergyError(f"time_limit_s: {time_limit_s:g} is not a time above 0; give seconds")
    asked = np.atleast_1d(deadline_ms).tolist()
    for deadline in asked:
        frontier.at(deadline)
        program.require(deadline)
    times = sorted({*asked, *(plan.time_ms for plan in frontier.plans)}, reverse=True)
    bound = frontier.relaxed
    if bound is None:  # a frontier that was read from a file
        all_waiting_w = waiting_w(schedule.placement, profile)
        bound = lower_bound(program.graph, cost_curves(schedule.placement, profile), all_waiting_w)
    polishing = _Polishing(program, frontier, bound, [_Deadline(each) for each in times])
    with INTERRUPTS.answered() as ending:
        polishing.solve_all(time.monotonic() + time_limit_s, on_progress)
    plans = polishing.plans(schedule, profile)
    num_proved = sum(each.is_proved for each in polishing.deadlines)
    return Polished(replace(frontier, plans=plans), len(times), num_proved, ending.interrupted)


@dataclass
class _Deadline:
    """What is known of a deadline.

    Attributes:
        time_ms: The deadline.
        bound_mj: Effective energy that no plan for it is below.
        is_proved: Whether a plan that is known reaches the bound.
        tried_s: The most time it was given at once.
    """

    time_ms: float
    bound_mj: float = -math.inf
    is_proved: bool = False
    tried_s: float = 0.0


@dataclass
class _Polishing:
    """The state: what is known of each deadline, longest first, and the better plans that were found.

    Attributes:
        program: Of the schedule.
        frontier: As it was.
        bound: Of the relaxed problem.
        deadlines: Longest first.
        found: Time, effective energy and options of each better plan.
    """

    program: ClockProgram
    frontier: Frontier
    bound: LowerBound
    deadlines: list[_Deadline]
    found: list[tuple[float, float, Ints]] = field(default_factory=list)

    def solve_all(self, ends: float, on_progress: OnProgress | None) -> None:
        """Solve the deadlines in rounds, each with more time for a deadline than the one before."""
        slice_s = _FIRST_SLICE_S
        while self._round(ends, slice_s, on_progress):
            slice_s *= 2

    def _round(self, ends: float, slice_s: float, on_progress: OnProgress | None) -> bool:
        """Give each deadline that is not proved its share; tell whether any was tried."""
        tried = False
        still_open = [each for each in self.deadlines if not each.is_proved]
        for i, deadline in enumerate(still_open):
            INTERRUPTS.raise_if_seen()
            left_s = ends - time.monotonic()
            least_s = max(_LEAST_SLICE_S, _WORTHWHILE * deadline.tried_s)
            share_s = min(max(left_s / (len(still_open) - i), least_s), slice_s)
            if not deadline.is_proved and least_s <= share_s <= left_s:
                tried = True
                deadline.tried_s = share_s
                self._solve(deadline, share_s)
            if on_progress is not None:
                num_proved = sum(each.is_proved for each in self.deadlines)
                on_progress("polishing", num_proved, len(self.deadlines))
        return tried

    def _solve(self, deadline: _Deadline, time_limit_s: float) -> None:
        """Solve one deadline; what is proved for it holds for all down to its plan's time."""
        solution = self.program.solve(deadline.time_ms, time_limit_s)
        deadline.bound_mj = max(deadline.bound_mj, solution.bound_mj)
        if solution.choice is None:
            return
        before = self.frontier.at(deadline.time_ms)
        saved_mj = self._effective_mj(before) - solution.effective_mj
        if saved_mj > _BETTER * before.energy_mj:
            times = self.program.table.times(solution.choice[:, None])
            time_ms = float(self.program.graph.makespan(times)[0])
            self.found.append((time_ms, solution.effective_mj, solution.choice))
        else:
            time_ms = before.time_ms
        if solution.is_best:
            for each in self.deadlines:
                if time_ms <= each.time_ms * (1 + TIME_TOLERANCE) and each.time_ms <= deadline.time_ms:
                    each.is_proved = True
                    each.bound_mj = max(each.bound_mj, solution.bound_mj)

    def _effective_mj(self, plan: FrequencyPlan) -> float:
        return plan.energy_mj - self.bound.waiting_w * plan.time_ms

    def plans(self, schedule: Schedule, profile: Profile) -> tuple[FrequencyPlan, ...]:
        """Return the best of the frontier's plans and those that were found, with what is proved of each."""
        graph, table = self.program.graph, self.program.table
        plans = list(self.frontier.plans)
        options = [(plan.time_ms, self._effective_mj(plan), i) for i, plan in enumerate(plans)]
        for time_ms, effective_mj, choice in self.found:
            options.append((time_ms, effective_mj, len(plans)))
            (clock_mhz,) = clocks_by_block(graph, table.clock_mhz[table.row, choice][:, None])
            done = simulate(schedule, profile, clock_mhz, graph)
            plans.append(FrequencyPlan(clock_mhz, done.time_ms, done.energy_mj, self.bound.at(done.time_ms)))
        return tuple(self._bounded(plans[i]) for _, _, i in pareto(options))

    def _bounded(self, plan: FrequencyPlan) -> FrequencyPlan:
        """Return a plan with the highest bound that is proved for its time, which is not above its energy."""
        known = [
            each.bound_mj for each in self.deadlines if plan.time_ms <= each.time_ms * (1 + TIME_TOLERANCE)
        ]
        waiting_mj = self.bound.waiting_w * plan.time_ms
        scale_mj = waiting_mj + self.program.unit_mj * self.program.graph.size
        bound_mj = max(plan.lower_bound_mj, max(known) + waiting_mj)
        return replace(plan, lower_bound_mj=proved(bound_mj, plan.energy_mj, scale_mj))
