"""The exact frontier if blocks could take any time between their options (Perseus, Sec. 4.2-4.3, App. D).

With a convex, piecewise linear cost of time, the least energy for every length of the iteration is one
parametric linear program. Its dual is a flow whose amount is the price of time: how much energy one more
millisecond saves. Each instance is an arc from its start to its end which takes more flow the faster the
instance runs:

    flow       0 ........ s2 ........ s1 ........ no limit
    length        t2           t1          t0                 slowest to fastest option on the hull,
                                                              s2 < s1 the powers between them

Precedence is an arc without limit, as long as the transfer. The dual is a flow of greatest length, and
successive longest paths trace it: at every length of the iteration the arcs without slack carry as much
flow as they can, which is a minimum cut; then all times move until another arc loses its slack.

Perseus shortens the iteration by a fixed unit of time per cut. We move to the next breakpoint, because
between two breakpoints the best times are linear. Perseus finds the maximum flow with lower bounds by a
detour over a second network (App. D.2); we keep the flow of the last step, whose residual network has no
lower bounds. Times and powers are whole numbers here, so there are no tolerances.

Node ``2i`` is the start and ``2i + 1`` the end of instance i; then come the source and the sink.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints

TICKS_PER_ITERATION = 2**44
"""Whole numbers that stand for the slowest iteration; path lengths stay exact as 64-bit floats."""

UNITS_PER_MEDIAN_POWER = 2**28
"""Whole numbers that stand for the median power between two options."""

MOST_UNITS = 2**46
"""Powers above this are cut off, which only a rise of energy over next to no time has."""

_NO_LIMIT = np.iinfo(np.int64).max


class Breakpoint(NamedTuple):
    """A length of the iteration at which the best times change direction.

    Attributes:
        time_ms: Length of the iteration.
        energy_mj: Least effective energy at this length.
        event_ms: When each instance starts, and when its followers may; shape ``(instances, 2)``.
        price_w: Energy in mJ that one ms more for each instance saves, between here and the next longer
            breakpoint; shape ``(instances,)``.
        edge_price_w: The same of each edge of the graph; without one of price 0 the energy is the same.
    """

    time_ms: float
    energy_mj: float
    event_ms: Floats
    price_w: Floats
    edge_price_w: Floats


def breakpoints(graph: InstanceGraph, curves: Mapping[str, CostCurve]) -> Iterator[Breakpoint]:
    """Yield the breakpoints of the exact frontier, longest iteration first.

    The first has every instance at its least effective energy, the last at the shortest possible length.
    Between two of them the best times and energies are the linear interpolation.
    """
    from schedsearch.energy.kernels import push_and_move  # loads numba, which is slow

    size, edges, index = graph.size, len(graph.tail), np.arange(graph.size)
    row = {name: i for i, name in enumerate(curves)}
    block = np.array([row[name] for name in graph.runs])
    slowest_ms = np.array([curve.time_ms[-1] for curve in curves.values()])[block]
    energy = float(sum(curves[name].energy_mj[-1] for name in graph.runs))
    tick_ms = float(graph.makespan(slowest_ms[:, None])[0]) / TICKS_PER_ITERATION
    powers = [_powers_w(curve) for curve in curves.values()]
    is_flat = not any(map(len, powers))
    unit_w = (1.0 if is_flat else float(np.median(np.concatenate(powers)))) / UNITS_PER_MEDIAN_POWER

    # what each arc is long and takes, those of the instances first, then edges, then from source and to sink
    source, sink = 2 * size, 2 * size + 1
    first, last = np.setdiff1d(index, graph.head), np.setdiff1d(index, graph.tail)
    tail = np.concatenate([2 * index, 2 * graph.tail + 1, np.full(len(first), source), 2 * last + 1])
    head = np.concatenate([2 * index + 1, 2 * graph.head, 2 * first, np.full(len(last), sink)])
    most = max(len(curve.hull) for curve in curves.values())
    length = np.zeros((len(row), most), dtype=np.int64)
    limit = np.full((len(row), most), _NO_LIMIT)
    for i, (curve, power_w) in enumerate(zip(curves.values(), powers, strict=True)):
        ticks = np.rint(curve.time_ms[curve.hull][::-1] / tick_ms).astype(np.int64)
        length[i] = ticks[-1]
        length[i, : len(ticks)] = ticks
        limit[i, : len(power_w)] = np.clip(np.floor(power_w / unit_w), 1, MOST_UNITS).astype(np.int64)
    delay = np.zeros((len(tail) - size, most), dtype=np.int64)
    delay[:edges] = np.rint(graph.delay_ms / tick_ms).astype(np.int64)[:, None]
    arc_of = np.argsort(np.concatenate([tail, head]), kind="stable") % len(tail)
    leaving = np.concatenate([[0], np.bincount(np.concatenate([tail, head])).cumsum()])
    lengths, limits = (
        np.vstack([length[block], delay]),
        np.vstack([limit[block], np.full_like(delay, _NO_LIMIT)]),
    )

    def events(time: Ints) -> Ints:
        """Return the tick of each node when no instance of given times waits needlessly."""
        start = graph.earliest_start(time[:, None].astype(np.float64), delay[:edges, 0].astype(np.float64))
        both = np.column_stack([start[:, 0], start[:, 0] + time]).astype(np.int64)
        return np.concatenate([both.ravel(), [0, both[:, 1].max()]])

    flow, amount = np.zeros(len(tail), dtype=np.int64), 0
    event, shortest = events(length[block, 0]), events(length[block, -1])[-1]
    while True:
        event_ms = tick_ms * event[: 2 * size].reshape(-1, 2).astype(np.float64)
        power_w = unit_w * flow.astype(np.float64)
        ticks_left = int(event[-1] - event[-2])
        yield Breakpoint(ticks_left * tick_ms, energy, event_ms, power_w[:size], power_w[size : size + edges])
        if ticks_left <= shortest:
            return
        pushed, moved = push_and_move(leaving, arc_of, tail, head, lengths, limits, flow, event)
        amount += int(pushed)
        energy += amount * unit_w * moved * tick_ms


def _powers_w(curve: CostCurve) -> Floats:
    """Return the power in W needed to go from each hull option to the next faster one, slowest first."""
    time, energy = curve.time_ms[curve.hull][::-1], curve.energy_mj[curve.hull][::-1]
    return np.diff(energy) / -np.diff(time)


class RelaxedPlan(NamedTuple):
    """The best plan for a length of the iteration, in which blocks take any time between their options.

    Attributes:
        time_ms: Length of the iteration.
        energy_mj: Least effective energy at this length.
        planned_ms: Best time of each instance, or more where it has slack beyond its slowest option; shape
            ``(instances,)``.
        price_w: As of the next shorter `Breakpoint`.
        edge_price_w: Likewise.
    """

    time_ms: float
    energy_mj: float
    planned_ms: Floats
    price_w: Floats
    edge_price_w: Floats


def relaxed_plans(points: Iterable[Breakpoint], falling_ms: Iterable[float]) -> Iterator[RelaxedPlan]:
    """Yield the relaxed plan for each deadline; beyond the frontier, the plan at its nearest end.

    Breakpoints and deadlines are given longest first. Only two breakpoints are held at a time; all are taken
    if all deadlines are.
    """
    longer: Breakpoint | None = None
    deadlines = deque(falling_ms)
    for point in points:
        while deadlines and deadlines[0] >= point.time_ms:
            yield _between(longer or point, point, deadlines.popleft())
        longer = point
    assert longer is not None, "a frontier has at least one breakpoint"
    for deadline_ms in deadlines:
        yield _between(longer, longer, deadline_ms)


def _between(longer: Breakpoint, shorter: Breakpoint, deadline_ms: float) -> RelaxedPlan:
    """Return the relaxed plan for a deadline between two breakpoints.

    From one breakpoint to the next every event moves by at most the difference of the two lengths. Moving
    each event by its full way, but by no more than the deadline asks, is as good as moving all in
    proportion, and leaves most instances at the times of one of the two breakpoints. Those are mostly
    times of real clocks, so that there is less to round.
    """
    moved = longer.event_ms - shorter.event_ms
    event = longer.event_ms - np.minimum(moved, max(longer.time_ms - deadline_ms, 0.0))
    ends = (shorter.time_ms, longer.time_ms), (shorter.energy_mj, longer.energy_mj)
    energy_mj = float(np.interp(deadline_ms, *ends))
    planned = event[:, 1] - event[:, 0]
    return RelaxedPlan(deadline_ms, energy_mj, planned, shorter.price_w, shorter.edge_price_w)
