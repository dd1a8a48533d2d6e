"""Plans that keep a deadline with a given confidence although block times, and changes of clock, vary.

All plans are simulated with the same random factors, so comparisons are fair and answers can be repeated. A
block that takes 1 % longer uses 1 % more energy: its power is that of its clock. A device waits at the
blocking power while its clock changes. Not known here are changes between iterations, from the last clock to
the first, and what slows down all blocks of an iteration together, such as heat.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from placements import Profile
from schedsearch.energy.frontier import TIME_TOLERANCE, Frontier
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.energy.limits.plan import LimitedPlan
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.simulation import at_clocks
from schedsearch.schedule import Schedule
from schedsearch.simulation.conditions import Conditions
from schedsearch.simulation.drawn_times import drawn_times

NEIGHBORS = 3
"""Plans tried beyond the end of the bisection, as a slightly slower one may keep a deadline more often."""


@dataclass(frozen=True)
class Spread:
    """Variation of block times and of clock changes; by default none, and changes take no time.

    Attributes:
        time_spread: Standard deviation of each block's time, as a share of its profiled time, the mean. Each
            block of each micro-batch varies on its own, lognormally, as with `Conditions.jitter`.
        latency_ms: Shortest and longest time that a change of clock takes; any between is as likely.

    Raises:
        EnergyError: One is not a share, or not two times.
    """

    time_spread: float = 0.0
    latency_ms: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if not 0 <= self.time_spread < math.inf:
            raise EnergyError(f"time_spread: {self.time_spread:g} is not a share; give 0 or more, as 0.02")
        if len(self.latency_ms) != 2 or not 0 <= self.latency_ms[0] <= self.latency_ms[1] < math.inf:
            raise EnergyError(f"latency_ms: {self.latency_ms} is not two ascending times; give 0 ms or more")


@dataclass(frozen=True, eq=False)
class PlanIterations:
    """Simulated iterations of one plan.

    Attributes:
        time_ms: Length of each, in the order in which they were drawn; shape ``(samples,)``.
        energy_mj: Energy of all devices until each iteration's own end; likewise.
        waiting_w: Power of all devices after that.
    """

    time_ms: Floats
    energy_mj: Floats
    waiting_w: float

    def share_within(self, deadline_ms: float) -> float:
        """Return the share of the iterations that end by a deadline, from 0 to 1."""
        return float((self.time_ms <= deadline_ms * (1 + TIME_TOLERANCE)).mean())

    def quantile_ms(self, share: float) -> float:
        """Return the least deadline that at least a share of the iterations, at most 1, ends by."""
        count = len(self.time_ms)
        return float(np.sort(self.time_ms)[np.searchsorted(np.arange(1, count + 1) / count, share)])

    def mean_energy_mj(self, deadline_ms: float = 0.0) -> float:
        """Return the mean energy in mJ until a deadline, or an iteration's end if later (Perseus, Eq. 3)."""
        waiting_ms = np.maximum(deadline_ms - self.time_ms, 0.0)
        return float((self.energy_mj + self.waiting_w * waiting_ms).mean())


def robust_plan(
    schedule: Schedule,
    profile: Profile,
    frontier: Frontier,
    deadline_ms: float,
    spread: Spread,
    confidence: float,
    samples: int = 1000,
    seed: int = 0,
) -> LimitedPlan[float, PlanIterations]:
    """Return the frontier's plan of least mean energy that keeps a deadline with a given confidence.

    The slower a plan, the fewer of its iterations keep the deadline. Bisection finds the slowest that keeps
    it in the share `confidence` of the samples; the next `NEIGHBORS` slower ones do not. Of this plan and
    those of least energy on profiled times, the one of least mean energy until the deadline wins. A share has
    a standard error of ``sqrt(c (1 - c) / samples)`` at a confidence c; allow for that in the confidence.

    Returns:
        A plan of the frontier, whose time and energy are those of profiled times, with its simulated
        iterations; beside the one for the deadline on profiled times, with the same random factors.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: The deadline is before the end of the shortest plan, or kept too seldom by every plan,
            or the confidence is out of its range.
    """
    if not 0 < confidence < 1:
        raise EnergyError(f"confidence: {confidence:g} is not between 0 and 1; give a share, as 0.95")
    nominal, plans = frontier.at(deadline_ms), frontier.plans
    simulated = Samples(ClockProblem(schedule, profile), spread, samples, seed)
    outcome = cache(lambda i: simulated.outcome(plans[i].clock_mhz))

    def is_kept(i: int) -> bool:
        return outcome(i).share_within(deadline_ms) >= confidence

    last = bisect_left(range(len(plans)), True, key=lambda i: not is_kept(i)) - 1
    while slower := [i for i in range(last + 1, len(plans))[:NEIGHBORS] if is_kept(i)]:
        last = slower[-1]
    if last < 0:
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.10g} is kept by {outcome(0).share_within(deadline_ms):.4g} of the "
            f"fastest plan's iterations; for {confidence:g} give {outcome(0).quantile_ms(confidence):.10g} ms"
        )
    by_energy = sorted(range(last + 1), key=lambda i: frontier.energy_next_to(plans[i], deadline_ms))
    kept = [i for i in (last, *by_energy[: NEIGHBORS + 1]) if is_kept(i)]
    best = min(kept, key=lambda i: outcome(i).mean_energy_mj(deadline_ms))
    at_nominal = simulated.outcome(nominal.clock_mhz)
    return LimitedPlan(plans[best], confidence, outcome(best), nominal, deadline_ms, free_outcome=at_nominal)


class Samples:
    """The random factors of all iterations, drawn once for all plans of a problem."""

    def __init__(self, problem: ClockProblem, spread: Spread, samples: int, seed: int) -> None:
        self.problem, placement = problem, problem.schedule.placement
        jitter = Conditions(jitter=spread.time_spread)
        ticks = drawn_times(placement, problem.schedule.num_micro_batches, jitter, samples, seed)
        blocks = [placement.by_name[name] for name, _ in problem.graph.instances]
        self.num_gpus = np.array([placement.gpus_of(block) for block in blocks])
        each = zip(problem.graph.instances, blocks, strict=True)
        self.factor = np.array([ticks[instance] / block.time for instance, block in each])
        random = np.random.default_rng((seed, 1))  # not the stream of the block times
        place = {edge[:2]: i for i, edge in enumerate(problem.graph.edges)}
        latency_ms = np.zeros((len(place), samples))
        for order in problem.orders if spread.latency_ms[1] > 0 else ():
            for pair in pairwise(order.tolist()):
                own = latency_ms[place[pair]]
                np.maximum(own, random.uniform(*spread.latency_ms, samples), out=own)
        self.latency_ms = latency_ms if spread.latency_ms[1] > 0 else None

    def outcome(self, clock_mhz: Clocks) -> PlanIterations:
        """Return the iterations of a plan."""
        problem, graph = self.problem, self.problem.graph
        each_ms, each_mj, clock = at_clocks(problem.schedule, problem.profile, clock_mhz, graph)
        time_ms, used_mj = each_ms * self.factor, each_mj * self.factor
        delay_ms = None
        if self.latency_ms is not None:  # after the change of clock on each of its devices
            changes = clock[graph.tail] != clock[graph.head]
            delay_ms = np.maximum(graph.delay_ms[:, None], np.where(changes, self.latency_ms, 0.0))
        start_ms = graph.earliest_start(time_ms, delay_ms)
        end_ms = (start_ms + time_ms).max(axis=0)
        energy_mj = self.num_gpus @ (used_mj - problem.profile.min_blocking_power_w * time_ms)
        above_mj, after_w = problem.waiting.of_all(start_ms, time_ms, clock)
        energy_mj += problem.waiting_w * end_ms + above_mj
        return PlanIterations(end_ms, energy_mj, problem.waiting_w + float(after_w[0]))
