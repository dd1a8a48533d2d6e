"""The clock problem: a schedule whose blocks each run in one of some modes, and the cost of chosen modes.

A mode is a clock with the time and the effective energy that a block has there. A block that can be computed
in several configurations has a mode for each clock and configuration. The modes of a placement, such as
``recompute``, are not these: they are chosen before, and each has its own cost at each clock. Everything that
plans clocks is handed this problem: it has the graph of the schedule, the modes, and the bound, each made
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements import Profile
from schedsearch.energy.cost import CostCurve, cost_curves, undominated
from schedsearch.energy.frontier import FrequencyPlan, LowerBound
from schedsearch.energy.graph import Floats, InstanceGraph, Ints, instance_graph
from schedsearch.energy.relaxation import breakpoints
from schedsearch.energy.simulation import WaitingPower, simulate_at_clocks, simulated_plan, waiting_w
from schedsearch.schedule import Schedule

Clocks = Mapping[str, tuple[int, ...]]
"""For each block one clock per micro-batch, in MHz, and with its configuration if the block has several."""


@dataclass(frozen=True, eq=False)
class ModeTable:
    """The modes of all instances in one array, padded with infinite times.

    Attributes:
        row: Row of each instance's block in the other fields; shape ``(instances,)``.
        clock: Clock of each mode, with its configuration if it has one; shape ``(blocks, most modes)``.
        time_ms: Ascending in each row.
        energy_mj: Effective energy on all devices of the block; the padding is infinite.
    """

    row: Ints
    clock: NDArray[Any]
    time_ms: Floats
    energy_mj: Floats

    @classmethod
    def of(cls, runs: Sequence[str], curves: Mapping[str, CostCurve]) -> ModeTable:
        """Return the modes of instances, by the names under which the curves have their costs."""
        rows = {name: row for row, name in enumerate(curves)}
        shape = (len(rows), max(len(curve.time_ms) for curve in curves.values()))
        clock, (time, energy) = np.zeros(shape, dtype=object), np.full((2, *shape), np.inf)
        for row, curve in enumerate(curves.values()):
            cells = row, slice(len(curve.time_ms))
            clock[cells], time[cells], energy[cells] = curve.clocks, curve.time_ms, curve.energy_mj
        return cls(np.array([rows[name] for name in runs]), clock, time, energy)

    @cached_property
    def clock_mhz(self) -> Ints:
        """The clock of each mode alone."""
        return self.clock.astype(np.int64)

    def times(self, choice: Ints) -> Floats:
        """Return the time of each instance in the chosen modes, in ms; shape ``(instances, plans)``."""
        return self.time_ms[self.row[:, None], choice]

    def energy(self, choice: Ints) -> Floats:
        """Return the effective energy of all instances together; shape ``(plans,)``."""
        energy: Floats = self.energy_mj[self.row[:, None], choice].sum(axis=0)
        return energy

    @cached_property
    def last(self) -> Ints:
        """The slowest mode of each instance, its mode of least energy; shape ``(instances,)``."""
        last: Ints = np.isfinite(self.time_ms).sum(axis=1)[self.row] - 1
        return last

    def slowest_within(self, allowed_ms: Floats) -> Ints:
        """Return the slowest modes that take no longer, or the fastest; shape ``(instances, plans)``."""
        choice = np.empty(allowed_ms.shape, dtype=np.int64)
        for row, times in enumerate(self.time_ms):
            members = np.flatnonzero(self.row == row)
            choice[members] = np.searchsorted(times, allowed_ms[members], side="right") - 1
        return np.maximum(choice, 0)


@dataclass(frozen=True)
class ClockProblem:
    """A schedule whose clocks are to be chosen.

    Attributes:
        schedule: Valid; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        known_bound: The lower bound of every plan; None to compute it.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
    """

    schedule: Schedule
    profile: Profile
    known_bound: LowerBound | None = None

    def __post_init__(self) -> None:
        self.profile.require(self.schedule.placement)

    @cached_property
    def graph(self) -> InstanceGraph:
        """The graph of the schedule's instances and their waits."""
        return instance_graph(self.schedule)

    @cached_property
    def curves(self) -> dict[str, CostCurve]:
        """The cost curve of each block in each of its modes."""
        return cost_curves(self.schedule.placement, self.profile)

    @cached_property
    def table(self) -> ModeTable:
        """The modes of all instances."""
        return ModeTable.of(self.graph.runs, self.curves)

    @cached_property
    def hulls(self) -> ModeTable:
        """The modes of all instances on the lower convex hulls alone."""
        return ModeTable.of(
            self.graph.runs, {name: curve.only(curve.hull) for name, curve in self.curves.items()}
        )

    @cached_property
    def waiting_w(self) -> float:
        """The power of all devices while all wait at the clock of least power."""
        return waiting_w(self.schedule.placement, self.profile)

    @cached_property
    def waiting(self) -> WaitingPower:
        """The power of waiting devices, by device and clock."""
        return WaitingPower.of(self.schedule, self.profile, self.graph)

    @cached_property
    def bound(self) -> LowerBound:
        """The lower bound of every plan's energy: the relaxed frontier."""
        if self.known_bound is not None:
            return self.known_bound
        points = breakpoints(self.graph, self.curves)
        return LowerBound.of([(point.time_ms, point.energy_mj) for point in points], self.waiting_w)

    @cached_property
    def span_ms(self) -> tuple[float, float]:
        """T_min and T*: the iteration's length in ms in the fastest modes and in the least-energy modes."""
        ends = np.column_stack([np.zeros_like(self.table.last), self.table.last])
        shortest, longest = self.graph.makespan(self.table.times(ends)).tolist()
        return shortest, longest

    def clocks(self, choice: Ints) -> list[dict[str, tuple[int, ...]]]:
        """Return the clocks of each plan of a choice of modes; shape ``(instances, plans)``."""
        return clocks_by_block(self.graph, self.table.clock[self.table.row[:, None], choice])

    def plan(self, clock_mhz: Clocks, lower_bound_mj: float | None = None) -> FrequencyPlan:
        """Return the plan of given clocks; its bound is the relaxed problem's if none is given."""
        done = simulate_at_clocks(self.schedule, self.profile, clock_mhz, self.graph)
        min_mj = self.bound.at(done.time_ms) if lower_bound_mj is None else lower_bound_mj
        return simulated_plan(clock_mhz, done, min_mj)

    def pareto_plans(self, choices: Iterable[Clocks]) -> tuple[FrequencyPlan, ...]:
        """Return the plans of some clocks that no other of them beats, in the order of `Frontier.plans`."""
        plans = [self.plan(clock_mhz) for clock_mhz in choices]
        min_w = self.waiting_w
        kept = undominated(
            np.array([plan.time_ms for plan in plans]),
            np.array([plan.energy_mj - min_w * plan.time_ms for plan in plans]),
            np.array([0.0 if plan.waiting_w is None else plan.waiting_w - min_w for plan in plans]),
        )
        return tuple(plans[i] for i in kept.tolist())


def clocks_by_block(graph: InstanceGraph, clock: NDArray[Any] | Ints) -> list[dict[str, tuple[int, ...]]]:
    """Return for each plan the clocks of each block, by micro-batch; shape ``(instances, plans)``."""
    members: dict[str, list[tuple[int, int]]] = {}
    for i, (name, n) in enumerate(graph.instances):
        members.setdefault(name, []).append((n, i))
    rows = {name: clock[[i for _, i in sorted(pairs)]].T.tolist() for name, pairs in members.items()}
    return [{name: tuple(rows[name][plan]) for name in rows} for plan in range(clock.shape[1])]
