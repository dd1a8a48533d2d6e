"""Plans whose clocks change seldom, and a lower bound of their energy.

The bound is by prices for time: each device's order is then on its own.

With a price for every wait of one block for another (the flow of a relaxed problem; any prices make a valid
bound), the starts drop out, and what is left is a choice of clocks for each device: energy, plus the price
of the time of its blocks, plus, at each change of clock, the price of the latency there. Going through the
order once, with a stretch of blocks of one clock after the other, finds the least of these. Two changes whose
windows of time lie closer together than the dwell exclude each other.

The bound also covers timetables in which a block starts later than it could. The cost of a change between
iterations is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placements import Profile
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier, proved
from schedsearch.energy.graph import EnergyError, Floats, Ints
from schedsearch.energy.limits.switching import (
    ClockChanges,
    SwitchingLimits,
    SwitchingProblem,
    changes_per_iteration,
    num_clock_changes,
)
from schedsearch.energy.problem import Clocks, clocks_by_block
from schedsearch.energy.programs import free_timing, min_energy
from schedsearch.energy.simulation import simulated_plan
from schedsearch.schedule import Schedule, require_one_stream

SHARES = (1.0, 0.985, 0.97, 0.85)
"""Shares of the deadline whose shadow prices and their means are tried, as changes of clock take time."""


@dataclass(frozen=True, eq=False)
class SwitchedPlan:
    """The best plan that was found under switching limits, with its bound and the plan without limits.

    Attributes:
        plan: Clocks, and time and energy of the iteration as they are under the limits; its own lower bound
            is of plans without.
        limits: Limits that it keeps.
        changes: Changes of clock, with the simulation that has the waits for them.
        free: The frontier's plan for the same deadline, without limits.
        deadline_ms: Deadline that both plans keep.
        energy_mj: Energy of all devices until the deadline, where they wait at the least after the end.
        lower_bound_mj: Lower bound of the energy until then of plans under the limits.
    """

    plan: FrequencyPlan
    limits: SwitchingLimits
    changes: ClockChanges
    free: FrequencyPlan
    deadline_ms: float
    energy_mj: float
    lower_bound_mj: float

    @property
    def gap(self) -> float:
        """Return the gap of the energy until the deadline above its lower bound, as a share of the bound."""
        return self.energy_mj / self.lower_bound_mj - 1 if self.lower_bound_mj > 0 else math.nan


def switched_plan(
    schedule: Schedule, profile: Profile, frontier: Frontier, limits: SwitchingLimits, deadline_ms: float
) -> SwitchedPlan:
    """Return a plan of little energy that keeps both the switching limits and the deadline.

    Raises:
        ProfileError: The profile has several configurations for a clock.
        EnergyError: The deadline is too short, or no plan was found that keeps it under the limits.
        PlacementError: Devices have several streams.
    """
    require_one_stream(schedule.placement, "a plan of few changes of clock", "leave its limits at 0")
    free = frontier.at(deadline_ms)
    latest_ms = deadline_ms * (1 + TIME_TOLERANCE)
    problem = SwitchingProblem(schedule, profile, frontier.relaxed, limits, latest_ms)
    price_w = problem.bound.price_w(deadline_ms)
    return plan_under_limits(problem, free.clock_mhz, free, deadline_ms, price_w)[1]


def plan_under_limits(
    problem: SwitchingProblem, clock_mhz: Clocks, free: FrequencyPlan, deadline_ms: float, price_w: float
) -> tuple[Ints, SwitchedPlan]:
    """Return the plan of least energy found under the limits, and the column of each instance's clock.

    Simulated annealing changes the clocks of stretches, from the plan without limits, and from one clock for
    all blocks.

    Args:
        problem: Where it has clock groups, plans are sought in which each group has one clock.
        clock_mhz: Clocks of a plan without limits; as one clock for each group.
        free: The plan of the frontier.
        deadline_ms: Deadline that both keep.
        price_w: Shadow price of time there.

    Raises:
        EnergyError: None was found that keeps the limits.
    """
    from schedsearch.energy.limits.annealing import annealed

    limits, waiting_mj = problem.limits, problem.waiting_w * deadline_ms
    kept, tried = [], [problem.columns(clock_mhz)]
    if not limits.are_none:
        tried.append(problem.at_one_clock())
        tried += annealed(problem.arrays, tried, price_w)
    for column in tried:
        iteration, over_ms = problem.simulated(column)
        if over_ms <= 0:
            kept.append((iteration.energy_mj - problem.waiting_w * iteration.time_ms, column, iteration))
    if not kept:
        which = "no plan that was found" if problem.group is None else "no plan that repeats and was found"
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.12g} is kept by {which} under a dwell of {limits.dwell_ms:g} ms and "
            f"{limits.latency_ms:g} ms per change of clock; give more time"
        )
    effective_mj, column, iteration = min(kept, key=lambda candidate: candidate[0])
    (clocks,) = clocks_by_block(problem.graph, problem.clock_mhz[column][:, None])
    plan = simulated_plan(clocks, iteration, problem.bound.at(iteration.time_ms))
    schedule, energy_mj = problem.schedule, effective_mj + waiting_mj
    changes = ClockChanges(
        iteration, num_clock_changes(schedule, clocks), changes_per_iteration(schedule, clocks)
    )
    bound_mj = proved(min_effective_mj(problem) + waiting_mj, energy_mj)
    return column, SwitchedPlan(plan, limits, changes, free, deadline_ms, energy_mj, bound_mj)


def min_effective_mj(problem: SwitchingProblem) -> float:
    """Return an effective energy that no plan within the limits is below, without clock groups.

    Some plan keeps the problem's `latest_ms`.
    """
    bounds = [float(problem.arrays.energy_mj.min(axis=1)[problem.arrays.row].sum())]
    timing = free_timing(problem.graph, problem.curves)
    lengths_ms = (max(share * problem.latest_ms, problem.span_ms[0]) for share in SHARES)
    relaxed = (min_energy(timing, ms) for ms in lengths_ms)
    prices = [times.edge_price for times in relaxed if times is not None]
    means = [np.mean(prices[:count], axis=0) for count in range(2, len(prices) + 1)]
    bounds += [bound_at_prices(problem, price) for price in (*prices, *means)]
    return max(bounds)


def bound_at_prices(problem: SwitchingProblem, edge_price_w: Floats) -> float:
    """Return the bound that prices prove, without clock groups.

    They are what a millisecond of each edge of the graph is worth, in mJ; not below 0, and otherwise
    anything.
    """
    graph, arrays, size = problem.graph, problem.arrays, problem.graph.size
    fastest = arrays.time_ms.min(axis=1)[arrays.row][:, None]
    earliest = graph.earliest_start(fastest)[:, 0]
    latest = (graph.latest_end(fastest, np.array([problem.latest_ms])) - fastest)[:, 0]
    inflow = np.bincount(graph.head, edge_price_w, minlength=size)
    outflow = np.bincount(graph.tail, edge_price_w, minlength=size)
    until_end = np.maximum(inflow - outflow, 0.0)
    price = outflow + until_end
    bound = float(edge_price_w @ graph.delay_ms) - problem.latest_ms * float(until_end.sum())
    bound += float((price - inflow) @ earliest)
    times = np.nan_to_num(arrays.time_ms[arrays.row], posinf=0.0)
    shares = np.bincount(np.concatenate(problem.waiting.orders), minlength=size)
    cost = (arrays.energy_mj[arrays.row] + price[:, None] * times) / np.maximum(shares, 1)[:, None]
    # what the quickest change between neighbours costs, shared among the devices where they are neighbours
    others = ~np.eye(len(problem.clock_mhz), dtype=np.bool_)
    latency_ms = arrays.latency_ms[others].min(initial=problem.limits.latency_ms)
    longer = np.maximum(latency_ms - graph.delay_ms, 0.0) * edge_price_w
    dear = dict(zip(zip(graph.tail.tolist(), graph.head.tolist(), strict=True), longer.tolist(), strict=True))
    number = Counter(pair for order in problem.waiting.orders for pair in pairwise(order.tolist()))
    for order in problem.waiting.orders:
        if len(order):
            change = [dear.get(pair, 0.0) / number[pair] for pair in pairwise(order.tolist())]
            windows = earliest[order], latest[order], problem.limits.dwell_ms * (1 - TIME_TOLERANCE)
            bound += _least_of_order(cost[order], change, *windows)
    return bound


def _least_of_order(
    cost: Floats, change: list[float], earliest_ms: Floats, latest_ms: Floats, dwell_ms: float
) -> float:
    """Return the least cost of clocks for an order of blocks.

    The first stretch may be short, as it may be one with that before, and so may the last.

    Args:
        cost: Cost of each block at each clock, infinite where the block does not have the clock; shape
            ``(blocks, clocks)``.
        change: Cost of a change before each block but the first.
        earliest_ms: Start of each block.
        latest_ms: Likewise.
        dwell_ms: Least time from change to change.
    """
    blocks, clocks = cost.shape
    lacks = ~np.isfinite(cost)
    lacking = np.vstack([np.zeros((1, clocks), dtype=np.int64), lacks.cumsum(axis=0)])
    until = np.vstack([np.zeros((1, clocks)), np.where(lacks, 0.0, cost).cumsum(axis=0)])
    first = np.where(lacking == 0, until, np.inf)
    begun = np.full((blocks, clocks), np.inf)  # the least until a stretch begins, less `until`
    running = np.full(clocks, np.inf)
    ripe = 0  # the last change that is a dwell before
    for q in range(1, blocks):
        while ripe + 1 < q and latest_ms[q] - earliest_ms[ripe + 1] >= dwell_ms:
            ripe += 1
            running = np.minimum(np.where(lacks[ripe - 1], np.inf, running), begun[ripe])
        before = np.where(lacking[q] == lacking[ripe], running + until[q], np.inf)
        begun[q] = change[q - 1] + np.minimum(first[q], before).min() - until[q]
    last = np.where(lacking[blocks] == lacking[:blocks], begun + until[blocks], np.inf)
    return float(min(first[blocks].min(), last.min()))
