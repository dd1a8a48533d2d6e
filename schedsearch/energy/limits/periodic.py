"""Plans whose clocks repeat with the repetend, so that generated code can loop over the steady part.

Each block of each micro-batch of the repetend has one clock over the whole steady part; warmup and cooldown
have clocks of their own. The steady part could be solved alone, as a cyclic problem, and warmup and
cooldown fitted to it; but how long the period should be depends on how much time the two ends need. So we
solve all three at once, on a graph whose middle is folded (see `folding`): its size, and with it the time
to plan, does not depend on the number of micro-batches, and the period is one of the unknowns. That the
least energy grows by the same amount with every further round is true of the free plan as well, once there
are about four times as many micro-batches as stages, which is why so little is lost.

The clocks are found by fixing one after another in the linear program that is left, the steady part first;
in the end slack is given back. Times are profiled times: jitter, and what a change of clock takes, are not
known here; see `switched_periodic_plan`. Where the blocking power depends on the clock, clocks are chosen as
if devices waited at the least, and the plan is counted as they do.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placements import Profile
from schedsearch.energy.cost import CostCurve, cost_curves
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, LowerBound
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.energy.limits.folding import ClockGroup, Folded, PeriodicSchedule, fold
from schedsearch.energy.limits.plan import LimitedPlan
from schedsearch.energy.limits.switched import best_state
from schedsearch.energy.limits.switching import ClockChanges, SwitchingLimits, SwitchingProblem
from schedsearch.energy.programs import RelaxedTimes, SolverError, Timing, min_energy
from schedsearch.energy.simulation import simulate_at_clocks, simulated_plan, waiting_w
from schedsearch.schedule import Instance, micro_batches_of, require_plain

log = logging.getLogger(__name__)

WIDTH = 2
"""Partly rounded plans that are kept while clocks are fixed one after another."""

SETTLING_ROUNDS = 4
"""Whole rounds on each side that need not keep the rhythm yet; doubled where they are too few."""

MOST_UNFOLDED = 4000
"""Instances of the whole schedule up to which a plan's bound is a linear program of all of them."""

ROUNDING = 1e-11
"""Share of the deadline that is less than any real difference of times."""

SAME_TIME = 1e-9
"""Share by which a planned time may differ from a clock's and be the same."""


@dataclass(frozen=True, eq=False)
class PeriodicPlan:
    """A clock for each block of the warmup, of one period, and of the cooldown.

    Attributes:
        periodic: The schedule of any number of micro-batches.
        profile: Cost of each block at each clock.
        clock_mhz: The clock of each clock group.
        num_micro_batches: The plan was made for.
        deadline_ms: It keeps for so many.
        period_ms: With r rounds more, the iteration ends at most r periods after the deadline. None where
            the schedule is too short to be folded.
    """

    periodic: PeriodicSchedule
    profile: Profile
    clock_mhz: Mapping[ClockGroup, int]
    num_micro_batches: int
    deadline_ms: float
    period_ms: float | None

    @cached_property
    def relaxed_mj(self) -> float:
        """Return an energy of all devices until the deadline that no plan with the same groups goes below.

        It is the optimum of the linear program of the whole schedule in which groups may take any time
        between those of their clocks, and every block may start when it likes: every plan with these groups
        is an answer of it. The program with a folded middle, which makes the plan, proves nothing: its rounds
        must be a period apart, so that its optimum can be above that of the whole (by up to 2 % for an
        X-shape).
        Above `MOST_UNFOLDED` instances, and where the solver fails, this is all blocks at their cheapest.
        """
        periodic, number = self.periodic, self.num_micro_batches
        curves = cost_curves(periodic.placement, self.profile)
        is_whole = number * len(periodic.placement.blocks) <= MOST_UNFOLDED
        settling = periodic.num_rounds(number) if is_whole else SETTLING_ROUNDS
        timing = fold(periodic, curves, number, settling).timing
        if not is_whole:
            log.info(
                "%d micro-batches have more than %d block instances: the bound for clocks that repeat is "
                "only the least energy of every block",
                number,
                MOST_UNFOLDED,
            )
        relaxed = _min_energy(timing, self.deadline_ms * (1 + TIME_TOLERANCE)) if is_whole else None
        effective_mj = timing.min_possible_mj if relaxed is None else relaxed.energy_mj
        return effective_mj + waiting_w(periodic.placement, self.profile) * self.deadline_ms

    def unrolled(self, num_micro_batches: int, bound: LowerBound | None = None) -> FrequencyPlan:
        """Return the plan for any number of micro-batches, with time and energy of its simulation.

        The deadline is kept for the number of micro-batches that the plan was made for. Where there are so
        few that a block belongs to both warmup and cooldown, it has the faster of the two clocks.

        Args:
            num_micro_batches: Number of micro-batches, at least 1.
            bound: Bound of that schedule, where it is at hand; the plan's lower bound is 0 without.

        Raises:
            EnergyError: There are no micro-batches.
        """
        if num_micro_batches < 1:
            raise EnergyError(f"num_micro_batches: {num_micro_batches} is not at least 1")
        schedule = self.periodic.schedule(num_micro_batches)
        names = [block.name for block in schedule.placement.blocks]
        clocks = {
            name: tuple(
                self._clock_of((name, n), num_micro_batches)
                for n in micro_batches_of(schedule.placement, name, num_micro_batches)
            )
            for name in names
        }
        done = simulate_at_clocks(schedule, self.profile, clocks)
        return simulated_plan(clocks, done, bound.at(done.time_ms) if bound else 0.0)

    def _clock_of(self, instance: Instance, num_micro_batches: int) -> int:
        """Return the clock of an instance; that of the steady part where its own group was not planned."""
        name, lane = instance[0], self.periodic.position(instance)[0]
        groups = [
            group for group in self.periodic.groups(instance, num_micro_batches) if group in self.clock_mhz
        ]
        if not groups:
            groups = [group for group in (ClockGroup("steady", name, lane, 0),) if group in self.clock_mhz]
        known = {point.clock_mhz: point.time_ms for point in self.profile.points[name]}
        clocks = [self.clock_mhz[group] for group in groups] or [min(known, key=known.__getitem__)]
        return min(clocks, key=known.__getitem__)

    def with_clocks(self, clock_mhz: Mapping[ClockGroup, int], limits: SwitchingLimits) -> PeriodicPlan:
        """Return the plan with other clocks, whose changes take what the limits say."""
        if self.period_ms is None:
            return replace(self, clock_mhz=clock_mhz)
        steady = self.periodic.steady
        clocks = {node: clock_mhz[ClockGroup("steady", *node, 0)] for node in steady.nodes}
        times = [
            next(point.time_ms for point in self.profile.points[name] if point.clock_mhz == clock)
            for (name, _), clock in clocks.items()
        ]
        period_ms = steady.period_ms(np.array(times), np.array(list(clocks.values())), limits)
        return replace(self, clock_mhz=clock_mhz, period_ms=period_ms)

    def to_dict(self) -> dict[str, object]:
        """Return the clocks as plain data: for each part a list for each block and lane.

        The warmup's begin with the first micro-batch of the lane, the cooldown's with its last.
        """
        parts: dict[str, dict[str, list[list[int]]]] = {"warmup": {}, "steady": {}, "cooldown": {}}
        for group in sorted(self.clock_mhz, key=lambda group: (group.block, group.lane, group.turn)):
            lanes = parts[group.part].setdefault(group.block, [])
            lanes += [[] for _ in range(group.lane + 1 - len(lanes))]
            lanes[group.lane].append(self.clock_mhz[group])
        return {
            "num_micro_batches": self.num_micro_batches,
            "micro_batches_per_repetend": self.periodic.repetend.micro_batches,
            "deadline_ms": self.deadline_ms,
            "period_ms": self.period_ms,
            **parts,
        }


def periodic_plan(
    periodic: PeriodicSchedule, profile: Profile, num_micro_batches: int, deadline_ms: float
) -> PeriodicPlan:
    """Return a plan of little energy whose clocks repeat with the repetend and that keeps the deadline.

    Raises:
        ProfileError: The profile lacks a block, or has several configurations for a clock.
        EnergyError: The deadline is too short, or there are no micro-batches.
        PlacementError: There are modes, or devices have several streams.
    """
    require_plain(periodic.placement, "a plan of clocks that repeat", "use one without that")
    profile.require(periodic.placement)
    profile.require_one_config("periodic")
    start = _relaxed(periodic, cost_curves(periodic.placement, profile), num_micro_batches, deadline_ms)
    best = start.fixed()
    curves, groups = start.folded.timing.curves, start.folded.groups
    clocks = {g: int(c.clock_mhz[i]) for g, c, i in zip(groups, curves, best.reclaimed(), strict=True)}
    period_ms = best.relaxed.period_ms if start.folded.is_folded else None
    return PeriodicPlan(periodic, profile, clocks, num_micro_batches, deadline_ms, period_ms)


def switched_periodic_plan(
    alone: PeriodicPlan, limits: SwitchingLimits, free: FrequencyPlan, lower_bound_mj: float = 0.0
) -> tuple[PeriodicPlan, LimitedPlan[SwitchingLimits, ClockChanges]]:
    """Return a plan of little energy whose clocks repeat, and that keeps limits and deadline.

    Instances of one clock group change together then, and the limits hold from each repetend to the next.

    Args:
        alone: The periodic plan without limits, for the same micro-batches and deadline.
        limits: Limits to be kept, also from each repetend to the next.
        free: The plan without limits that does not repeat.
        lower_bound_mj: Energy until the deadline that no plan under the limits is below, where it is known.

    Returns:
        Its clocks, and the same for all micro-batches, with time and energy under the limits.

    Raises:
        EnergyError: No plan was found that keeps the deadline.
    """
    number, deadline_ms, periodic = alone.num_micro_batches, alone.deadline_ms, alone.periodic
    problem = SwitchingProblem(
        periodic.schedule(number), alone.profile, None, limits, deadline_ms * (1 + TIME_TOLERANCE)
    )
    groups = [periodic.groups(instance, number)[-1] for instance in problem.graph.instances]
    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    problem = replace(problem, group=np.array([numbers[group] for group in groups]))
    column = problem.columns(alone.unrolled(number).clock_mhz)
    best = best_state(problem, column, 0.0, "no plan that repeats and was found")
    clocks = dict(zip(groups, problem.clock_mhz[best.column].tolist(), strict=True))
    min_mj = max(alone.relaxed_mj, lower_bound_mj) - problem.waiting_w * deadline_ms
    return alone.with_clocks(clocks, limits), problem.limited(best, free, deadline_ms, min_mj)


def _relaxed(
    periodic: PeriodicSchedule, curves: Mapping[str, CostCurve], num_micro_batches: int, deadline_ms: float
) -> _Partly:
    """Return the folded problem with its relaxed times.

    Where the deadline cannot be kept because the ends need more rounds to settle, they get them; with all
    rounds there is nothing left to fold. Where no program has an answer, the fastest clocks are what is left,
    which proves nothing of the energy.

    Raises:
        EnergyError: The deadline is shorter than the iteration of the fastest clocks.
    """
    settling = SETTLING_ROUNDS
    while True:
        folded = fold(periodic, curves, num_micro_batches, settling)
        timing = folded.timing
        relaxed = _min_energy(timing, deadline_ms)
        if relaxed is not None:
            return _Partly(folded, timing, deadline_ms, relaxed)
        if not folded.is_folded:
            break
        settling *= 2
    fastest = timing.fixed(np.zeros(len(timing.curves), dtype=np.int64))
    time = np.array([curve.time_ms[0] for curve in timing.curves])
    start = _starts(timing, time, 0.0, math.inf)
    assert start is not None, "without a period there are no cycles"
    shortest_ms = float((start + time[timing.group]).max())
    if not shortest_ms <= deadline_ms * (1 + TIME_TOLERANCE):
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.12g} cannot be kept by a plan that repeats, the shortest iteration "
            f"takes {shortest_ms:.6g} ms; give at least that"
        )
    return _Partly(
        folded, fastest, deadline_ms, RelaxedTimes(time, 0.0, shortest_ms, fastest.min_possible_mj)
    )


def _min_energy(timing: Timing, deadline_ms: float) -> RelaxedTimes | None:
    """Return the relaxed times, None also where the solver failed: there is another way to a plan then."""
    with contextlib.suppress(SolverError):
        return min_energy(timing, deadline_ms)
    return None


def _starts(
    timing: Timing, time_ms: Floats, period_ms: float, deadline_ms: float, since_ms: Floats | None = None
) -> Floats | None:
    """Return the earliest start of every node, or None where one would end after the deadline.

    Args:
        timing: Who waits for whom; the edges in order of their heads.
        time_ms: How long an instance of each clock group runs; shape ``(groups,)``.
        period_ms: Period of the folded rounds.
        deadline_ms: For the end of the whole schedule.
        since_ms: Starts at times that are nowhere longer; saves work.
    """
    time = time_ms[timing.group]
    weight = time[timing.tail] + timing.delay_ms + timing.rounds * period_ms
    start = np.zeros(len(time)) if since_ms is None else since_ms.copy()
    heads, first = np.unique(timing.head, return_index=True)
    slip = ROUNDING * deadline_ms if deadline_ms < math.inf else 0.0
    for _ in range(len(start) + 1):
        if (start + time > deadline_ms + slip).any():
            return None
        ready = np.maximum.reduceat(start[timing.tail] + weight, first) if len(first) else start[heads]
        if not (ready > start[heads] + slip).any():
            return start
        start[heads] = np.maximum(start[heads], ready)
    return None


@dataclass(frozen=True, eq=False)
class _Partly:
    """A folded graph of which some clocks may be fixed already.

    Attributes:
        folded: Who waits for whom.
        left: The same with what each group may still be.
        deadline_ms: Deadline to be kept.
        relaxed: The best if groups that are not fixed could take any time.
    """

    folded: Folded
    left: Timing
    deadline_ms: float
    relaxed: RelaxedTimes

    @property
    def by_energy(self) -> list[int]:
        """The groups, those whose clock matters most first."""
        timing = self.folded.timing
        span = timing.count * [float(np.ptp(curve.energy_mj)) for curve in timing.curves]
        order: list[int] = np.argsort(-span, kind="stable").tolist()
        return order

    def neighbors(self, group: int) -> list[int]:
        """Return the options next to a group's planned time; only one where it is that time."""
        time, planned = self.folded.timing.curves[group].time_ms, float(self.relaxed.planned_ms[group])
        slower = int(np.searchsorted(time, planned * (1 + SAME_TIME), side="right"))
        faster = max(slower - 1, 0)
        is_one = slower == len(time) or time[faster] >= planned * (1 - SAME_TIME)
        return [faster] if is_one else [faster, slower]

    def fix(self, group: int, option: int) -> _Partly | None:
        """Return the problem with a group at one option, or None where the deadline cannot be kept then."""
        curves = list(self.left.curves)
        curves[group] = self.folded.timing.curves[group].only(option)
        left = replace(self.left, curves=curves)
        if len(self.neighbors(group)) == 1:
            return replace(self, left=left)
        relaxed = _min_energy(left, self.deadline_ms)
        return None if relaxed is None else replace(self, left=left, relaxed=relaxed)

    def fixed(self) -> _Partly:
        """Return the problem with the groups of the steady part fixed one after another.

        The best few ways are followed.
        """
        kept = [self]
        for group in self.by_energy:
            if self.folded.groups[group].part == "steady":
                ways = [each.fix(group, option) for each in kept for option in each.neighbors(group)]
                best = sorted((way for way in ways if way), key=lambda way: way.relaxed.energy_mj)[:WIDTH]
                kept = best or kept[:1]
        return kept[0]

    def reclaimed(self) -> list[int]:
        """Return the option of each group: first no slower than planned, then as slow as slack allows."""
        curves, timing = self.folded.timing.curves, self.folded.timing
        until_ms = self.deadline_ms * (1 + TIME_TOLERANCE)

        def starts(choice: list[int], since_ms: Floats | None = None) -> Floats | None:
            time = np.array([curve.time_ms[i] for curve, i in zip(curves, choice, strict=True)])
            return _starts(timing, time, self.relaxed.period_ms, until_ms, since_ms)

        start = None
        for share in (SAME_TIME, -SAME_TIME, -1e-6):
            allowed = (self.relaxed.planned_ms * (1 + share)).tolist()
            choice = [max(int((c.time_ms <= ms).sum()) - 1, 0) for c, ms in zip(curves, allowed, strict=True)]
            start = starts(choice)
            if start is not None:
                break
        assert start is not None, "planned times keep the deadline"
        for group in self.by_energy:
            while choice[group] + 1 < len(curves[group].time_ms):
                slower = [*choice[:group], choice[group] + 1, *choice[group + 1 :]]
                moved = starts(slower, start)
                if moved is None:
                    break
                choice, start = slower, moved
        return choice
