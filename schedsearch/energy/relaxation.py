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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.frontier import LowerBound, OnProgress
from schedsearch.energy.graph import Floats, InstanceGraph, Ints

TICKS_PER_ITERATION = 2**44
"""Whole numbers that stand for the slowest iteration; path lengths stay exact as 64-bit floats."""

UNITS_PER_MEDIAN_POWER = 2**28
"""Whole numbers that stand for the median power between two options."""

MOST_UNITS = 2**46
"""Powers above this are cut off, which only a rise of energy over next to no time has."""

_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Breakpoint:
    """A length of the iteration at which the best times change direction.

    Attributes:
        time_ms: Length of the iteration.
        energy_mj: Least effective energy at this length.
        event_ms: When each instance starts, and when its followers may; shape ``(instances, 2)``.
        price_w: What a millisecond of each instance is worth between here and the next longer breakpoint, in
            millijoules; shape ``(instances,)``.
    """

    time_ms: float
    energy_mj: float
    event_ms: Floats
    price_w: Floats


def breakpoints(graph: InstanceGraph, curves: Mapping[str, CostCurve]) -> Iterator[Breakpoint]:
    """Yield the breakpoints of the exact frontier, longest iteration first.

    The first has every instance at its least effective energy, the last at the shortest possible length.
    Between two of them the best times and energies are the linear interpolation.
    """
    from schedsearch.energy.kernels import push_and_move  # loads numba, which is slow

    size = graph.size
    slowest = np.array([[curves[name].time_ms[-1]] for name in graph.runs])
    energy = float(sum(curves[name].energy_mj[-1] for name in graph.runs))
    tick_ms = float(graph.makespan(slowest)[0]) / TICKS_PER_ITERATION
    powers = np.concatenate([_powers_w(curve) for curve in curves.values()])
    unit_w = (float(np.median(powers)) if len(powers) else 1.0) / UNITS_PER_MEDIAN_POWER
    tail, head, delay = _arcs(graph, tick_ms)
    own_lengths, own_limits = _segments(graph, curves, tick_ms, unit_w)
    lengths = np.vstack([own_lengths, np.repeat(delay[:, None], own_lengths.shape[1], axis=1)])
    limits = np.vstack([own_limits, np.full((len(delay), own_limits.shape[1]), _NO_LIMIT)])
    node, arc_of = np.concatenate([tail, head]), np.tile(np.arange(len(tail)), 2)
    order = np.argsort(node, kind="stable")
    leaving = np.searchsorted(node[order], np.arange(2 * size + 3)).astype(np.int64)
    network = leaving, arc_of[order], tail, head, lengths, limits
    flow, amount = np.zeros(len(tail), dtype=np.int64), 0
    event = _events(graph, own_lengths[:, 0], delay)
    shortest = _events(graph, own_lengths[:, -1], delay)[-1]
    while True:
        event_ms = tick_ms * event[: 2 * size].reshape(-1, 2).astype(np.float64)
        length = int(event[-1] - event[-2])
        yield Breakpoint(length * tick_ms, energy, event_ms, unit_w * flow[:size].astype(np.float64))
        if length <= shortest:
            return
        pushed, moved = push_and_move(*network, flow, event)
        amount += int(pushed)
        energy += amount * unit_w * moved * tick_ms


def _powers_w(curve: CostCurve) -> Floats:
    """Return the power that it takes to go from each hull option to the next faster one, slowest first."""
    time, energy = curve.time_ms[curve.hull][::-1], curve.energy_mj[curve.hull][::-1]
    powers: Floats = np.diff(energy) / -np.diff(time)
    return powers


def _arcs(graph: InstanceGraph, tick_ms: float) -> tuple[Ints, Ints, Ints]:
    """Return tail and head of all arcs, those of the instances first, and the ticks of the others."""
    each = np.arange(graph.size)
    source, sink = 2 * graph.size, 2 * graph.size + 1
    first, last = np.setdiff1d(each, graph.head), np.setdiff1d(each, graph.tail)
    tail = np.concatenate([2 * each, 2 * graph.tail + 1, np.full(len(first), source), 2 * last + 1])
    head = np.concatenate([2 * each + 1, 2 * graph.head, 2 * first, np.full(len(last), sink)])
    ticks = np.rint(graph.delay_ms / tick_ms).astype(np.int64)
    return tail, head, np.concatenate([ticks, np.zeros(len(first) + len(last), dtype=np.int64)])


def _segments(
    graph: InstanceGraph, curves: Mapping[str, CostCurve], tick_ms: float, unit_w: float
) -> tuple[Ints, Ints]:
    """Return lengths and limits of the instances' arcs; see `schedsearch.energy.kernels.push_and_move`."""
    row = {name: i for i, name in enumerate(curves)}
    most = max(len(curve.hull) for curve in curves.values())
    length = np.zeros((len(row), most), dtype=np.int64)
    limit = np.full((len(row), most), _NO_LIMIT)
    for i, curve in enumerate(curves.values()):
        ticks = np.rint(curve.time_ms[curve.hull][::-1] / tick_ms).astype(np.int64)
        units = np.clip(np.floor(_powers_w(curve) / unit_w), 1, MOST_UNITS).astype(np.int64)
        length[i] = ticks[-1]
        length[i, : len(ticks)] = ticks
        limit[i, : len(units)] = units
    block = np.array([row[name] for name in graph.runs])
    return length[block], limit[block]


def _events(graph: InstanceGraph, time: Ints, delay: Ints) -> Ints:
    """Return the tick of each node when every instance takes the given time and none waits needlessly."""
    delays = delay[: len(graph.tail), None].astype(np.float64)
    start = graph.earliest_start(time[:, None].astype(np.float64), delays)[:, 0]
    both = np.column_stack([start, start + time]).astype(np.int64)
    return np.concatenate([both.ravel(), [0, both[:, 1].max()]])


@dataclass(frozen=True, eq=False)
class RelaxedPlans:
    """The relaxed frontier, and its plans for some deadlines.

    Attributes:
        bound: What the relaxed frontier says of every plan.
        planned_ms: Best time of each instance for each deadline, or more where it has slack beyond its
            slowest option; shape ``(instances, deadlines)``.
        price_w: What a millisecond of each instance is worth, in millijoules; in the same shape.
    """

    bound: LowerBound
    planned_ms: Floats
    price_w: Floats


def relaxed_plans(
    points: Iterable[Breakpoint],
    deadline_ms: Floats,
    waiting_w: float,
    on_progress: OnProgress | None = None,
) -> RelaxedPlans:
    """Return the relaxed frontier and its plans for the deadlines.

    Args:
        points: The breakpoints, longest iteration first; only two are held at a time.
        deadline_ms: Ascending, none below the shortest iteration; shape ``(deadlines,)``.
        waiting_w: Power of all devices while they wait.
        on_progress: Told how many of the deadlines are planned.
    """
    times, energies, planned, prices = [], [], [], []
    left = len(deadline_ms)
    before: Breakpoint | None = None
    for point in points:
        times.append(point.time_ms)
        energies.append(point.energy_mj)
        while left > 0 and deadline_ms[left - 1] >= point.time_ms:
            left -= 1
            planned.append(planned_between(before or point, point, float(deadline_ms[left])))
            prices.append(point.price_w)
            if on_progress is not None:
                on_progress("relaxing", len(planned), len(deadline_ms))
        before = point
    assert before is not None, "a frontier has at least one breakpoint"
    planned += [planned_between(before, before, before.time_ms)] * left
    prices += [before.price_w] * left
    bound = LowerBound(np.array(times[::-1]), np.array(energies[::-1]), waiting_w)
    return RelaxedPlans(bound, np.column_stack(planned[::-1]), np.column_stack(prices[::-1]))


def planned_between(longer: Breakpoint, shorter: Breakpoint, deadline_ms: float) -> Floats:
    """Return best times of the instances for a deadline between two breakpoints.

    From one breakpoint to the next every event moves by at most the difference of the two lengths. Moving
    each event by its full way, but by no more than the deadline asks, is as good as moving all in
    proportion, and leaves most instances at the times of one of the two breakpoints. Those are mostly
    times of real clocks, so that there is less to round.
    """
    moved = longer.event_ms - shorter.event_ms
    event = longer.event_ms - np.minimum(moved, max(longer.time_ms - deadline_ms, 0.0))
    planned: Floats = event[:, 1] - event[:, 0]
    return planned
