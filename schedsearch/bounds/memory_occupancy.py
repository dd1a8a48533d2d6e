"""The memory-occupancy bound: how long memory is in use limits how often micro-batches begin (Little's law).

The bound is an exact fraction, with a proof that anyone can check by adding up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import networkx as nx
import numpy as np
from scipy.optimize import linprog

from placements import Block, Placement
from schedsearch.bounds.timeline import Timeline, timelines


@dataclass(frozen=True)
class MemoryOccupancy:
    """A proof by Little's law that no period per micro-batch is below a value; see `memory_occupancy_bound`.

    Attributes:
        device_weight: How much each device's memory counts; shape ``(num_devices,)``, at least 0.
        flow: For some pairs of a block and one after it, how much of what the first takes is passed on to
            the second until a block releases it, in memory times its device's weight; at least 0.
        shared: Devices whose shared blocks are cut out; see `schedsearch.bounds.timeline`.
    """

    device_weight: tuple[int, ...]
    flow: Mapping[tuple[str, str], int]
    shared: tuple[int, ...] = ()

    def bound(self, placement: Placement, unused: Sequence[Fraction] = ()) -> Fraction:
        """Return the ticks that it proves, exactly.

        Args:
            placement: What runs where, without optimizer blocks.
            unused: Memory times ticks per micro-batch that each device is known to leave unused.

        Proof. Let block b start at s(b), averaged over micro-batches. What a device d with capacity c(d) has
        in use, averaged over time and as counted in `memory_occupancy_bound`, is the sum over its blocks of
        ``-memory(b, d) * s(b) + occupied_while_running(b, d)`` per period, which is at most c(d) times the
        period. Sum over devices with their weights, and let memory(b) be the sum over d of d's weight times
        memory(b, d); its sign may be another than on some devices. The flow balances what blocks allocate and
        release in these sums, so the sum of ``-memory * s`` is that of ``flow(a, b) * (s(b) - s(a))``, at
        least ``flow(a, b) * (time(a) + transfer(a, b))``. What is left is free of s.

        Raises:
            ValueError: It proves nothing of the placement: the flow does not balance, or is negative.
        """
        assert placement.free_memory is not None, "there is no memory-occupancy bound without capacities"
        timeline = Timeline(placement, frozenset(self.shared))
        if min((*self.device_weight, *self.flow.values())) < 0 or not any(self.device_weight):
            raise ValueError("residence: weights and flows are not all 0 or more, with some weight above 0")
        left = _weighted_memory(placement, self.device_weight)
        occupied = sum(
            weight * _occupied_while_running(block, device) * timeline.length[block.name]
            for device, weight in enumerate(self.device_weight)
            for block in placement.on(device)
        )
        for (a, b), amount in self.flow.items():
            if a not in placement.by_name[b].after:
                raise ValueError(f"residence: {b} is not after {a}, so nothing can be passed on")
            left[a] -= amount
            left[b] += amount
            occupied += amount * (timeline.length[a] + timeline.transfer_time(a, b))
        if any(left.values()):
            raise ValueError("residence: what some blocks allocate is not what the others release")
        idle = sum((w * each for w, each in zip(self.device_weight, unused, strict=False)), Fraction(0))
        capacity = sum(w * c for w, c in zip(self.device_weight, placement.free_memory, strict=True))
        return timeline.shared_time + ((occupied + idle) / capacity if capacity else Fraction(0))


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
    The bound is the greatest over all timelines of `schedsearch.bounds.timeline`.
    """
    proof = memory_occupancy(placement)
    return proof.bound(placement.per_micro_batch) if proof is not None else Fraction(0)


def memory_occupancy(placement: Placement) -> MemoryOccupancy | None:
    """Return the best proof on any timeline, or None where memory bounds nothing."""
    proofs = [memory_occupancy_on(timeline) for timeline in timelines(placement.per_micro_batch)]
    found = [proof for proof in proofs if proof is not None]
    return max(found, key=lambda proof: proof.bound(placement.per_micro_batch), default=None)


def memory_occupancy_on(timeline: Timeline, unused: Sequence[Fraction] = ()) -> MemoryOccupancy | None:
    """Return the proof on one timeline, or None where memory bounds nothing; see `MemoryOccupancy.bound`.

    The linear program of `memory_occupancy_bound` says how much each device counts. Whatever the weights, the
    best flow is a minimum cost flow in whole numbers, so that the proof is exact.
    """
    placement = timeline.placement
    if placement.free_memory is None or not any(b.memory or b.transient for b in placement.blocks):
        return None
    weight = _device_weights(timeline, unused)
    if weight is None:
        return None
    memory = _weighted_memory(placement, weight)
    graph = nx.DiGraph()
    for block in placement.blocks:
        graph.add_node(block.name, demand=-memory[block.name])
        for name in block.after:
            ticks = timeline.length[name] + timeline.transfer_time(name, block.name)
            graph.add_edge(name, block.name, weight=-ticks)
    try:
        _, flows = nx.network_simplex(graph)
    except nx.NetworkXUnfeasible:  # not all that release wait for those that allocate
        return None
    flow = {(a, b): amount for a, by_target in flows.items() for b, amount in by_target.items() if amount}
    return MemoryOccupancy(weight, flow, tuple(sorted(timeline.devices)))


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
"""Devices are weighted in whole numbers up to this."""


def _device_weights(timeline: Timeline, unused: Sequence[Fraction]) -> tuple[int, ...] | None:
    """Return how much each device's memory counts in the tightest bound; None where that is not at all."""
    placement = timeline.placement
    assert placement.free_memory is not None
    blocks = placement.blocks
    column = {block.name: i for i, block in enumerate(blocks)}
    rows: list[np.ndarray] = []
    limits: list[float] = []
    for device, capacity in enumerate(placement.free_memory):
        row = np.zeros(len(blocks) + 1)
        row[-1] = -capacity
        for block in placement.on(device):
            row[column[block.name]] = -block.memory_on(device)
        rows.append(row)
        occupied = sum(
            _occupied_while_running(b, device) * timeline.length[b.name] for b in placement.on(device)
        )
        limits.append(-occupied - float(unused[device] if unused else 0))
    for block in blocks:
        for name in block.after:
            row = np.zeros(len(blocks) + 1)
            row[column[name]], row[column[block.name]] = 1, -1
            rows.append(row)
            limits.append(-timeline.length[name] - timeline.transfer_time(name, block.name))
    cost = np.zeros(len(blocks) + 1)
    cost[-1] = 1
    answer = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=(0, None), method="highs")
    if answer.status != 0:
        return None
    weight = np.maximum(-answer.ineqlin.marginals[: placement.num_devices], 0)
    whole = np.rint(weight / max(weight.max(), 1e-12) * _FINEST_WEIGHT).astype(int)
    divisor = int(np.gcd.reduce(whole)) if whole.any() else 0
    return tuple(int(each) // divisor for each in whole) if divisor else None
