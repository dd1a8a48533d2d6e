"""What no schedule can beat: lower bounds on period, makespan and memory, each with its proof.

The bounds hold for any number of micro-batches per repetend and know nothing of the search.
"""

from __future__ import annotations

import math

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


def residence_bound(placement: Placement) -> float:
    """Return the least period per micro-batch, in ticks, at which memory can hold what is in flight.

    Proof (Little's law). Memory given back by a block can be taken again only by a later block of the
    same device, hence after the first block's end: counted until then, memory in use still never exceeds
    the capacity. Averaged over a long time it is the memory times the time held of one micro-batch,
    averaged over micro-batches, divided by the period per micro-batch. The averages of the micro-batches'
    starts satisfy the dependencies, as each one's starts do, so the least period over all starts that
    satisfy them, a linear program, is a lower bound.
    """
    if placement.memory is None:
        return 0.0
    blocks = placement.blocks
    column = {block.name: i for i, block in enumerate(blocks)}
    rows: list[np.ndarray] = []
    limits: list[float] = []
    for block in blocks:
        for name in block.after:
            row = np.zeros(len(blocks) + 1)
            row[column[name]], row[column[block.name]] = 1, -1
            rows.append(row)
            limits.append(-placement.by_name[name].time - placement.transfer_time(name, block.name))
    for device, capacity in enumerate(placement.memory):
        row = np.zeros(len(blocks) + 1)
        row[-1] = -capacity
        limit = 0
        for block in placement.on(device):
            row[column[block.name]] = -block.memory
            limit -= -block.memory * block.time if block.memory < 0 else 0
        rows.append(row)
        limits.append(limit)
    cost = np.zeros(len(blocks) + 1)
    cost[-1] = 1
    answer = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=(0, None), method="highs")
    return float(answer.fun) if answer.status == 0 else 0.0


def period_bound(placement: Placement) -> float:
    """Return the greatest of the bounds on the period per micro-batch, in ticks."""
    return max(float(load_bound(placement)), residence_bound(placement))


def least_period(placement: Placement, micro_batches: int) -> int:
    """Return a lower bound on the whole ticks of the period of a repetend of so many micro-batches.

    Of the residence bound a millionth is given away, because linear programs are solved in floating point.
    """
    residence = math.ceil(residence_bound(placement) * micro_batches * (1 - 1e-6))
    return max(
        micro_batches * load_bound(placement), residence, max(block.time for block in placement.blocks)
    )


def critical_path(placement: Placement) -> int:
    """Return the ticks that one micro-batch needs on idle devices: no span is shorter."""
    return max(
        start + block.time
        for block, start in zip(placement.topological_order, _heads(placement), strict=True)
    )


def makespan_bound(placement: Placement, num_micro_batches: int) -> int:
    """Return a lower bound on the ticks of a schedule of so many micro-batches.

    Proof: before a device's first block, the blocks that this one waits for must run; after its last
    block, those that wait for it; in between the device has the work of every micro-batch to do. Where
    memory binds, Little's law holds for the whole makespan as it does for the steady state.
    """
    order = placement.topological_order
    head = {block.name: ticks for block, ticks in zip(order, _heads(placement), strict=True)}
    tail = _tails(placement)
    bound = max(
        critical_path(placement), math.ceil(residence_bound(placement) * num_micro_batches * (1 - 1e-6))
    )
    for device in range(placement.num_devices):
        names = [block.name for block in placement.on(device)]
        if names:
            work = num_micro_batches * placement.load(device)
            bound = max(bound, min(head[n] for n in names) + work + min(tail[n] for n in names))
    return bound


def minimum_memory(placement: Placement, device: int) -> int:
    """Return a lower bound on the memory that one micro-batch alone needs on a device; exact for chains.

    Proof: just after a block starts, the blocks that have started include all that it is after, directly
    or not, and none that is after it. The least memory over all such sets that are closed under
    dependencies is a minimum cut (project selection); the bound is its greatest value over the blocks.
    """
    graph = _dependencies(placement)
    memory = _memory_on(placement, device)
    most = 0
    for block in placement.on(device):
        if block.memory > 0:
            before = nx.ancestors(graph, block.name) | {block.name}
            free = set(graph) - before - nx.descendants(graph, block.name)
            held = sum(memory[name] for name in before)
            most = max(most, held - _most_given_back(graph.subgraph(free), memory))
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
        needed = minimum_memory(placement, device)
        if needed > capacity:
            raise CapacityError(
                f"memory[{device}]: {capacity} is too small for one micro-batch, which needs {needed} "
                f"on device {device}; raise search.memory or the placement's memory"
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
