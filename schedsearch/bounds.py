"""What no schedule can beat: lower bounds on period, makespan and memory, each with its proof.

The bounds hold for any number of micro-batches per repetend and know nothing of the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import networkx as nx
import numpy as np
from scipy.optimize import linprog

from placements import Placement


class CapacityError(ValueError):
    """A device's memory is too small for even one micro-batch."""


def load_bound(placement: Placement) -> int:
    """Return the busiest device's work per micro-batch in ticks.

    Proof: a device runs one block at a time, and every micro-batch brings it the same work.
    """
    return max(placement.load(device) for device in range(placement.num_devices))


@dataclass(frozen=True)
class Residence:
    """A proof by Little's law that no period per micro-batch is below a value; see `residence_bound`.

    Attributes:
        device_weight: How much each device's memory counts; shape ``(num_devices,)``, at least 0.
        flow: For some pairs of a block and one after it, how much of what the first takes is passed on to
            the second until a block gives it back; at least 0.
    """

    device_weight: tuple[int, ...]
    flow: Mapping[tuple[str, str], int]

    def bound(self, placement: Placement) -> Fraction:
        """Return the ticks that it proves, exactly.

        Proof. Let block b start at s(b), averaged over micro-batches. A device d with capacity c(d) holds,
        averaged over time and as counted in `residence_bound`, the sum over its blocks of
        ``-memory(b) * s(b) + held_while_running(b)`` per period, which is at most c(d) times the period.
        Sum over devices with their weights. The flow balances what blocks take and give back, so the sum of
        ``-memory * s`` is that of ``flow(a, b) * (s(b) - s(a))``, at least ``flow(a, b) * (time(a) +
        transfer(a, b))``. What is left is free of s.

        Raises:
            ValueError: It proves nothing of the placement: the flow does not balance, or is negative.
        """
        assert placement.free_memory is not None, "there is no residence without capacities"
        if min((*self.device_weight, *self.flow.values())) < 0 or not any(self.device_weight):
            raise ValueError("residence: weights and flows are not all 0 or more, with some weight above 0")
        weight = {
            block.name: sum(self.device_weight[device] for device in block.devices)
            for block in placement.blocks
        }
        left = {block.name: block.memory * weight[block.name] for block in placement.blocks}
        held = sum(
            weight[block.name] * max(-block.memory, block.transient) * block.time
            for block in placement.blocks
        )
        for (a, b), amount in self.flow.items():
            if a not in placement.by_name[b].after:
                raise ValueError(f"residence: {b} is not after {a}, so nothing can be passed on")
            left[a] -= amount
            left[b] += amount
            held += amount * (placement.by_name[a].time + placement.transfer_time(a, b))
        if any(left.values()):
            raise ValueError("residence: what blocks take is not what the others give back")
        capacity = sum(w * c for w, c in zip(self.device_weight, placement.free_memory, strict=True))
        return Fraction(held, capacity) if capacity else Fraction(0)


def residence_bound(placement: Placement) -> Fraction:
    """Return the least period per micro-batch, in ticks, at which memory can hold what is in flight.

    Proof (Little's law). Memory given back by a block can be taken again only by a later block of the
    same device, hence after the first block's end: counted until then, memory in use still never exceeds
    the capacity. Averaged over a long time it is the memory times the time held of one micro-batch,
    averaged over micro-batches, divided by the period per micro-batch. The averages of the micro-batches'
    starts satisfy the dependencies, as each one's starts do, so the least period over all starts that
    satisfy them, a linear program, is a lower bound. While a block runs that gives memory back, counted is
    the greater of what it gives back and what it needs for itself: both fit, one before and one during it.
    """
    proof = residence(placement)
    return proof.bound(placement.per_micro_batch) if proof is not None else Fraction(0)


def residence(placement: Placement) -> Residence | None:
    """Return the proof of the residence bound, or None where memory bounds nothing.

    The linear program of `residence_bound` says how much each device counts. Whatever the weights, the best
    flow is a minimum cost flow in whole numbers, so that the proof is exact.
    """
    placement = placement.per_micro_batch
    if placement.free_memory is None or not any(b.memory or b.transient for b in placement.blocks):
        return None
    weight = _device_weights(placement)
    if weight is None:
        return None
    graph = nx.DiGraph()
    for block in placement.blocks:
        graph.add_node(block.name, demand=-block.memory * sum(weight[device] for device in block.devices))
        for name in block.after:
            ticks = placement.by_name[name].time + placement.transfer_time(name, block.name)
            graph.add_edge(name, block.name, weight=-ticks)
    try:
        _, flows = nx.network_simplex(graph)
    except (
        nx.NetworkXUnfeasible
    ):  # some memory is given back by blocks that do not wait for those that take it
        return None
    flow = {(a, b): amount for a, by_target in flows.items() for b, amount in by_target.items() if amount}
    return Residence(weight, flow)


_FINEST_WEIGHT = 10_000
"""Devices are weighted in whole numbers up to this."""


def _device_weights(placement: Placement) -> tuple[int, ...] | None:
    """Return how much each device's memory counts in the tightest bound; None where that is not at all."""
    assert placement.free_memory is not None
    blocks = placement.blocks
    column = {block.name: i for i, block in enumerate(blocks)}
    rows: list[np.ndarray] = []
    limits: list[float] = []
    for device, capacity in enumerate(placement.free_memory):
        row = np.zeros(len(blocks) + 1)
        row[-1] = -capacity
        for block in placement.on(device):
            row[column[block.name]] = -block.memory
        rows.append(row)
        limits.append(-sum(max(-b.memory, b.transient) * b.time for b in placement.on(device)))
    for block in blocks:
        for name in block.after:
            row = np.zeros(len(blocks) + 1)
            row[column[name]], row[column[block.name]] = 1, -1
            rows.append(row)
            limits.append(-placement.by_name[name].time - placement.transfer_time(name, block.name))
    cost = np.zeros(len(blocks) + 1)
    cost[-1] = 1
    answer = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=(0, None), method="highs")
    if answer.status != 0:
        return None
    weight = np.maximum(-answer.ineqlin.marginals[: placement.num_devices], 0)
    whole = np.rint(weight / max(weight.max(), 1e-12) * _FINEST_WEIGHT).astype(int)
    divisor = int(np.gcd.reduce(whole)) if whole.any() else 0
    return tuple(int(each) // divisor for each in whole) if divisor else None


def period_bound(placement: Placement) -> Fraction:
    """Return the greatest of the bounds on the period per micro-batch, in ticks."""
    return max(Fraction(load_bound(placement)), residence_bound(placement))


def least_period(placement: Placement, micro_batches: int) -> int:
    """Return a lower bound on the whole ticks of the period of a repetend of so many micro-batches."""
    bound = math.ceil(period_bound(placement) * micro_batches)
    return max(bound, max(block.time for block in placement.per_micro_batch.blocks))


def critical_path(placement: Placement) -> int:
    """Return the ticks that one micro-batch needs on idle devices: no span is shorter."""
    placement = placement.per_micro_batch
    return max(
        start + block.time
        for block, start in zip(placement.topological_order, _heads(placement), strict=True)
    )


def makespan_bound(placement: Placement, num_micro_batches: int) -> int:
    """Return a lower bound on the ticks of a schedule of so many micro-batches.

    Proof: before a device's first block, the blocks that this one waits for must run; after its last
    block, those that wait for it; in between the device has the work of every micro-batch to do, and that of
    its optimizer blocks. Where memory binds, Little's law holds for the whole makespan as it does for the
    steady state.
    """
    order = placement.topological_order
    head = {block.name: ticks for block, ticks in zip(order, _heads(placement), strict=True)}
    tail = _tails(placement)
    longest_path = max(head[block.name] + block.time + tail[block.name] for block in order)
    bound = max(longest_path, math.ceil(residence_bound(placement) * num_micro_batches))
    for device in range(placement.num_devices):
        names = [block.name for block in placement.on(device)]
        if names:
            once = sum(block.time for block in placement.optimizer_blocks if device in block.devices)
            work = num_micro_batches * placement.load(device) + once
            bound = max(bound, min(head[n] for n in names) + work + min(tail[n] for n in names))
    return bound


def minimum_memory(placement: Placement, device: int) -> int:
    """Return a lower bound on the memory that one micro-batch alone needs on a device; exact for chains.

    Static memory is not in it.

    Proof: just after a block starts, the blocks that have started include all that it is after, directly
    or not, and none that is after it. The least memory over all such sets that are closed under
    dependencies is a minimum cut (project selection); the bound is its greatest value over the blocks.
    """
    graph = _dependencies(placement)
    memory = _memory_on(placement, device)
    most = 0
    for block in placement.on(device):
        if block.memory > 0 or block.transient > 0:
            before = nx.ancestors(graph, block.name) | {block.name}
            free = set(graph) - before - nx.descendants(graph, block.name)
            held = sum(memory[name] for name in before)
            most = max(most, held + block.transient - _most_given_back(graph.subgraph(free), memory))
    return most


def require_capacity(placement: Placement) -> None:
    """Check that each device can hold one micro-batch, which gives nothing back before it has taken it.

    Were a micro-batch able to hold less than nothing for a while, the others could rely on it, and the steady
    state would say nothing of warmup and cooldown, where it is missing.

    Raises:
        CapacityError: A device's memory is too small, or blocks may give back before others take; the
            message names the device.
    """
    graph = _dependencies(placement) if placement.memory is not None else nx.DiGraph()
    for device in range(placement.num_devices) if placement.memory is not None else ():
        early = _most_given_back(graph, _memory_on(placement, device))
        if early > 0:
            raise CapacityError(
                f"blocks: one micro-batch may give back {early} of memory on device {device} before it takes "
                "it; put the blocks that give back 'after' those that take"
            )
    for device, capacity in enumerate(placement.memory or ()):
        needed, static = minimum_memory(placement, device), placement.static[device]
        if needed + static > capacity:
            besides = f" besides {static} of static memory" if static else ""
            raise CapacityError(
                f"memory[{device}]: {capacity} is too small for one micro-batch, which needs {needed} "
                f"on device {device}{besides}; raise search.memory or the placement's memory"
            )


def _dependencies(placement: Placement) -> nx.DiGraph:
    graph = nx.DiGraph((name, block.name) for block in placement.blocks for name in block.after)
    graph.add_nodes_from(block.name for block in placement.blocks)
    return graph


def _memory_on(placement: Placement, device: int) -> dict[str, int]:
    return {block.name: block.memory if device in block.devices else 0 for block in placement.blocks}


def _most_given_back(graph: nx.DiGraph, memory: dict[str, int]) -> int:
    """Return the greatest total of memory given back by a set of blocks closed under dependencies."""
    network = nx.DiGraph()
    network.add_nodes_from(["source", "sink"])
    total = 0
    for name in graph:
        gain = -memory[name]
        if gain > 0:
            total += gain
            network.add_edge("source", ("block", name), capacity=gain)
        elif gain < 0:
            network.add_edge(("block", name), "sink", capacity=-gain)
    for earlier, later in graph.edges:
        network.add_edge(("block", later), ("block", earlier))
    return total - int(nx.minimum_cut_value(network, "source", "sink")) if total else 0


def _heads(placement: Placement) -> list[int]:
    """Return the earliest start of each block of one micro-batch, in topological order."""
    end: dict[str, int] = {}
    heads = []
    for block in placement.topological_order:
        start = max(
            (end[name] + placement.transfer_time(name, block.name) for name in block.after), default=0
        )
        heads.append(start)
        end[block.name] = start + block.time
    return heads


def _tails(placement: Placement) -> dict[str, int]:
    """Return for each block the least ticks from its end to the end of its micro-batch."""
    tail: dict[str, int] = {}
    for block in reversed(placement.topological_order):
        tail[block.name] = max(
            (
                placement.transfer_time(block.name, name) + placement.by_name[name].time + tail[name]
                for name in placement.successors[block.name]
            ),
            default=0,
        )
    return tail
