"""The clock problem: a schedule whose blocks each run in one of some modes, and what a choice of modes does.

A mode is a clock with the time and the effective energy that a block has there. A block that can be computed
in several configurations has a mode for each clock and configuration. The modes of a placement, such as
``recompute``, are not these: they are chosen before, and each has its own cost at each clock. Everything that
plans clocks is handed this problem: it has the graph of the schedule, the modes, and the bound, each made
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements import Profile
from placements.profiles.operating_point import Clock
from schedsearch.energy.bound import LowerBound, lower_bound
from schedsearch.energy.cost import CostCurve, cost_curves
from schedsearch.energy.frontier import FrequencyPlan
from schedsearch.energy.graph import Floats, InstanceGraph, Ints, device_orders, instance_graph
from schedsearch.energy.simulation import simulate_at_clocks, simulated_plan
from schedsearch.energy.waiting import WaitingPower, undominated, waiting_w
from schedsearch.schedule import Schedule

Clocks = Mapping[str, tuple[int, ...]]
"""For each block one clock per micro-batch, in MHz, and with its configuration if the block has several."""


@dataclass(frozen=True, eq=False)
class ModeTable:
    """The modes of all instances in one array, padded with infinite times.

    Attributes:
        row: Row of each instance's block in the other fields; shape ``(instances,)``.
        clock_mhz: Shape ``(blocks, most modes)``; the padding is 0.
        time_ms: Ascending in each row.
        energy_mj: Effective energy on all devices of the block; the padding is infinite.
        next_on_hull: For each mode the first slower one on the lower convex hull, or the last mode.
        last_on_hull: For each mode itself or the first faster one, whichever is on the hull.
        config: Configuration of each mode; None where no block has any.
    """

    row: Ints
    clock_mhz: Ints
    time_ms: Floats
    energy_mj: Floats
    next_on_hull: Ints
    last_on_hull: Ints
    config: NDArray[Any] | None = None

    @cached_property
    def clock(self) -> NDArray[Any] | Ints:
        """The clock of each mode, with its configuration if it has one; shape ``(blocks, most modes)``."""
        if self.config is None:
            return self.clock_mhz
        named = np.frompyfunc(lambda mhz, config: Clock(mhz, config) if config else int(mhz), 2, 1)
        clock: NDArray[Any] = named(self.clock_mhz, self.config)
        return clock

    def times(self, choice: Ints) -> Floats:
        """Return how long each instance takes in the chosen modes; shape ``(instances, plans)``."""
        times: Floats = self.time_ms[self.row[:, None], choice]
        return times

    def energy(self, choice: Ints) -> Floats:
        """Return the effective energy of all instances together; shape ``(plans,)``."""
        energy: Floats = self.energy_mj[self.row[:, None], choice].sum(axis=0)
        return energy

    @cached_property
    def last(self) -> Ints:
        """The slowest mode of each instance, that of its least energy; shape ``(instances,)``."""
        last: Ints = np.isfinite(self.time_ms).sum(axis=1)[self.row] - 1
        return last

    def slowest_within(self, members: Ints, allowed_ms: Floats) -> Ints:
        """Return each member's slowest mode that takes no longer than allowed, or its fastest.

        Args:
            members: Indices of instances.
            allowed_ms: Shape ``(members, plans)``.
        """
        choice = np.empty(allowed_ms.shape, dtype=np.int64)
        for i, row in enumerate(self.row[members].tolist()):
            choice[i] = self.time_ms[row].searchsorted(allowed_ms[i], side="right")
        return np.maximum(choice - 1, 0)


def mode_table(graph: InstanceGraph, curves: Mapping[str, CostCurve]) -> ModeTable:
    """Return the modes of all instances of a graph."""
    names = list(curves)
    shape = (len(names), max(len(curve.time_ms) for curve in curves.values()))
    table = ModeTable(
        row=np.array([names.index(name) for name in graph.runs]),
        clock_mhz=np.zeros(shape, dtype=np.int64),
        time_ms=np.full(shape, np.inf),
        energy_mj=np.full(shape, np.inf),
        next_on_hull=np.zeros(shape, dtype=np.int64),
        last_on_hull=np.zeros(shape, dtype=np.int64),
        config=np.full(shape, "", dtype=object) if any(curve.config for curve in curves.values()) else None,
    )
    for row, curve in enumerate(curves.values()):
        count = len(curve.time_ms)
        after = np.searchsorted(curve.hull, np.arange(count), side="right")
        table.clock_mhz[row, :count] = curve.clock_mhz
        if table.config is not None and curve.config:
            table.config[row, :count] = curve.config
        table.time_ms[row, :count] = curve.time_ms
        table.energy_mj[row, :count] = curve.energy_mj
        table.next_on_hull[row, :count] = curve.hull[np.minimum(after, len(curve.hull) - 1)]
        table.last_on_hull[row, :count] = curve.hull[after - 1]
    return table


@dataclass(frozen=True)
class ClockProblem:
    """A schedule whose clocks are to be chosen.

    Attributes:
        schedule: Valid; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        known_bound: What no plan can beat, where it is at hand.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
    """

    schedule: Schedule
    profile: Profile
    known_bound: LowerBound | None = None

    def __post_init__(self) -> None:
        """Check that every block has a cost."""
        self.profile.require(self.schedule.placement)

    @cached_property
    def graph(self) -> InstanceGraph:
        """Who waits for whom."""
        return instance_graph(self.schedule)

    @cached_property
    def orders(self) -> tuple[Ints, ...]:
        """The indices of each device's instances, in its order."""
        return tuple(device_orders(self.schedule, self.graph))

    @cached_property
    def curves(self) -> dict[str, CostCurve]:
        """The cost curve of each block in each of its modes."""
        return cost_curves(self.schedule.placement, self.profile)

    @cached_property
    def table(self) -> ModeTable:
        """The modes of all instances."""
        return mode_table(self.graph, self.curves)

    @cached_property
    def waiting_w(self) -> float:
        """The power of all devices while all wait at the clock of least power."""
        return waiting_w(self.schedule.placement, self.profile)

    @cached_property
    def waiting(self) -> WaitingPower | None:
        """Who waits at which power, where the blocking power depends on the clock."""
        return WaitingPower.of(self.schedule, self.profile, self.graph)

    @cached_property
    def bound(self) -> LowerBound:
        """What no plan can beat."""
        if self.known_bound is not None:
            return self.known_bound
        return lower_bound(self.graph, self.curves, self.waiting_w)

    @cached_property
    def span_ms(self) -> tuple[float, float]:
        """T_min and T*: the lengths of the iteration in the fastest modes, and in those of least energy."""
        ends = np.column_stack([np.zeros_like(self.table.last), self.table.last])
        shortest, longest = self.graph.makespan(self.table.times(ends)).tolist()
        return shortest, longest

    def clocks(self, choice: Ints) -> list[dict[str, tuple[int, ...]]]:
        """Return the clocks of each plan of a choice of modes; shape ``(instances, plans)``."""
        return clocks_by_block(self.graph, self.table.clock[self.table.row[:, None], choice])

    def plan(self, clock_mhz: Clocks, lower_bound_mj: float | None = None) -> FrequencyPlan:
        """Return what comes of some clocks; the bound is that of the relaxed problem if none is given."""
        done = simulate_at_clocks(self.schedule, self.profile, clock_mhz, self.graph)
        min_mj = self.bound.at(done.time_ms) if lower_bound_mj is None else lower_bound_mj
        return simulated_plan(clock_mhz, done, min_mj)

    def pareto_plans(self, choices: Iterable[Clocks]) -> tuple[FrequencyPlan, ...]:
        """Return the plans of some clocks that no other of them beats in both time and effective energy.

        These are by strictly increasing time and strictly decreasing effective energy, as in `Frontier`.
        Where the blocking power depends on the clock, they are those that no other beats at every deadline.
        """
        plans = [self.plan(clock_mhz) for clock_mhz in choices]
        min_w = self.waiting_w
        kept = undominated(
            np.array([plan.time_ms for plan in plans]),
            np.array([plan.energy_mj - min_w * plan.time_ms for plan in plans]),
            np.array([0.0 if plan.waiting_w is None else plan.waiting_w - min_w for plan in plans]),
        )
        return tuple(plans[i] for i in kept.tolist())

    def for_every_micro_batch(self, clock_of: Mapping[str, int]) -> Clocks:
        """Return one clock for each block, in each of its modes, as clocks of all its micro-batches."""
        run_name = self.schedule.run_name
        return {
            name: tuple(clock_of[run_name(name, n)] for n in runs)
            for name, runs in self.schedule.runs_of.items()
        }


def clocks_by_block(graph: InstanceGraph, clock: NDArray[Any] | Ints) -> list[dict[str, tuple[int, ...]]]:
    """Return for each plan the clocks of each block, by micro-batch.

    Args:
        graph: Graph whose instances the clocks are of.
        clock: Shape ``(instances, plans)``.
    """
    members: dict[str, list[tuple[int, int]]] = {}
    for i, (name, n) in enumerate(graph.instances):
        members.setdefault(name, []).append((n, i))
    rows = {name: clock[[i for _, i in sorted(pairs)]].T.tolist() for name, pairs in members.items()}
    return [{name: tuple(rows[name][plan]) for name in rows} for plan in range(clock.shape[1])]
