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
known here; see `switching`. Where the blocking power depends on the clock, clocks are chosen as if devices
waited at the least, and the plan is counted as they do.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placements import Profile
from schedsearch.energy.bound import LowerBound
from schedsearch.energy.constrained.folding import ClockGroup, FoldedGraph, PeriodicSchedule, fold
from schedsearch.energy.cost import CostCurve, cost_curves
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.energy.relaxed.highs import SolverError
from schedsearch.energy.relaxed.timing_program import RelaxedTimes, Timing, min_energy, min_possible_mj
from schedsearch.energy.simulation import simulate_at_clocks, simulated_plan
from schedsearch.energy.switching.limits import SwitchingLimits
from schedsearch.energy.waiting import waiting_w
from schedsearch.schedule import Instance, micro_batches_of, require_plain

log = logging.getLogger(__name__)

WIDTH = 2
"""Partly rounded plans that are kept while clocks are fixed one after another."""

SETTLING_ROUNDS = 4
"""Whole rounds on each side that need not keep the rhythm yet; doubled where they are too few."""

MOST_UNFOLDED = 4000
"""Instances of the whole schedule up to which a plan's bound is a linear program of all of them."""

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
        graph = fold(periodic, number, periodic.num_rounds(number) if is_whole else SETTLING_ROUNDS)
        if not is_whole:
            log.info(
                "%d micro-batches have more than %d block instances: the bound for clocks that repeat is "
                "only the least energy of every block",
                number,
                MOST_UNFOLDED,
            )
        own = [curves[group.block] for group in graph.groups]
        until_ms = self.deadline_ms * (1 + TIME_TOLERANCE)
        relaxed = _min_energy(graph, own, until_ms) if is_whole else None
        effective_mj = min_possible_mj(_timing(graph, own)) if relaxed is None else relaxed.energy_mj
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

    Args:
        periodic: The schedule of any number of micro-batches.
        profile: Cost of each of its blocks at each clock.
        num_micro_batches: For which the deadline is kept.
        deadline_ms: For the end of the iteration.

    Raises:
        ProfileError: The profile lacks a block, or has several configurations for a clock.
        EnergyError: The deadline is too short, or there are no micro-batches.
        PlacementError: There are modes, or devices have several streams.
    """
    require_plain(periodic.placement, "a plan of clocks that repeat", "use one without that")
    profile.require(periodic.placement)
    profile.require_one_config("periodic")
    curves = cost_curves(periodic.placement, profile)
    start = _relaxed(periodic, curves, num_micro_batches, deadline_ms)
    graph = start.graph
    tried = [start.fixed(order) for order in (start.steady_by_energy, start.steady_by_device(periodic))]
    best = min(tried, key=lambda each: each.relaxed.energy_mj)
    choice = best.reclaimed()
    return PeriodicPlan(
        periodic,
        profile,
        {group: int(curves[group.block].clock_mhz[i]) for group, i in zip(graph.groups, choice, strict=True)},
        num_micro_batches,
        deadline_ms,
        best.relaxed.period_ms if graph.is_folded else None,
    )


def _relaxed(
    periodic: PeriodicSchedule, curves: Mapping[str, CostCurve], num_micro_batches: int, deadline_ms: float
) -> _Problem:
    """Return the folded problem with its relaxed times.

    Where the deadline cannot be kept because the ends need more rounds to settle, they get them; with all
    rounds there is nothing left to fold. Where no program has an answer, the fastest clocks are what is left.

    Raises:
        EnergyError: The deadline is shorter than the iteration of the fastest clocks.
    """
    settling = SETTLING_ROUNDS
    while True:
        graph = fold(periodic, num_micro_batches, settling)
        own = tuple(curves[group.block] for group in graph.groups)
        relaxed = _min_energy(graph, own, deadline_ms)
        if relaxed is not None:
            return _Problem(graph, own, own, deadline_ms, relaxed)
        if not graph.is_folded:
            return _all_fastest(graph, own, deadline_ms)
        settling *= 2


def _all_fastest(graph: FoldedGraph, curves: tuple[CostCurve, ...], deadline_ms: float) -> _Problem:
    """Return the problem with the fastest clocks for its answer, which proves nothing of the energy."""
    time = np.array([curve.time_ms[0] for curve in curves])
    start = graph.starts(time, 0.0, np.inf)
    assert start is not None, "without a period there are no cycles"
    shortest_ms = float((start + time[graph.group]).max())
    if not shortest_ms <= deadline_ms * (1 + TIME_TOLERANCE):
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.12g} cannot be kept by a plan that repeats, the shortest iteration "
            f"takes {shortest_ms:.6g} ms; give at least that"
        )
    energy = sum(count * float(c.energy_mj[0]) for count, c in zip(graph.count.tolist(), curves, strict=True))
    fixed = tuple(curve.only(0) for curve in curves)
    return _Problem(graph, curves, fixed, deadline_ms, RelaxedTimes(time, 0.0, shortest_ms, energy))


def _min_energy(graph: FoldedGraph, curves: Sequence[CostCurve], deadline_ms: float) -> RelaxedTimes | None:
    """Return the relaxed times, None also where the solver failed: there is another way to a plan then."""
    with contextlib.suppress(SolverError):
        return min_energy(_timing(graph, curves), deadline_ms)
    return None


def _timing(graph: FoldedGraph, curves: Sequence[CostCurve]) -> Timing:
    return Timing(
        graph.tail,
        graph.head,
        graph.delay_ms,
        graph.rounds,
        graph.group,
        curves,
        graph.count.astype(np.float64),
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """A folded graph of which some clocks may be fixed already.

    Attributes:
        graph: Who waits for whom.
        curves: Cost of each group.
        left: What of it each group may still be.
        deadline_ms: Deadline to be kept.
        relaxed: The best if groups that are not fixed could take any time.
    """

    graph: FoldedGraph
    curves: tuple[CostCurve, ...]
    left: tuple[CostCurve, ...]
    deadline_ms: float
    relaxed: RelaxedTimes

    @cached_property
    def by_energy(self) -> list[int]:
        """Return the groups, those whose clock matters most first."""
        span = [float(np.ptp(curve.energy_mj)) for curve in self.curves]
        return sorted(range(len(span)), key=lambda i: -int(self.graph.count[i]) * span[i])

    @property
    def steady_by_energy(self) -> list[int]:
        """Return the groups of the steady part, those whose clock matters most first."""
        return [i for i in self.by_energy if self.graph.groups[i].part == "steady"]

    def steady_by_device(self, periodic: PeriodicSchedule) -> list[int]:
        """Return the groups of the steady part, lane by lane and device by device."""
        placement, groups = periodic.placement, self.graph.groups
        devices = {block.name: block.devices for block in placement.blocks}
        return sorted(self.steady_by_energy, key=lambda i: (groups[i].lane, devices[groups[i].block]))

    def neighbors(self, group: int) -> list[int]:
        """Return the options next to a group's planned time; only one where it is that time."""
        time, planned = self.curves[group].time_ms, float(self.relaxed.planned_ms[group])
        slower = int(np.searchsorted(time, planned * (1 + SAME_TIME), side="right"))
        faster = max(slower - 1, 0)
        is_one = slower == len(time) or time[faster] >= planned * (1 - SAME_TIME)
        return [faster] if is_one else [faster, slower]

    def fix(self, group: int, option: int) -> _Problem | None:
        """Return the problem with a group at one option, or None where the deadline cannot be kept then."""
        left = (*self.left[:group], self.curves[group].only(option), *self.left[group + 1 :])
        if len(self.neighbors(group)) == 1:
            return replace(self, left=left)
        relaxed = _min_energy(self.graph, left, self.deadline_ms)
        return None if relaxed is None else replace(self, left=left, relaxed=relaxed)

    def fixed(self, order: Iterable[int]) -> _Problem:
        """Return the problem with groups fixed one after another, of which the best few ways are followed."""
        kept = [self]
        for group in order:
            ways = [each.fix(group, option) for each in kept for option in each.neighbors(group)]
            best = sorted((way for way in ways if way), key=lambda way: way.relaxed.energy_mj)[:WIDTH]
            kept = best or kept[:1]
        return kept[0]

    def reclaimed(self) -> list[int]:
        """Return the option of each group: first no slower than planned, then as slow as slack allows."""
        choice, start = self._floor()
        for group in self.by_energy:
            while choice[group] + 1 < len(self.curves[group].time_ms):
                slower = [*choice[:group], choice[group] + 1, *choice[group + 1 :]]
                moved = self._starts(slower, start)
                if moved is None:
                    break
                choice, start = slower, moved
        return choice

    def _floor(self) -> tuple[list[int], Floats]:
        """Return the slowest options that are no slower than planned, and the starts that prove them."""
        for share in (SAME_TIME, -SAME_TIME, -1e-6):
            allowed = self.relaxed.planned_ms * (1 + share)
            fits = [int((c.time_ms <= limit).sum()) for c, limit in zip(self.curves, allowed, strict=True)]
            choice = [max(number - 1, 0) for number in fits]
            start = self._starts(choice)
            if start is not None:
                return choice, start
        raise AssertionError("planned times keep the deadline")

    def _starts(self, choice: Sequence[int], since_ms: Floats | None = None) -> Floats | None:
        time = np.array([curve.time_ms[i] for curve, i in zip(self.curves, choice, strict=True)])
        deadline_ms = self.deadline_ms * (1 + TIME_TOLERANCE)
        return self.graph.starts(time, self.relaxed.period_ms, deadline_ms, since_ms)
