"""Plans whose clocks change no more often than a device can change them, and that pay for every change.

A change of clock takes about ten milliseconds and is asked for by another process (Perseus, Sec. 3.1 and
5), long enough to matter for short blocks. Perseus lets the block begin meanwhile and counts the change as
nothing. Here a device waits, at the blocking power, until its new clock is there: a change can be asked for
as soon as the block before has ended, so it costs no time where the device waits for an input anyway, and
`latency_ms` where it does not. Running on at the old clock is never later than that, and needs no cost of
a block at a clock that the profile may lack. The clock of a device's first block is set before the
iteration begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placements import Profile
from schedsearch.energy.bound import LowerBound
from schedsearch.energy.candidates import clocks_by_block
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints, instance_graph
from schedsearch.energy.simulation import Simulation, all_maximum_clocks, operating_points
from schedsearch.schedule import Schedule, micro_batches_of

MOST_STARTS = 6
"""Free plans, of the deadline or faster, that changes are taken out of."""

MOST_LOWERED = 3
"""Plans without needless changes, the best ones, whose slack is used."""

CALM = 30
"""Length of a stretch, in latencies, from which on a change is likely to pay."""


@dataclass(frozen=True)
class SwitchingLimits:
    """How often and how fast a device changes its clock.

    Attributes:
        dwell_ms: Least time from the start of the first block at one clock to that at the next one.
        latency_ms: From when a change is asked for until the clock is there; the device waits meanwhile.

    Raises:
        EnergyError: One is not a time.
    """

    dwell_ms: float = 0.0
    latency_ms: float = 0.0

    def __post_init__(self) -> None:
        """Check both."""
        for name in ("dwell_ms", "latency_ms"):
            if not 0 <= getattr(self, name) < math.inf:
                raise EnergyError(f"{name}: {getattr(self, name):g} is not a time; give 0 ms or more")


@dataclass(frozen=True)
class SwitchedPlan:
    """A plan that keeps the limits, with the time and energy of its simulation under them.

    Attributes:
        plan: Clocks, time and energy, waiting for changes included.
        simulation: When each block starts.
        num_changes: Changes of clock within the iteration, for each device.
        free: The plan of the frontier for the same deadline, which knows no limits.
        limits: That are kept.
    """

    plan: FrequencyPlan
    simulation: Simulation
    num_changes: tuple[int, ...]
    free: FrequencyPlan
    limits: SwitchingLimits


def num_clock_changes(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return how often each device changes its clock within an iteration.

    Args:
        schedule: Gives the order of the blocks on each device.
        clock_mhz: For each block one clock per micro-batch.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    clock = {
        (name, n): mhz
        for name, clocks in clock_mhz.items()
        for n, mhz in zip(micro_batches_of(placement, name, number), clocks, strict=True)
    }
    return tuple(
        sum(clock[a] != clock[b] for a, b in pairwise(schedule.order(device)))
        for device in range(placement.num_devices)
    )


def simulate_switching(
    schedule: Schedule, profile: Profile, clock_mhz: Mapping[str, Sequence[int]], latency_ms: float
) -> Simulation:
    """Return time and energy of a schedule whose devices wait for every change of clock.

    With a latency of 0 this is `schedsearch.energy.simulation.simulate`.

    Args:
        schedule: Gives the order of the blocks on each device.
        profile: Cost of each block at each clock.
        clock_mhz: For each block one clock per micro-batch.
        latency_ms: Of a change.
    """
    profile.require(schedule.placement)
    chosen = operating_points(schedule, profile, clock_mhz)
    problem = _Switching(schedule, profile, SwitchingLimits(0.0, latency_ms), math.inf)
    clock = np.array([chosen[instance].clock_mhz for instance in problem.graph.instances])
    return problem.simulation(problem.state(clock))


def switched_plan(
    schedule: Schedule,
    profile: Profile,
    frontier: Frontier,
    limits: SwitchingLimits,
    deadline_ms: float,
    bound: LowerBound | None = None,
) -> SwitchedPlan:
    """Return a plan of little energy that keeps both the switching limits and the deadline.

    Plans of the frontier, of the deadline and faster ones, are the start, beside one clock for all blocks
    of a device. Stretches that are too short take the higher clock of a neighbor, which makes nothing
    later, and so do those between which the critical path waits. Then clocks are lowered as far as slack
    and limits allow. The best result stays.

    Args:
        schedule: Any valid schedule; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        frontier: Of the schedule.
        limits: To be kept.
        deadline_ms: For the end of the iteration.
        bound: Of the schedule, where it is at hand; the plan's lower bound is 0 without.

    Raises:
        EnergyError: The deadline is too short, or no plan was found that keeps it under the limits.
    """
    free = frontier.at(deadline_ms)
    problem = _Switching(schedule, profile, limits, deadline_ms * (1 + TIME_TOLERANCE))
    best = problem.best(_starts(problem, schedule, profile, frontier, free))
    if best is None:
        raise EnergyError(
            f"deadline_ms: {deadline_ms:g} is kept by no plan that was found under a dwell of "
            f"{limits.dwell_ms:g} ms and {limits.latency_ms:g} ms per change of clock; give more time"
        )
    simulation = problem.simulation(best)
    (clocks,) = clocks_by_block(problem.graph, best.clock[:, None])
    return SwitchedPlan(
        FrequencyPlan(
            clocks, simulation.time_ms, simulation.energy_mj, bound.at(simulation.time_ms) if bound else 0.0
        ),
        simulation,
        num_clock_changes(schedule, clocks),
        free,
        limits,
    )


def _starts(
    problem: _Switching, schedule: Schedule, profile: Profile, frontier: Frontier, free: FrequencyPlan
) -> Iterator[Ints]:
    """Yield clocks to take changes out of, those of the free plan first."""
    plans = [plan for plan in frontier.plans if plan.time_ms <= free.time_ms][::-1]
    for i in np.unique(np.linspace(0, len(plans) - 1, min(len(plans), MOST_STARTS)).round().astype(int)):
        yield problem.clocks_of(schedule, plans[i].clock_mhz)
    maximum = problem.clocks_of(schedule, all_maximum_clocks(schedule, profile))
    yield maximum
    yield problem.one_for_each_device(maximum)


@dataclass(frozen=True, eq=False)
class _State:
    """Clocks and what they do.

    Attributes:
        clock: MHz of each instance.
        start_ms: Of each instance.
        time_ms: Length of the iteration.
        effective_mj: Energy above the blocking power.
    """

    clock: Ints
    start_ms: Floats
    time_ms: float
    effective_mj: float


@dataclass(frozen=True, eq=False)
class _Run:
    """Blocks that a device runs one after another at one clock.

    Attributes:
        members: Indices of instances, in order.
        mhz: Their clock.
    """

    members: list[int]
    mhz: int


@dataclass(eq=False)
class _Switching:
    """One problem; the attributes are the arguments of `switched_plan`."""

    schedule: Schedule
    profile: Profile
    limits: SwitchingLimits
    latest_ms: float
    graph: InstanceGraph = field(init=False)

    def __post_init__(self) -> None:
        self.graph = instance_graph(self.schedule)

    @cached_property
    def orders(self) -> list[list[int]]:
        """Return the instances of each device, in order."""
        index = {instance: i for i, instance in enumerate(self.graph.instances)}
        devices = range(self.graph.num_devices)
        return [[index[instance] for instance in self.schedule.order(device)] for device in devices]

    @cached_property
    def costs(self) -> dict[str, dict[int, tuple[float, float]]]:
        """Return time and effective energy, on all devices together, of each block at each clock."""
        power = self.profile.blocking_power_w
        return {
            block.name: {
                p.clock_mhz: (p.time_ms, len(block.devices) * (p.energy_mj - power * p.time_ms))
                for p in self.profile.points[block.name]
            }
            for block in self.schedule.placement.blocks
        }

    @cached_property
    def _pairs(self) -> set[tuple[int, int]]:
        """Return who runs just before whom on a device."""
        return {pair for order in self.orders for pair in pairwise(order)}

    @cached_property
    def _adjacent(self) -> list[NDArray[np.bool_]]:
        """Return, in the shape of each level's neighbors, which ones run just before on the same device."""
        return [
            np.array(
                [
                    [(before, member) in self._pairs for before in row]
                    for member, row in zip(level.members.tolist(), level.neighbors.tolist(), strict=True)
                ]
            )
            for level in self.graph.forward_levels
        ]

    def clocks_of(self, schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]]) -> Ints:
        """Return the clock of each instance."""
        runs = {
            name: dict(
                zip(
                    micro_batches_of(schedule.placement, name, schedule.num_micro_batches),
                    clocks,
                    strict=True,
                )
            )
            for name, clocks in clock_mhz.items()
        }
        return np.array([runs[name][n] for name, n in self.graph.instances], dtype=np.int64)

    def state(self, clock: Ints) -> _State:
        """Simulate clocks."""
        mhz = clock.tolist()
        cost = [self.costs[name][c] for (name, _), c in zip(self.graph.instances, mhz, strict=True)]
        time = np.array([ms for ms, _ in cost])
        start, end = np.zeros(len(time)), np.zeros(len(time) + 1)
        padded = np.append(clock, 0)
        for level, adjacent in zip(self.graph.forward_levels, self._adjacent, strict=True):
            changes = adjacent & (padded[level.neighbors] != clock[level.members][:, None])
            delay = np.where(changes, np.maximum(level.delay_ms, self.limits.latency_ms), level.delay_ms)
            start[level.members] = (end[level.neighbors] + delay).max(axis=1)
            end[level.members] = start[level.members] + time[level.members]
        return _State(clock, start, float(end.max()), sum(mj for _, mj in cost))

    def simulation(self, state: _State) -> Simulation:
        """Return a state as a simulation."""
        starts = dict(zip(self.graph.instances, state.start_ms.tolist(), strict=True))
        waiting_w = self.profile.blocking_power_w * self.graph.num_devices
        return Simulation(starts, state.time_ms, state.effective_mj + waiting_w * state.time_ms)

    def best(self, starts: Iterator[Ints]) -> _State | None:
        """Return the state of least effective energy that is reached from any start, or None."""
        if self.limits == SwitchingLimits():
            return self.raised(next(starts))
        states = []
        for clock in starts:
            ways = [self.raised(clock), self.calmer.raised(clock) if self.limits.latency_ms > 0 else None]
            states += [state for state in ways if state is not None]
        states.sort(key=lambda state: state.effective_mj)
        lowered = [self.lowered(state) for state in states[:MOST_LOWERED]]
        if not lowered:
            return None
        return self.lowered_in_parts(min(lowered, key=lambda state: state.effective_mj))

    @cached_property
    def calmer(self) -> _Switching:
        """Return the problem with longer stretches than asked for, where changes cost time."""
        dwell_ms = max(self.limits.dwell_ms, CALM * self.limits.latency_ms)
        return replace(self, limits=replace(self.limits, dwell_ms=dwell_ms))

    def runs(self, device: int, clock: Ints) -> list[_Run]:
        """Return the stretches of equal clocks of a device."""
        found: list[_Run] = []
        for i, mhz in zip(self.orders[device], clock[self.orders[device]].tolist(), strict=True):
            if found and found[-1].mhz == mhz:
                found[-1].members.append(i)
            else:
                found.append(_Run([i], mhz))
        return found

    def too_short(self, state: _State) -> Iterator[tuple[list[_Run], int]]:
        """Yield a device's stretches, and which one between two changes is shorter than the dwell."""
        least = self.limits.dwell_ms * (1 - TIME_TOLERANCE)
        for device in range(self.graph.num_devices):
            runs = self.runs(device, state.clock)
            begin = [state.start_ms[run.members[0]] for run in runs]
            for i in range(1, len(runs) - 1):
                if begin[i + 1] - begin[i] < least:
                    yield runs, i

    def raised(self, clock: Ints) -> _State | None:
        """Raise clocks until no stretch is too short and the deadline is kept; None where that fails.

        Clocks only rise, so this ends, also where a block is part of the stretches of several devices.
        """
        state = self.state(clock)
        while True:
            short = list(self.too_short(state))
            if not short and state.time_ms <= self.latest_ms:
                return state
            clock = self._merged(state, short) if short else self._hurried(state)
            if (clock == state.clock).all():
                return None
            state = self.state(clock)

    def _merged(self, state: _State, short: list[tuple[list[_Run], int]]) -> Ints:
        """Return clocks with each stretch that is too short joined to a neighbor, the cheaper one."""
        clock = state.clock.copy()
        joined = None
        for runs, i in short:
            cost, members, mhz = min(self._merge(runs[i], runs[j]) for j in (i - 1, i + 1))
            if cost < math.inf and joined is not runs[i - 1]:
                clock[members] = np.maximum(clock[members], mhz)
                joined = runs[i]
        return clock

    def _hurried(self, state: _State) -> Ints:
        """Return clocks without the changes on the critical path; or with higher ones on it."""
        clock = state.clock.copy()
        path = self._critical_path(state)
        of = self._run_of(state)
        for before, member in pairwise(path):
            for one, other in zip(of[before], of[member], strict=True):
                if one is not None and other is not None and one.mhz != other.mhz:
                    cost, members, mhz = self._merge(one, other)
                    if cost < math.inf:
                        clock[members] = np.maximum(clock[members], mhz)
        if (clock == state.clock).all():
            for run in {id(run): run for i in path for run in of[i] if run is not None}.values():
                higher = [mhz for mhz in self._common(run.members) if mhz > run.mhz]
                clock[run.members] = np.maximum(clock[run.members], min(higher, default=0))
        return clock

    def _run_of(self, state: _State) -> list[list[_Run | None]]:
        """Return for each instance the stretch that it is part of on each device, None on others."""
        found: list[list[_Run | None]] = [[None] * self.graph.num_devices for _ in self.graph.instances]
        for device in range(self.graph.num_devices):
            for run in self.runs(device, state.clock):
                for i in run.members:
                    found[i][device] = run
        return found

    @cached_property
    def _waits_for(self) -> list[list[tuple[int, float, bool]]]:
        """Return for each instance whom it waits for, how long after, and whether both share a device."""
        found: list[list[tuple[int, float, bool]]] = [[] for _ in self.graph.instances]
        for before, member, delay in self.graph.edges:
            found[member].append((before, delay, (before, member) in self._pairs))
        return found

    def _critical_path(self, state: _State) -> list[int]:
        """Return instances that start as soon as the one before lets them, up to the last one to end."""
        mhz = state.clock.tolist()
        end: list[float] = [
            start + self.costs[name][c][0]
            for (name, _), start, c in zip(self.graph.instances, state.start_ms.tolist(), mhz, strict=True)
        ]

        def ready(member: int, wait: tuple[int, float, bool]) -> float:
            before, delay, adjacent = wait
            change = self.limits.latency_ms if adjacent and mhz[before] != mhz[member] else 0.0
            return end[before] + max(delay, change)

        path = [max(range(len(end)), key=end.__getitem__)]
        while waits := self._waits_for[path[-1]]:
            member = path[-1]
            path.append(max(waits, key=lambda wait: ready(member, wait))[0])
        return path[::-1]

    def _common(self, members: Sequence[int]) -> set[int]:
        """Return the clocks that all instances have."""
        names = {self.graph.instances[i][0] for i in members}
        return set.intersection(*(set(self.costs[name]) for name in names))

    def _merge(self, run: _Run, neighbor: _Run) -> tuple[float, list[int], int]:
        """Return what it costs to give the slower of two stretches the other's clock, whom, and the clock."""
        slower, mhz = (
            min((run.mhz, run.members), (neighbor.mhz, neighbor.members)),
            max(run.mhz, neighbor.mhz),
        )
        return self._effective(slower[1], mhz) - self._effective(slower[1], slower[0]), slower[1], mhz

    def _effective(self, members: Sequence[int], mhz: int) -> float:
        """Return the effective energy of instances at a clock, infinite where one has no such clock."""
        names = (self.graph.instances[i][0] for i in members)
        return math.fsum(self.costs[name].get(mhz, (math.inf, math.inf))[1] for name in names)

    def lowered(self, state: _State) -> _State:
        """Lower the clock of each stretch as far as slack and limits allow and energy goes down."""
        for device in range(self.graph.num_devices):
            for run in self.runs(device, state.clock):
                state = self._lower(state, run.members, run.mhz)
        return state

    def lowered_in_parts(self, state: _State) -> _State:
        """Lower parts of each device's order likewise, whatever their clocks, longer ones first."""
        for members in self._parts():
            state = self._lower(state, members, int(state.clock[members].max()))
        return state

    def _parts(self) -> Iterator[list[int]]:
        """Yield halves, quarters, eighths ... of each device's order, down to pairs of blocks."""
        parts = 2
        while any(len(order) >= 2 * parts for order in self.orders):
            for order in filter(None, self.orders):
                for part in np.array_split(np.array(order), min(parts, len(order))):
                    yield part.tolist()
            parts *= 2

    def _lower(self, state: _State, members: Sequence[int], mhz: int) -> _State:
        """Lower instances from a common clock, by many clocks at once as long as that works."""
        clocks = sorted((each for each in self._common(members) if each < mhz), reverse=True)
        at, step = -1, 8
        while step > 0:
            lower = self._with(state, members, clocks[at + step]) if at + step < len(clocks) else None
            if lower is not None:
                state, at = lower, at + step
            else:
                step //= 2
        return state

    def _with(self, state: _State, members: Sequence[int], mhz: int) -> _State | None:
        """Return the state with instances at another clock; None where it breaks a limit or saves nothing."""
        clock = state.clock.copy()
        clock[members] = mhz
        other = self.state(clock)
        if other.effective_mj >= state.effective_mj or other.time_ms > self.latest_ms:
            return None
        return None if any(True for _ in self.too_short(other)) else other

    def one_for_each_device(self, clock: Ints) -> Ints:
        """Return one clock for all blocks of a device, or of devices that share blocks, lowered in turn.

        Where blocks have no clock in common they keep theirs.
        """
        state = self.state(clock)
        for members in self._independent():
            common = self._common(members)
            if common:
                raised = state.clock.copy()
                raised[members] = max(common)
                state = self._lower(self.state(raised), members, max(common))
        return state.clock

    def _independent(self) -> list[list[int]]:
        """Return the instances of devices that share blocks, directly or not, together."""
        groups: list[set[int]] = []
        for block in self.schedule.placement.blocks:
            joined = [group for group in groups if group & set(block.devices)]
            groups = [group for group in groups if group not in joined]
            groups.append(set(block.devices).union(*joined))
        return [sorted({i for device in sorted(group) for i in self.orders[device]}) for group in groups]
