"""What no plan under switching limits can beat, by prices for time: each device's order is then on its own.

With a price for every wait of one block for another (the flow of a relaxed problem; any prices make a valid
bound), the starts drop out, and what is left is a choice of clocks for each device: energy, plus the price
of the time of its blocks, plus, at each change of clock, the price of the latency there. Going through the
order once, with a stretch of blocks of one clock after the other, finds the least of these. Two changes whose
windows of time lie closer together than the dwell exclude each other.

The bound is of timetables in which a block may also start later than it could. What the change between
iterations costs is left out.
"""

from __future__ import annotations

import logging
from itertools import pairwise

import numpy as np

from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.relaxed.highs import Rows, SolverError, SolverStatus, minimized, status_of
from schedsearch.energy.relaxed.timing_program import free_timing, min_energy
from schedsearch.energy.switching.model import SwitchingProblem

log = logging.getLogger(__name__)

MOST_INSTANCES = 400
"""Up to so many, the prices come from the problem with changes of clock too, within seconds."""

MOST_SHARES = 2500
"""About so many pairs of instance and clock are in that problem; at least `FEWEST_CLOCKS` clocks each."""

FEWEST_CLOCKS = 6
"""Clocks, spread evenly, that are in that problem. The bound is of all clocks, whatever the prices."""


def min_effective_mj(problem: SwitchingProblem) -> float:
    """Return an effective energy that no plan within the limits is below.

    Args:
        problem: Problem without clock groups; its `latest_ms` is kept by some plan.
    """
    found = [bound_at_prices(problem, prices) for prices in _prices(problem)]
    lowest = sum(
        np.where(np.isfinite(problem.costs.energy_mj), problem.costs.energy_mj, np.inf).min(axis=1)[
            problem.costs.row
        ]
    )
    return float(max([lowest, *found]))


def bound_at_prices(problem: SwitchingProblem, edge_price_w: Floats) -> float:
    """Return the bound that prices prove.

    Args:
        problem: Problem without clock groups.
        edge_price_w: What a millisecond of each of `SwitchingProblem.waits` is worth, in millijoules; not
            below 0, and otherwise anything.
    """
    waits, size = problem.waits, problem.graph.size
    earliest, latest = _windows(problem)
    inflow = np.bincount(waits.head, edge_price_w, minlength=size)
    outflow = np.bincount(waits.tail, edge_price_w, minlength=size)
    until_end = np.maximum(inflow - outflow, 0.0)
    price = outflow + until_end
    of_starts = float((price - inflow) @ earliest)
    fixed = float(edge_price_w @ waits.delay_ms) - problem.latest_ms * float(until_end.sum()) + of_starts
    costs = problem.costs
    with np.errstate(invalid="ignore"):
        each = costs.energy_mj[costs.row] + price[:, None] * costs.time_ms[costs.row]
    each = np.where(np.isfinite(costs.time_ms[costs.row]), each, np.inf)
    changing = _price_of_changes(problem, edge_price_w)
    shares = np.bincount(np.concatenate(problem.orders), minlength=size)
    chains = (
        _least_of_order(
            each[order] / shares[order][:, None],
            np.array([changing.get(pair, 0.0) for pair in pairwise(order.tolist())]),
            earliest[order],
            latest[order],
            problem.limits.dwell_ms,
        )
        for order in problem.orders
        if len(order)
    )
    return fixed + sum(chains)


def _windows(problem: SwitchingProblem) -> tuple[Floats, Floats]:
    """Return the earliest and latest start of each instance, whatever the clocks."""
    fastest = problem.costs.time_ms.min(axis=1)[problem.costs.row][:, None]
    earliest = problem.graph.earliest_start(fastest)
    latest = problem.graph.latest_end(fastest, np.array([problem.latest_ms])) - fastest
    return earliest[:, 0], latest[:, 0]


def _price_of_changes(problem: SwitchingProblem, edge_price_w: Floats) -> dict[tuple[int, int], float]:
    """Return what a change between neighbors costs, shared among the devices where they are neighbors."""
    waits = problem.waits
    longer = np.maximum(problem.min_latency_ms - waits.delay_ms, 0.0) * edge_price_w
    shared: dict[tuple[int, int], int] = {}
    for order in problem.orders:
        for pair in pairwise(order.tolist()):
            shared[pair] = shared.get(pair, 0) + 1
    edges = zip(waits.tail.tolist(), waits.head.tolist(), longer.tolist(), strict=True)
    return {(a, b): price / shared[a, b] for a, b, price in edges if (a, b) in shared}


def _least_of_order(
    cost: Floats, change: Floats, earliest_ms: Floats, latest_ms: Floats, dwell_ms: float
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
    begun = np.full((blocks, clocks), np.inf)
    running = np.full(clocks, np.inf)
    ripe = 0
    for q in range(1, blocks):
        while ripe + 1 < q and latest_ms[q] - earliest_ms[ripe + 1] >= dwell_ms * (1 - TIME_TOLERANCE):
            ripe += 1
            running = np.minimum(np.where(lacks[ripe - 1], np.inf, running), begun[ripe])
        before = np.where(lacking[q] == lacking[ripe], running + until[q], np.inf)
        begun[q] = change[q - 1] + np.minimum(first[q], before).min() - until[q]
    whole = first[blocks].min()
    if blocks > 1:
        last = np.where(lacking[blocks] == lacking[:blocks], begun + until[blocks], np.inf)
        whole = min(whole, last.min())
    return float(whole)


def _prices(problem: SwitchingProblem) -> list[Floats]:
    """Return the prices of the relaxed problem without limits, and of that with changes of clock."""
    timing = free_timing(problem.graph, problem.curves)
    zero = np.zeros(len(problem.waits.tail))
    try:
        relaxed = min_energy(timing, problem.latest_ms)
    except SolverError:
        relaxed = None
    if relaxed is None:  # `latest_ms` is kept by some plan: nothing is known, and any prices make a bound
        return [zero]
    place = {edge: k for k, edge in enumerate(zip(problem.waits.tail, problem.waits.head, strict=True))}
    free = zero.copy()
    edges = zip(timing.tail, timing.head, relaxed.edge_price, strict=True)
    for a, b, price in edges:
        free[place[a, b]] = price
    found = [free]
    if problem.min_latency_ms > 0 and problem.graph.size > MOST_INSTANCES:
        log.info(
            "%d block instances are more than %d: the bound under switching limits leaves out what clock "
            "changes cost, so the true gap may be smaller than the one shown",
            problem.graph.size,
            MOST_INSTANCES,
        )
    elif problem.min_latency_ms > 0:
        with_changes = _prices_with_changes(problem)
        found += [] if with_changes is None else [with_changes]
    return found


def _prices_with_changes(problem: SwitchingProblem) -> Floats | None:
    """Return the prices of the linear program in which an instance may be at several clocks in parts.

    Then a change is the part that leaves a clock. None where the solver has no answer, for whatever reason:
    other prices make a bound as well.
    """
    waits, costs, size = problem.waits, problem.costs, problem.graph.size
    some = _some_clocks(problem)
    clocks = len(some)
    time, energy = costs.time_ms[costs.row][:, some], costs.energy_mj[costs.row][:, some]
    is_there = np.isfinite(time)
    unit_ms = float(np.median(time[is_there]))
    unit_mj = float(np.ptp(energy[is_there])) or 1.0
    adjacent = np.flatnonzero(waits.is_adjacent)
    shares, changes = size * clocks, len(adjacent) * clocks
    longer = np.maximum(problem.min_latency_ms - waits.delay_ms[adjacent], 0.0) / unit_ms
    starts = shares + changes
    rows = Rows()
    everyone = np.arange(size)
    share = np.arange(shares).reshape(size, clocks)
    took = np.where(is_there, time, 0.0) / unit_ms
    edge = np.arange(len(waits.tail))
    rows.add(
        -waits.delay_ms / unit_ms,
        (np.repeat(edge, clocks), share[waits.tail].ravel(), took[waits.tail].ravel()),
        (
            np.repeat(adjacent, clocks),
            shares + np.arange(changes),
            np.repeat(longer, clocks),
        ),
        (edge, starts + waits.tail, np.ones(len(edge))),
        (edge, starts + waits.head, -np.ones(len(edge))),
    )
    rows.add(
        np.full(size, problem.latest_ms / unit_ms),
        (np.repeat(everyone, clocks), share.ravel(), took.ravel()),
        (everyone, starts + everyone, np.ones(size)),
    )
    number = np.arange(changes)
    rows.add(
        np.zeros(changes),
        (number, share[waits.head[adjacent]].ravel(), np.ones(changes)),
        (number, share[waits.tail[adjacent]].ravel(), -np.ones(changes)),
        (number, shares + number, -np.ones(changes)),
    )
    upper = np.full(starts + size, np.inf)
    upper[:shares] = is_there.ravel()
    one = Rows()
    one.add(np.ones(size), (np.repeat(everyone, clocks), share.ravel(), np.ones(shares)))
    cost = np.concatenate([np.where(is_there, energy, 0.0).ravel() / unit_mj, np.zeros(changes + size)])
    answer = minimized(cost, upper, rows, equal=one)
    if status_of(answer) is not SolverStatus.OPTIMAL:
        return None
    price: Floats = np.maximum(-np.asarray(answer.ineqlin.marginals)[: len(edge)], 0.0) * unit_mj / unit_ms
    return price


def _some_clocks(problem: SwitchingProblem) -> Ints:
    """Return the columns of a few clocks, with the fastest of each block among them."""
    costs = problem.costs
    most = max(FEWEST_CLOCKS, MOST_SHARES // problem.graph.size)
    spread = np.linspace(0, len(costs.clock_mhz) - 1, min(most, len(costs.clock_mhz))).round()
    return np.unique(np.concatenate([spread.astype(np.int64), costs.time_ms.argmin(axis=1)]))
