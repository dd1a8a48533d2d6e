"""The shortest iteration under a limit on the average power of the job.

The average is over the iteration, waiting included (the energy of Perseus, Sec. 3.1 and 4.1, Eq. 3, over
its time). Of a plan whose blocks take the effective energy E, above the blocking power P of N devices, an
iteration must take at least ``E / (limit - N P)``, because waiting at the end lowers the average: so every
plan can keep a limit above the blocking power, and the question is which one is then the shortest.

No plan is shorter than the time at which the relaxed frontier meets the limit. Plans are made for deadlines
of about that time, and those of the frontier are tried too. Where the blocking power depends on the clock, a
plan whose last clocks wait at more than the limit cannot be saved by waiting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from placements import Profile
from schedsearch.energy.frontier import FrequencyPlan, Frontier, proved
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.planning import compute_frontier
from schedsearch.energy.problem import ClockProblem
from schedsearch.schedule import Schedule

STRETCHES = (1.0, 1.0005, 1.001, 1.002, 1.004)
"""Deadlines to make plans for, over the least relaxed time: rounding costs energy, more time saves it."""


@dataclass(frozen=True, eq=False)
class CappedPlan:
    """The shortest plan that was found under a power cap, with a bound of its time.

    Attributes:
        plan: Clocks, and time and energy of the iteration with the wait at its end.
        power_cap_w: Limit on the average power of all devices together.
        running_ms: End of the last block; the devices wait from then on.
        min_ms: Lower bound of the iteration's length under the cap.
    """

    plan: FrequencyPlan
    power_cap_w: float
    running_ms: float
    min_ms: float

    @property
    def gap(self) -> float:
        """Return the gap of the plan's time above the lower bound, as a share of the bound."""
        return self.plan.time_ms / self.min_ms - 1


def capped_plan(schedule: Schedule, profile: Profile, frontier: Frontier, power_cap_w: float) -> CappedPlan:
    """Return the plan of shortest iteration found whose average power is at most `power_cap_w`.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: The cap leaves nothing above the blocking power, or no plan was found that keeps it.
    """
    problem = ClockProblem(schedule, profile)
    if not problem.waiting_w < power_cap_w < math.inf:
        raise EnergyError(
            f"power_cap_w: {power_cap_w:g} W is not above the {problem.waiting_w:g} W of waiting; "
            "give more, or fewer devices"
        )
    min_ms = problem.bound.min_time_ms(power_cap_w)
    made = compute_frontier(schedule, profile, 1, [min_ms * stretch for stretch in STRETCHES])
    plans = [_with_wait(plan, power_cap_w, problem.waiting_w, min_ms) for plan in made.plans + frontier.plans]
    kept = [capped for capped in plans if capped is not None]
    if not kept:
        raise EnergyError(
            "power_cap_w: is kept by no plan that was found, since devices wait at more after their last "
            "blocks; give more"
        )
    return min(kept, key=lambda capped: (capped.plan.time_ms, capped.plan.energy_mj))


def _with_wait(plan: FrequencyPlan, power_cap_w: float, least_w: float, min_ms: float) -> CappedPlan | None:
    """Return a plan with the shortest wait at its end that keeps a cap; None if none does.

    Devices wait at `least_w` together, or at the power that the plan has after its end.
    """
    after_w, wait_ms = least_w if plan.waiting_w is None else plan.waiting_w, 0.0
    if plan.power_w > power_cap_w:
        if after_w >= power_cap_w:
            return None
        wait_ms = (plan.energy_mj - power_cap_w * plan.time_ms) / (power_cap_w - after_w)
    time_ms, energy_mj = plan.time_ms + wait_ms, plan.energy_mj + after_w * wait_ms
    capped = replace(plan, time_ms=time_ms, energy_mj=energy_mj)
    return CappedPlan(capped, power_cap_w, plan.time_ms, proved(min_ms, time_ms))
