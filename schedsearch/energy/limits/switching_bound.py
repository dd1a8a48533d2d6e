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

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.limits.switching import SwitchingProblem
from schedsearch.energy.programs import Rows, SolverError, free_timing, min_energy, minimized

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
    cheapest = problem.arrays.energy_mj.min(axis=1)[problem.arrays.row].sum()
    return float(max([cheapest, *(bound_at_prices(problem, prices) for prices in _prices(problem))]))


def bound_at_prices(problem: SwitchingProblem, edge_price_w: Floats) -> float:
    """Return the bound that prices prove.

    Args:
        problem: Problem without clock groups.
        edge_price_w: What a millisecond of each edge of the graph is worth, in millijoules; not below 0, and
            otherwise anything.
    """
    graph, arrays, size = problem.graph, problem.arrays, problem.graph.size
    fastest = arrays.time_ms.min(axis=1)[arrays.row][:, None]
    earliest = graph.earliest_start(fastest)[:, 0]
    latest = (graph.latest_end(fastest, np.array([problem.latest_ms])) - fastest)[:, 0]
    inflow = np.bincount(graph.head, edge_price_w, minlength=size)
    outflow = np.bincount(graph.tail, edge_price_w, minlength=size)
    until_end = np.maximum(inflow - outflow, 0.0)
    price = outflow + until_end
    found = float(edge_price_w @ graph.delay_ms) - problem.latest_ms * float(until_end.sum())
    found += float((price - inflow) @ earliest)
    times = arrays.time_ms[arrays.row]
    each = arrays.energy_mj[arrays.row] + price[:, None] * np.nan_to_num(times, posinf=0.0)
    shares = np.bincount(np.concatenate(problem.orders), minlength=size)
    # what a change between neighbours costs, shared among the devices where they are neighbours
    longer = np.maximum(problem.min_latency_ms - graph.delay_ms, 0.0) * edge_price_w
    dear = dict(zip(zip(graph.tail.tolist(), graph.head.tolist(), strict=True), longer.tolist(), strict=True))
    pairs = [list(pairwise(order.tolist())) for order in problem.orders]
    number = Counter(pair for each_pair in pairs for pair in each_pair)
    for order, own in zip(problem.orders, pairs, strict=True):
        if len(order):
            found += _least_of_order(
                each[order] / shares[order][:, None],
                np.array([dear.get(pair, 0.0) / number[pair] for pair in own]),
                earliest[order],
                latest[order],
                problem.limits.dwell_ms,
            )
    return found


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


def _prices(problem: SwitchingProblem) -> Iterator[Floats]:
    """Yield the prices of the relaxed problem without limits, and of that with changes of clock."""
    with contextlib.suppress(SolverError):
        relaxed = min_energy(free_timing(problem.graph, problem.curves), problem.latest_ms)
        if relaxed is not None:
            yield relaxed.edge_price
    if problem.min_latency_ms > 0 and problem.graph.size > MOST_INSTANCES:
        log.info(
            "%d block instances are more than %d: the bound under switching limits leaves out what clock "
            "changes cost, so the true gap may be smaller than the one shown",
            problem.graph.size,
            MOST_INSTANCES,
        )
    elif problem.min_latency_ms > 0:
        with contextlib.suppress(SolverError):
            yield from _prices_with_changes(problem)


def _prices_with_changes(problem: SwitchingProblem) -> Iterator[Floats]:
    """Yield the prices of the linear program in which an instance may be at several clocks in parts.

    Then a change is the part that leaves a clock. Its columns are the parts of each instance, the changes of
    each pair of neighbours, and the starts.
    """
    graph, arrays, size = problem.graph, problem.arrays, problem.graph.size
    some = _some_clocks(problem)
    clocks = len(some)
    time, energy = arrays.time_ms[arrays.row][:, some], arrays.energy_mj[arrays.row][:, some]
    is_there = np.isfinite(time)
    unit_ms, unit_mj = float(np.median(time[is_there])), float(np.ptp(energy[is_there])) or 1.0
    took = np.where(is_there, time, 0.0) / unit_ms
    adjacent, edge, everyone = np.flatnonzero(arrays.is_adjacent), np.arange(len(graph.tail)), np.arange(size)
    shares, changes = size * clocks, len(adjacent) * clocks
    share, change, start = np.arange(shares).reshape(size, clocks), np.arange(changes), shares + changes
    longer = np.maximum(problem.min_latency_ms - graph.delay_ms[adjacent], 0.0) / unit_ms
    one, ones = np.ones(len(edge)), np.ones(changes)
    parts = np.repeat(everyone, clocks), share.ravel()
    rows, whole = Rows(), Rows()
    rows.add(
        -graph.delay_ms / unit_ms,
        (np.repeat(edge, clocks), share[graph.tail].ravel(), took[graph.tail].ravel()),
        (np.repeat(adjacent, clocks), shares + change, np.repeat(longer, clocks)),
        (edge, start + graph.tail, one),
        (edge, start + graph.head, -one),
    )
    latest = np.full(size, problem.latest_ms / unit_ms)
    rows.add(latest, (*parts, took.ravel()), (everyone, start + everyone, np.ones(size)))
    rows.add(
        np.zeros(changes),
        (change, share[graph.head[adjacent]].ravel(), ones),
        (change, share[graph.tail[adjacent]].ravel(), -ones),
        (change, shares + change, -ones),
    )
    whole.add(np.ones(size), (*parts, np.ones(shares)))
    upper = np.concatenate([is_there.ravel(), np.full(changes + size, np.inf)])
    cost = np.concatenate([np.where(is_there, energy, 0.0).ravel() / unit_mj, np.zeros(changes + size)])
    answer = minimized(cost, upper, rows, equal=whole)
    if answer is not None:
        yield np.maximum(-np.asarray(answer.ineqlin.marginals)[: len(edge)], 0.0) * unit_mj / unit_ms


def _some_clocks(problem: SwitchingProblem) -> Ints:
    """Return the columns of a few clocks, with the fastest of each block among them."""
    number, most = len(problem.clock_mhz), max(FEWEST_CLOCKS, MOST_SHARES // problem.graph.size)
    spread = np.linspace(0, number - 1, min(most, number)).round()
    return np.unique(np.concatenate([spread.astype(np.int64), problem.arrays.time_ms.argmin(axis=1)]))
