"""Plans whose clocks repeat with the repetend, so that generated code can loop over the steady part.

Each block of each micro-batch of the repetend has one clock over the whole steady part; warmup and cooldown
have clocks of their own. The steady part could be solved alone, as a cyclic problem, and warmup and
cooldown fitted to it; but how long the period should be depends on how much time the two ends need. So we
solve all three at once, on a graph whose middle is folded (see `folding`): its size, and with it the time
to plan, does not depend on the number of micro-batches, and the period is one of the unknowns. That the
least energy grows by the same amount with every further round is true of the free plan as well, once there
are about four times as many micro-batches as stages, which is why so little is lost.

The clocks are found by fixing one after another in the linear program that is left, the steady part first;
in the end slack is given back. Times are profiled times: jitter, and the time of a change of clock, are not
known here; see `switched_periodic_plan`. Where the blocking power depends on the clock, clocks are chosen as
if devices waited at the least, and the plan is counted as they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from placements import Profile
from schedsearch.energy.cost import CostCurve, cost_curves
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan
from schedsearch.energy.graph import EnergyError, Floats, instance_graph
from schedsearch.energy.limits.folding import ClockGroup, Folded, PeriodicSchedule, fold
from schedsearch.energy.limits.switched import SwitchedPlan, plan_under_limits
from schedsearch.energy.limits.switching import SwitchingLimits, SwitchingProblem
from schedsearch.energy.programs import RelaxedTimes, Timing, min_energy
from schedsearch.energy.simulation import simulate_at_clocks, simulated_plan
from schedsearch.schedule import Instance, micro_batches_of, require_plain

SETTLING_ROUNDS = 4
"""Whole rounds on each side that need not keep the rhythm yet; doubled where they are too few."""

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
        num_micro_batches: Number of micro-batches that the plan was made for.
        deadline_ms: Deadline that the plan keeps for this number of micro-batches.
        period_ms: With r rounds more, the iteration ends at most r periods after the deadline. None where
            the schedule is too short to be folded, or changes of clock take time.
    """

    periodic: PeriodicSchedule
    profile: Profile
    clock_mhz: Mapping[ClockGroup, int]
    num_micro_batches: int
    deadline_ms: float
    period_ms: float | None

    def unrolled(self, num_micro_batches: int) -> FrequencyPlan:
        """Return the plan for any number of micro-batches, with time and energy of its simulation.

        The deadline is kept for the number of micro-batches that the plan was made for. Where there are so
        few that a block belongs to both warmup and cooldown, it has the faster of the two clocks. Its lower
        bound is 0: none is known.

        Raises:
            EnergyError: There are no micro-batches.
        """
        schedule = self.periodic.schedule(num_micro_batches)
        clocks = {
            block.name: tuple(
                self._clock_of((block.name, n), num_micro_batches)
                for n in micro_batches_of(schedule.placement, block.name, num_micro_batches)
            )
            for block in schedule.placement.blocks
        }
        return simulated_plan(clocks, simulate_at_clocks(schedule, self.profile, clocks))

    def _clock_of(self, instance: Instance, num_micro_batches: int) -> int:
        """Return the clock of an instance; the steady part's where its own group has no planned clock."""
        name, n = instance
        steady = ClockGroup("steady", name, n % self.periodic.repetend.micro_batches, 0)
        known = {point.clock_mhz: point.time_ms for point in self.profile.points[name]}
        for groups in (self.periodic.groups(instance, num_micro_batches), (steady,)):
            clocks = [self.clock_mhz[group] for group in groups if group in self.clock_mhz]
            if clocks:
                return min(clocks, key=known.__getitem__)
        return min(known, key=known.__getitem__)

    def to_dict(self) -> dict[str, object]:
        """Return the clocks as plain data: a list by part, block and micro-batch of the repetend.

        A list of the warmup begins with the first round, one of the cooldown with the last.
        """
        parts: dict[str, dict[str, list[list[int]]]] = {"warmup": {}, "steady": {}, "cooldown": {}}
        for group in sorted(self.clock_mhz, key=lambda group: (group.block, group.micro_batch, group.turn)):
            rows = parts[group.part].setdefault(group.block, [])
            rows += [[] for _ in range(group.micro_batch + 1 - len(rows))]
            rows[group.micro_batch].append(self.clock_mhz[group])
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
    curves = cost_curves(periodic.placement, profile)
    folded, relaxed = _relaxed(periodic, curves, num_micro_batches, deadline_ms)
    timing = folded.timing
    span_mj = timing.count * [float(np.ptp(curve.energy_mj)) for curve in timing.curves]
    by_energy: list[int] = np.argsort(-span_mj, kind="stable").tolist()  # those that matter most first
    fixed = np.full(len(timing.curves), -1)
    for group in (group for group in by_energy if folded.groups[group].part == "steady"):
        near = _neighbors(timing.curves[group].time_ms, float(relaxed.planned_ms[group]))
        ways = []
        for fixed[group] in near:
            times = relaxed if len(near) == 1 else min_energy(timing.fixed(fixed), deadline_ms)
            if times is not None:
                ways.append((times.energy_mj, int(fixed[group]), times))
        fixed[group] = -1
        if ways:
            _, fixed[group], relaxed = min(ways, key=lambda way: way[0])
    modes = _reclaimed(timing, relaxed, deadline_ms, by_energy)
    clocks = {
        group: curve.clocks[i] for group, curve, i in zip(folded.groups, timing.curves, modes, strict=True)
    }
    period_ms = relaxed.period_ms if folded.is_folded else None
    return PeriodicPlan(periodic, profile, clocks, num_micro_batches, deadline_ms, period_ms)


def switched_periodic_plan(
    alone: PeriodicPlan, limits: SwitchingLimits, free: FrequencyPlan
) -> tuple[PeriodicPlan, SwitchedPlan]:
    """Return a plan of little energy whose clocks repeat, and that keeps limits and deadline.

    Instances of one clock group change together then, and the limits hold from each repetend to the next.
    The bound is of all plans under the limits, also of those that do not repeat.

    Args:
        alone: The periodic plan without limits, for the same micro-batches and deadline.
        limits: Limits to be kept, also from each repetend to the next.
        free: The plan without limits that does not repeat.

    Returns:
        Its clocks, and the same for all micro-batches, with time and energy under the limits.

    Raises:
        EnergyError: No plan was found that keeps the deadline.
    """
    number, deadline_ms, periodic = alone.num_micro_batches, alone.deadline_ms, alone.periodic
    latest_ms = deadline_ms * (1 + TIME_TOLERANCE)
    problem = SwitchingProblem(periodic.schedule(number), alone.profile, None, limits, latest_ms)
    groups = [periodic.groups(instance, number)[-1] for instance in problem.graph.instances]
    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    problem = replace(problem, group=np.array([numbers[group] for group in groups]))
    column, best = plan_under_limits(problem, alone.unrolled(number).clock_mhz, free, deadline_ms, 0.0)
    clocks = dict(zip(groups, problem.clock_mhz[column].tolist(), strict=True))
    return replace(alone, clock_mhz=clocks, period_ms=None), best


def _relaxed(
    periodic: PeriodicSchedule, curves: Mapping[str, CostCurve], num_micro_batches: int, deadline_ms: float
) -> tuple[Folded, RelaxedTimes]:
    """Return the folded problem and its relaxed times.

    Where the deadline cannot be kept because the ends need more rounds to settle, they get them; with all
    rounds there is nothing left to fold. Where no program has an answer, the fastest clocks are what is left.

    Raises:
        EnergyError: The deadline is shorter than the iteration of the fastest clocks.
    """
    settling, is_folded = SETTLING_ROUNDS, True
    while is_folded:
        folded = fold(periodic, curves, num_micro_batches, settling)
        relaxed = min_energy(folded.timing, deadline_ms)
        if relaxed is not None:
            return folded, relaxed
        settling, is_folded = 2 * settling, folded.is_folded
    graph = instance_graph(periodic.schedule(num_micro_batches))
    shortest_ms = float(graph.makespan(np.array([[curves[run].time_ms[0]] for run in graph.runs]))[0])
    if not shortest_ms <= deadline_ms * (1 + TIME_TOLERANCE):
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.12g} cannot be kept by a plan that repeats, the shortest iteration "
            f"takes {shortest_ms:.6g} ms; give at least that"
        )
    fastest_ms = np.array([curve.time_ms[0] for curve in folded.timing.curves])
    return folded, RelaxedTimes(fastest_ms, 0.0, shortest_ms, 0.0)


def _neighbors(time_ms: Floats, planned_ms: float) -> list[int]:
    """Return the modes next to a planned time: one mode if its time equals the planned time, else two."""
    slower = int(np.searchsorted(time_ms, planned_ms * (1 + SAME_TIME), side="right"))
    faster = max(slower - 1, 0)
    is_one = slower == len(time_ms) or time_ms[faster] >= planned_ms * (1 - SAME_TIME)
    return [faster] if is_one else [faster, slower]


def _reclaimed(timing: Timing, relaxed: RelaxedTimes, deadline_ms: float, by_energy: list[int]) -> list[int]:
    """Return the mode of each group: first no slower than planned, then as slow as slack allows."""

    def starts(modes: list[int], since_ms: Floats | None = None) -> Floats | None:
        time = np.array([curve.time_ms[i] for curve, i in zip(timing.curves, modes, strict=True)])
        return _starts(timing, time, relaxed.period_ms, deadline_ms * (1 + TIME_TOLERANCE), since_ms)

    start = None
    for share in (SAME_TIME, -SAME_TIME, -1e-6):
        allowed = (relaxed.planned_ms * (1 + share)).tolist()
        pairs = zip(timing.curves, allowed, strict=True)
        modes = [max(int((curve.time_ms <= ms).sum()) - 1, 0) for curve, ms in pairs]
        start = starts(modes)
        if start is not None:
            break
    assert start is not None, "planned times keep the deadline"
    for group in by_energy:
        while modes[group] + 1 < len(timing.curves[group].time_ms):
            slower = [*modes[:group], modes[group] + 1, *modes[group + 1 :]]
            moved = starts(slower, start)
            if moved is None:
                break
            modes, start = slower, moved
    return modes


def _starts(
    timing: Timing, time_ms: Floats, period_ms: float, deadline_ms: float, since_ms: Floats | None = None
) -> Floats | None:
    """Return the earliest start of every node; None if a node would end after the deadline.

    Args:
        timing: Waits between instances; the edges in order of their heads.
        time_ms: How long an instance of each clock group runs; shape ``(groups,)``.
        period_ms: Period of the folded rounds.
        deadline_ms: For the end of the whole schedule.
        since_ms: Starts at times that are nowhere longer; saves work.
    """
    time = time_ms[timing.group]
    weight = time[timing.tail] + timing.delay_ms + timing.rounds * period_ms
    start = np.zeros(len(time)) if since_ms is None else since_ms.copy()
    heads, first = np.unique(timing.head, return_index=True)
    slip = ROUNDING * deadline_ms
    for _ in range(len(start) + 1):
        if (start + time > deadline_ms + slip).any():
            return None
        ready = np.maximum.reduceat(start[timing.tail] + weight, first) if len(first) else start[heads]
        if not (ready > start[heads] + slip).any():
            return start
        start[heads] = np.maximum(start[heads], ready)
    return None
