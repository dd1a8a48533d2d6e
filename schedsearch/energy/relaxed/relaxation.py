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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints

TICKS_PER_ITERATION = 2**44
"""Whole numbers that stand for the slowest iteration; path lengths stay exact as 64-bit floats."""

UNITS_PER_MEDIAN_POWER = 2**28
"""Whole numbers that stand for the median power between two options."""

MOST_UNITS = 2**46
"""Powers above this are cut off, which only a rise of energy over next to no time has."""

MOST_AT_ONCE = 2**30 - 1
"""Most flow that one call of scipy's 32-bit maximum flow pushes."""


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


@dataclass(frozen=True, eq=False)
class Scale:
    """What one whole number stands for.

    Attributes:
        tick_ms: Milliseconds in a tick of the network.
        unit_w: Watts in a unit of flow.
    """

    tick_ms: float
    unit_w: float


@dataclass(frozen=True, eq=False)
class ArcNetwork:
    """The arcs of the flow problem, instance arcs first, and its sparse form.

    Node ``2i`` is the start and ``2i + 1`` the end of instance i; then come the origin, the source and
    the sink. The origin feeds only the source, so that no call pushes more than fits.

    Attributes:
        tail: Node that each arc leaves; shape ``(arcs,)``.
        head: Node that each arc enters.
        length: Ticks of the precedence arcs; shape ``(arcs - instances,)``.
        segment_length: For each instance its times, slowest first, padded with the fastest; ticks,
            shape ``(instances, most options)``.
        threshold: Flow from which on the next segment is used, ascending, padded with the largest
            number; shape ``(instances, most options)``.
        indices: Column of each entry of the sparse form, which holds each arc in both directions.
        rows: Row of each entry.
        forward: Position of each arc among the entries.
        backward: Position of each arc's reverse among the entries.
        arc: Arc of each entry.
        reverse: Position of each entry's reverse.
    """

    tail: Ints
    head: Ints
    length: Ints
    segment_length: Ints
    threshold: Ints
    indices: NDArray[np.int32]
    rows: NDArray[np.int32]
    forward: Ints
    backward: Ints
    arc: Ints
    reverse: Ints

    @property
    def num_instances(self) -> int:
        """Return the number of instance arcs."""
        return len(self.threshold)

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes."""
        return 2 * self.num_instances + 3

    @property
    def origin(self) -> int:
        """Return the node that the flow leaves."""
        return self.num_nodes - 3

    @property
    def sink(self) -> int:
        """Return the node that the flow enters."""
        return self.num_nodes - 1


_NO_LIMIT = np.iinfo(np.int64).max


def breakpoints(graph: InstanceGraph, curves: Mapping[str, CostCurve]) -> Iterator[Breakpoint]:
    """Yield the breakpoints of the exact frontier, longest iteration first.

    The first has every instance at its least effective energy, the last at the shortest possible length.
    Between two of them the best times and energies are the linear interpolation.

    Args:
        graph: Who waits for whom.
        curves: Cost curve of each block.
    """
    slowest = np.array([curves[name].time_ms[-1] for name in graph.runs])
    energy = float(sum(curves[name].energy_mj[-1] for name in graph.runs))
    scale = _scale(float(graph.makespan(slowest[:, None])[0]), curves)
    network = _network(graph, curves, scale)
    state = _State(network)
    shortest = _longest_path(network, network.segment_length[:, -1])[network.sink]
    while True:
        event = scale.tick_ms * state.event[: 2 * graph.size].reshape(-1, 2).astype(np.float64)
        price = scale.unit_w * state.flow[: graph.size].astype(np.float64)
        point = Breakpoint(state.iteration * scale.tick_ms, energy, event, price)
        if state.iteration <= shortest:
            yield point
            return
        if state.push():
            yield point
            moved = state.step()
        else:
            moved = state.shorten()
        energy += float(state.amount) * scale.unit_w * moved * scale.tick_ms


class _State:
    """A flow of greatest length for its amount, and event times that prove it.

    Attributes:
        network: What the flow runs on.
        flow: Flow on each arc; shape ``(arcs,)``.
        event: Tick of each node; heads follow tails by the length of every arc that has room for flow.
        amount: All flow from origin to sink: the price of time.
        slack: Ticks that each entry of the sparse form has to spare; infinite without room for more flow.
        room: For more flow of each entry.
    """

    def __init__(self, network: ArcNetwork) -> None:
        self.network = network
        self.flow = np.zeros(len(network.tail), dtype=np.int64)
        self.event = _longest_path(network, network.segment_length[:, 0])
        self.amount = 0
        self.slack = np.empty(len(network.indices))
        self.room = np.empty(len(network.indices), dtype=np.int64)
        self._ones = np.ones(len(network.indices))
        self._refresh(np.arange(len(network.tail)))

    @property
    def iteration(self) -> int:
        """Return the length of the iteration in ticks."""
        return int(self.event[self.network.sink] - self.event[self.network.origin])

    def push(self) -> bool:
        """Push as much flow as the arcs without slack can carry; tell whether there was any."""
        shift, before = 0, self.amount
        while True:
            pushed = self._push_at(shift)
            if shift == 0 and pushed < MOST_AT_ONCE:
                return self.amount > before
            shift = shift + 8 if pushed == MOST_AT_ONCE else max(shift - 8, 0)

    def step(self) -> int:
        """Move all events beyond the cut until an arc across it loses its slack; return by how many ticks.

        Mostly that arc closes a new path to the end. Where it does not, `push` finds none and `shorten` does
        the rest.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order

        net = self.network
        tight = np.flatnonzero(self.slack == 0)
        rows = _row_pointers(net.rows[tight], net.num_nodes)
        matrix = csr_array((self._ones[: len(tight)], net.indices[tight], rows), shape=(net.num_nodes,) * 2)
        before_cut = np.zeros(net.num_nodes, dtype=bool)
        before_cut[breadth_first_order(matrix, net.origin, return_predecessors=False)] = True
        begins = before_cut[net.tail]
        cut = np.flatnonzero(begins != before_cut[net.head])
        into = np.where(begins[cut], net.forward[cut], net.backward[cut])
        moved = int(self.slack[into].min())
        self.event -= moved * ~before_cut
        self.slack[into] -= moved
        self.slack[net.reverse[into]] += moved
        return moved

    def shorten(self) -> int:
        """Move all events until there is a new path to the end; return by how many ticks the end moves."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        net = self.network
        usable = np.flatnonzero(np.isfinite(self.slack))
        matrix = csr_array(
            (self.slack[usable], net.indices[usable], _row_pointers(net.rows[usable], net.num_nodes)),
            shape=(net.num_nodes,) * 2,
        )
        distance = dijkstra(matrix, indices=net.origin)
        moved = int(distance[net.sink])
        shift = np.minimum(distance, moved)
        self.event = self.event - shift.astype(np.int64)
        self.slack += shift[net.rows] - shift[net.indices]
        return moved

    def _refresh(self, arcs: Ints) -> None:
        """Set slack and room of some arcs, in both directions, to what their flow makes of them."""
        net, n = self.network, self.network.num_instances
        flow, span = self.flow[arcs], self.event[net.head[arcs]] - self.event[net.tail[arcs]]
        forward, backward = net.forward[arcs], net.backward[arcs]
        self.room[forward], self.room[backward] = _NO_LIMIT, flow
        own = arcs < n
        threshold, length = net.threshold[arcs[own]], net.segment_length[arcs[own]]
        carried = flow[own]
        ahead = (threshold <= carried[:, None]).sum(axis=1)
        behind = (threshold < carried[:, None]).sum(axis=1)
        instance = np.arange(len(carried))
        begin = np.where(behind > 0, threshold[instance, behind - 1], 0)
        self.room[forward[own]] = threshold[instance, ahead] - carried
        self.room[backward[own]] = carried - begin
        longest = np.empty(len(arcs), dtype=np.int64)
        shortest = np.empty(len(arcs), dtype=np.int64)
        longest[own], shortest[own] = length[instance, ahead], length[instance, behind]
        longest[~own] = shortest[~own] = net.length[arcs[~own] - n]
        self.slack[forward] = np.where(self.room[forward] > 0, span - longest, np.inf)
        self.slack[backward] = np.where(self.room[backward] > 0, shortest - span, np.inf)

    def _push_at(self, shift: int) -> int:
        """Push flow in multiples of ``2**shift`` and return how many multiples reached the sink."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        net = self.network
        tight = self.slack == 0
        entries = np.flatnonzero(tight | tight[net.reverse])
        room = np.where(tight[entries], np.minimum(self.room[entries] >> shift, MOST_AT_ONCE), 0)
        rows = _row_pointers(net.rows[entries], net.num_nodes)
        matrix = csr_array((room.astype(np.int32), net.indices[entries], rows), shape=(net.num_nodes,) * 2)
        result = maximum_flow(matrix, net.origin, net.sink)
        pushed = result.flow.data  # both directions of an arc are there, as in the matrix
        gains = np.flatnonzero(pushed > 0)
        entry = entries[gains]
        arc = net.arc[entry]
        self.flow[arc] += (
            np.where(net.forward[arc] == entry, pushed[gains], -pushed[gains]).astype(np.int64) << shift
        )
        self.amount += int(result.flow_value) << shift
        self._refresh(arc)
        return int(result.flow_value)


def _row_pointers(rows: NDArray[np.int32], num_nodes: int) -> NDArray[np.int32]:
    pointers = np.zeros(num_nodes + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=pointers[1:])
    return pointers


def _scale(slowest_ms: float, curves: Mapping[str, CostCurve]) -> Scale:
    powers = np.concatenate([_powers(curve) for curve in curves.values()])
    median = float(np.median(powers)) if len(powers) else 1.0
    return Scale(slowest_ms / TICKS_PER_ITERATION, median / UNITS_PER_MEDIAN_POWER)


def _powers(curve: CostCurve) -> Floats:
    """Return the watts that it takes to go from each hull option to the next faster one, slowest first."""
    time, energy = curve.time_ms[curve.hull][::-1], curve.energy_mj[curve.hull][::-1]
    powers: Floats = np.diff(energy) / -np.diff(time)
    return powers


def _network(graph: InstanceGraph, curves: Mapping[str, CostCurve], scale: Scale) -> ArcNetwork:
    tail, head, length = _arcs(graph, scale)
    segment_length, threshold = _segments(graph, curves, scale)
    rows, columns = np.concatenate([tail, head]), np.concatenate([head, tail])
    order = np.lexsort((columns, rows))
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return ArcNetwork(
        tail=tail,
        head=head,
        length=length,
        segment_length=segment_length,
        threshold=threshold,
        indices=columns[order].astype(np.int32),
        rows=rows[order].astype(np.int32),
        forward=position[: len(tail)],
        backward=position[len(tail) :],
        arc=order % len(tail),
        reverse=position[(order + len(tail)) % (2 * len(tail))],
    )


def _arcs(graph: InstanceGraph, scale: Scale) -> tuple[Ints, Ints, Ints]:
    """Return tail and head of all arcs, and the length of the precedence arcs."""
    n = graph.size
    origin, source, sink = 2 * n, 2 * n + 1, 2 * n + 2
    waiting, waited = {edge[1] for edge in graph.edges}, {edge[0] for edge in graph.edges}
    arcs = [(2 * i, 2 * i + 1, 0) for i in range(n)]
    arcs += [(2 * a + 1, 2 * b, round(delay / scale.tick_ms)) for a, b, delay in graph.edges]
    arcs += [(source, 2 * i, 0) for i in range(n) if i not in waiting]
    arcs += [(2 * i + 1, sink, 0) for i in range(n) if i not in waited]
    arcs.append((origin, source, 0))
    tail, head, length = np.array(arcs, dtype=np.int64).T
    return tail, head, length[n:]


def _segments(graph: InstanceGraph, curves: Mapping[str, CostCurve], scale: Scale) -> tuple[Ints, Ints]:
    """Return `ArcNetwork.segment_length` and `ArcNetwork.threshold`."""
    names = list(curves)
    most = max(len(curve.hull) for curve in curves.values())
    length = np.zeros((len(names), most), dtype=np.int64)
    threshold = np.full((len(names), most), _NO_LIMIT)
    for row, curve in enumerate(curves.values()):
        ticks = np.rint(curve.time_ms[curve.hull][::-1] / scale.tick_ms).astype(np.int64)
        units = np.clip(np.floor(_powers(curve) / scale.unit_w), 1, MOST_UNITS).astype(np.int64)
        length[row] = ticks[-1]
        length[row, : len(ticks)] = ticks
        threshold[row, : len(units)] = units
    block = np.array([names.index(name) for name in graph.runs])
    return length[block], threshold[block]


def _longest_path(network: ArcNetwork, time: Ints) -> Ints:
    """Return the tick of each node when every instance takes the given time and none waits needlessly."""
    lengths = np.concatenate([time, network.length])
    incoming: list[list[tuple[int, int]]] = [[] for _ in range(network.num_nodes)]
    for tail, head, length in zip(
        network.tail.tolist(), network.head.tolist(), lengths.tolist(), strict=True
    ):
        incoming[head].append((tail, length))
    event = [0] * network.num_nodes
    for node in [*range(2 * network.num_instances), network.sink]:
        event[node] = max(event[tail] + length for tail, length in incoming[node])
    return np.array(event)
