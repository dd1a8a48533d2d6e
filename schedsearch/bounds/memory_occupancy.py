"""The memory-occupancy bound: how long memory is in use limits how often micro-batches begin (Little's law).

The bound is an exact fraction, with a proof that anyone can check by adding up, and by going through the
states of single devices where it uses more than their capacities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements import Block, Placement
from schedsearch.proof.device_states import Counts, DeviceStates, Group, device_states
from schedsearch.proof.timeline import Timeline, timelines


@dataclass(frozen=True)
class HeldLimit:
    """A limit of what a device holds at any time, weighed.

    With a start of block b weighed as ``weight[b]``, the sum over all starts so far is at most `limit`, and
    at most ``limit - spare[b]`` while b runs; see `schedsearch.proof.device_states`.

    Attributes:
        device: Device whose limit it is.
        weight: Weight of each block that is counted; they sum to 0 over blocks that wait for each other.
        limit: Limit in the same units.
        spare: What is left of the limit while a block of the device runs; 0 for those not named.
    """

    device: int
    weight: Mapping[str, int]
    limit: int
    spare: Mapping[str, int]


@dataclass(frozen=True)
class MemoryOccupancy:
    """A proof by Little's law that no period per micro-batch is below a value; see `memory_occupancy_bound`.

    Attributes:
        device_weight: How much each device's memory counts; shape ``(num_devices,)``, at least 0.
        flow: For some pairs of a block and one after it, how much of what the first takes is passed on to
            the second until a block releases it, in memory times its device's weight; at least 0.
        shared: Devices whose shared blocks are cut out; see `schedsearch.proof.timeline`.
        held: What is known of some devices besides their capacities.
    """

    device_weight: tuple[int, ...]
    flow: Mapping[tuple[str, str], int]
    shared: tuple[int, ...] = ()
    held: tuple[HeldLimit, ...] = ()

    def bound(self, placement: Placement, unused: Sequence[Fraction] = ()) -> Fraction:
        """Return the ticks that it proves, exactly, if its limits of what devices hold are true.

        Args:
            placement: What runs where, without optimizer blocks.
            unused: Memory times ticks per micro-batch that each device is known to leave unused.

        Proof. Let block b start at s(b), averaged over micro-batches. What a device d with capacity c(d) has
        in use, averaged over time and as counted in `memory_occupancy_bound`, is the sum over its blocks of
        ``-memory(b, d) * s(b) + occupied_while_running(b, d)`` per period, which is at most c(d) times the
        period. So it is with each limit of what a device holds: the sum of ``-weight(b) * s(b) + spare(b) *
        time(b)`` is at most the limit times the period. Sum over all of them, devices with their weights,
        and let memory(b) be what b's starts are multiplied by; its sign may be another than on some devices.
        The flow balances what blocks allocate and release in these sums, so the sum of ``-memory * s`` is
        that of ``flow(a, b) * (s(b) - s(a))``, at least ``flow(a, b) * (time(a) + transfer(a, b))``. What is
        left is free of s.

        Raises:
            ValueError: It proves nothing of the placement: the flow does not balance, or is negative.
        """
        assert placement.free_memory is not None, "there is no memory-occupancy bound without capacities"
        timeline = Timeline(placement, frozenset(self.shared))
        spare = [amount for each in self.held for amount in each.spare.values()]
        if min((*self.device_weight, *self.flow.values(), *spare)) < 0:
            raise ValueError("residence: weights, flows and what is spare are not all 0 or more")
        left = _weighted_memory(placement, self.device_weight)
        occupied = sum(
            weight * _occupied_while_running(block, device) * timeline.length[block.name]
            for device, weight in enumerate(self.device_weight)
            for block in placement.on(device)
        )
        for each in self.held:
            for name, amount in each.weight.items():
                left[name] += amount
            occupied += sum(amount * timeline.length[name] for name, amount in each.spare.items())
        for (a, b), amount in self.flow.items():
            if a not in placement.by_name[b].after:
                raise ValueError(f"residence: {b} is not after {a}, so nothing can be passed on")
            left[a] -= amount
            left[b] += amount
            occupied += amount * (timeline.length[a] + timeline.transfer_time(a, b))
        if any(left.values()):
            raise ValueError("residence: what some blocks allocate is not what the others release")
        idle = sum((w * each for w, each in zip(self.device_weight, unused, strict=False)), Fraction(0))
        limit = sum(w * c for w, c in zip(self.device_weight, placement.free_memory, strict=True))
        limit += sum(each.limit for each in self.held)
        return timeline.shared_time + ((occupied + idle) / limit if limit > 0 else Fraction(0))


def memory_occupancy_bound(placement: Placement) -> Fraction:
    """Return the least period per micro-batch, in ticks, at which what is in flight fits in memory.

    Proof (Little's law). Memory released by a block can be allocated again only by a later block of the
    same device, hence after the first block's end: counted until then, memory in use still never exceeds
    the capacity. Averaged over a long time it is the memory times the time in use of one micro-batch,
    averaged over micro-batches, divided by the period per micro-batch. The averages of the micro-batches'
    starts satisfy the dependencies, as each one's starts do, so the least period over all starts that
    satisfy them, a linear program, is a lower bound. While a block runs that releases memory, counted is
    the greater of what it releases and what it needs for itself: both fit, one before and one during it.
    No cycle of blocks that wait for each other, by their inputs or for memory, takes longer than that.

    Where a device has few states (`schedsearch.proof.device_states`), it is in one of them at any time. The
    program then has the ticks per micro-batch in each of them too: of the states in which a block runs they
    sum to its time, and how many micro-batches are between two blocks, averaged over all, is the time between
    these. The bound is the greatest over all timelines of `schedsearch.proof.timeline`.
    """
    proof = memory_occupancy(placement)
    return proof.bound(placement.per_micro_batch) if proof is not None else Fraction(0)


@lru_cache(maxsize=8)
def memory_occupancy(placement: Placement) -> MemoryOccupancy | None:
    """Return the best proof on any timeline, or None where memory bounds nothing."""
    proofs = [memory_occupancy_on(timeline) for timeline in timelines(placement.per_micro_batch)]
    found = [proof for proof in proofs if proof is not None]
    return max(found, key=lambda proof: proof.bound(placement.per_micro_batch), default=None)


def memory_occupancy_on(timeline: Timeline, unused: Sequence[Fraction] = ()) -> MemoryOccupancy | None:
    """Return the proof on one timeline, or None where memory bounds nothing; see `MemoryOccupancy.bound`.

    The linear program of `memory_occupancy_bound` says how much each device counts, and what it holds between
    two blocks. Whatever these weights, limits are what the states say, and the best flow is a minimum cost
    flow in whole numbers, so that the proof is exact. It needs no states where capacities prove as much.
    """
    placement = timeline.placement
    if placement.free_memory is None or not any(b.memory or b.transient for b in placement.blocks):
        return None
    known = ((), device_states(placement.per_micro_batch))
    proofs = [_proof(timeline, _Program(timeline, unused, states)) for states in known]
    found = [proof for proof in proofs if proof is not None]
    return max(found, key=lambda proof: proof.bound(placement, unused), default=None)


def _proof(timeline: Timeline, program: _Program) -> MemoryOccupancy | None:
    import networkx as nx

    weights = program.weights()
    if weights is None:
        return None
    device_weight, held = weights
    memory = _weighted_memory(timeline.placement, device_weight)
    for each in held:
        for name, amount in each.weight.items():
            memory[name] += amount
    graph = nx.DiGraph()
    for block in timeline.placement.blocks:
        graph.add_node(block.name, demand=-memory[block.name])
        for name in block.after:
            ticks = timeline.length[name] + timeline.transfer_time(name, block.name)
            graph.add_edge(name, block.name, weight=-ticks)
    try:
        _, flows = nx.network_simplex(graph)
    except nx.NetworkXUnfeasible:  # not all that release wait for those that allocate
        return None
    flow = {(a, b): amount for a, by_target in flows.items() for b, amount in by_target.items() if amount}
    return MemoryOccupancy(device_weight, flow, tuple(sorted(timeline.devices)), held)


def _weighted_memory(placement: Placement, device_weight: Sequence[int]) -> dict[str, int]:
    """Return for each block what it allocates, less what it releases, over all devices with their weights."""
    return {
        block.name: sum(device_weight[device] * block.memory_on(device) for device in block.devices)
        for block in placement.blocks
    }


def _occupied_while_running(block: Block, device: int) -> int:
    """Return what is counted on a device while a block runs there, besides what it allocates for longer."""
    return max(-block.memory_on(device), block.transient)


_FINEST_WEIGHT = 10_000
"""Weights are whole numbers up to this."""

_ROUNDED = 1e-6
"""How much a weight may differ from a whole number that stands for it exactly."""

Numbers = Sequence[float] | NDArray[np.int64] | NDArray[np.float64]

LinearTerms = tuple[Numbers, Numbers]
"""Columns of a linear program, and what they are multiplied by."""


@dataclass
class _Rows:
    """Rows of a linear program: each is at most its limit."""

    rows: list[LinearTerms] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def add(self, columns: Numbers, factors: Numbers, limit: float) -> int:
        """Add a row and return its number."""
        self.rows.append((columns, factors))
        self.limits.append(limit)
        return len(self.rows) - 1

    def matrix(self, num_columns: int) -> Any:
        """Return the factors of all rows, a sparse array of shape ``(rows, num_columns)``."""
        from scipy.sparse import csr_array

        lengths = [len(columns) for columns, _ in self.rows]
        row = np.repeat(np.arange(len(lengths)), lengths)
        column = np.concatenate([np.asarray(columns, dtype=int) for columns, _ in self.rows])
        factor = np.concatenate([np.asarray(factors, dtype=float) for _, factors in self.rows])
        return csr_array((factor, (row, column)), shape=(len(lengths), num_columns))


class _Program:
    """The linear program of `memory_occupancy_bound`: the least period, the first of its columns.

    The others are the mean start of each block, and the ticks per micro-batch in states of devices.
    """

    def __init__(
        self, timeline: Timeline, unused: Sequence[Fraction], states: Sequence[DeviceStates]
    ) -> None:
        self.timeline = timeline
        self.placement = timeline.placement
        self.rows = _Rows()
        self.column = {block.name: 1 + i for i, block in enumerate(self.placement.blocks)}
        self.num_columns = 1 + len(self.column)
        self.states = states
        self._hold_capacities(unused)
        self._wait_for_inputs()
        self.group_rows = [self._be_in_states(states) for states in self.states]

    def weights(self) -> tuple[tuple[int, ...], tuple[HeldLimit, ...]] | None:
        """Return how much each device counts, and limits of what some hold; or None."""
        from scipy.optimize import linprog

        cost = np.zeros(self.num_columns)
        cost[0] = 1
        matrix, limits = self.rows.matrix(self.num_columns), np.array(self.rows.limits)
        answer = linprog(cost, A_ub=matrix, b_ub=limits, bounds=(0, None), method="highs")
        if answer.status != 0:
            return None
        price = np.maximum(-answer.ineqlin.marginals, 0)
        of_groups = [row for rows in self.group_rows for row in rows]
        whole = in_whole_numbers(price[[*range(self.placement.num_devices), *of_groups]])
        if not whole.any():
            return None
        amount = dict(zip(of_groups, whole[self.placement.num_devices :].tolist(), strict=True))
        held = [
            _held_limit(states, [amount[row] for row in rows])
            for states, rows in zip(self.states, self.group_rows, strict=True)
            if any(amount[row] for row in rows)
        ]
        return tuple(whole[: self.placement.num_devices].tolist()), tuple(held)

    def _hold_capacities(self, unused: Sequence[Fraction]) -> None:
        assert self.placement.free_memory is not None
        for device, capacity in enumerate(self.placement.free_memory):
            here = self.placement.on(device)
            occupied = sum(_occupied_while_running(b, device) * self.timeline.length[b.name] for b in here)
            self.rows.add(
                [0, *(self.column[block.name] for block in here)],
                [-capacity, *(-block.memory_on(device) for block in here)],
                -occupied - float(unused[device] if unused else 0),
            )

    def _wait_for_inputs(self) -> None:
        for block in self.placement.blocks:
            for name in block.after:
                ticks = self.timeline.length[name] + self.timeline.transfer_time(name, block.name)
                self.rows.add([self.column[name], self.column[block.name]], [1, -1], -ticks)

    def _be_in_states(self, states: DeviceStates) -> list[int]:
        """Add a device's states; return the row of each group of pairs.

        Only states matter in which no more is between all pairs. Blocks of no known length are left out.
        """
        length = self.timeline.length
        running = [(counts, length[name]) for name, counts in states.running.items()]
        parts = [(part, ticks) for part, ticks in running if ticks]
        parts = [(_greatest(part), ticks) for part, ticks in [*parts, (states.held, 0)]]
        between = np.concatenate([part for part, _ in parts])
        columns = self.num_columns + np.arange(len(between))
        self.num_columns += len(columns)
        self.rows.add([0, *columns], [-1, *np.ones(len(columns))], 0)
        first = 0
        for part, ticks in parts:
            if ticks:
                here = columns[first : first + len(part)]
                self.rows.add(here, -np.ones(len(here)), -ticks)
            first += len(part)
        return [
            self._be_between(states, group, columns, -between[:, i]) for i, group in enumerate(states.groups)
        ]

    def _be_between(self, states: DeviceStates, group: Group, columns: Numbers, less: Numbers) -> int:
        """Add what is between a group's pairs, averaged over all states; return the row."""
        starts = [self.column[states.blocks[block]] for (a, b), _ in group for block in (b, a)]
        factors = [factor for _, times in group for factor in (times, -times)]
        return self.rows.add([*starts, *columns], [*factors, *less], 0)


def _greatest(between: Counts) -> Counts:
    """Return the rows than which none is greater, that is as great everywhere and greater somewhere."""
    rows = np.unique(between, axis=0)[::-1]
    kept = np.ones(len(rows), dtype=bool)
    for i, row in enumerate(rows):
        if kept[i]:
            kept &= (rows > row).any(axis=1) | (np.arange(len(rows)) == i)
    return rows[kept]


def _held_limit(states: DeviceStates, amounts: Iterable[int]) -> HeldLimit:
    """Return the least limit for weights of what is between the pairs of each group."""
    each = np.fromiter(amounts, dtype=np.int64)
    weight = np.zeros(len(states.blocks), dtype=np.int64)
    for group, amount in zip(states.groups, each, strict=True):
        for (a, b), times in group:
            weight[a] += times * amount
            weight[b] -= times * amount
    limit = int((states.held @ each).max())
    spare = {name: limit - int((counts @ each).max()) for name, counts in states.running.items()}
    return HeldLimit(
        states.device,
        dict(zip(states.blocks, weight.tolist(), strict=True)),
        limit,
        {name: amount for name, amount in spare.items() if amount},
    )


def in_whole_numbers(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the smallest whole numbers in the ratios of some weights, or about so."""
    greatest = weights.max(initial=0.0)
    if greatest <= 0:
        return np.zeros(len(weights), dtype=np.int64)
    weights = weights[:, None] / greatest * np.arange(1, _FINEST_WEIGHT + 1)
    error = np.abs(weights - np.rint(weights)).max(axis=0)
    exact = np.flatnonzero(error < _ROUNDED * np.arange(1, _FINEST_WEIGHT + 1))
    whole = np.rint(weights[:, exact[0] if len(exact) else -1]).astype(np.int64)
    divisor: int = np.gcd.reduce(whole)
    return np.array(whole // divisor)
