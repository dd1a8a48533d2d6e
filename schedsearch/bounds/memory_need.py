"""What memory one micro-batch needs on each device at the least, before any search."""

from __future__ import annotations

import networkx as nx

from placements import Placement

_FAR_TOO_SMALL = 50
"""A capacity of so small a share of what a micro-batch needs is likely given in another unit."""


class CapacityError(ValueError):
    """A device's memory is too small for even one micro-batch."""


def minimum_memory(placement: Placement, device: int) -> int:
    """Return a lower bound on the memory that one micro-batch alone needs on a device; exact for chains.

    Static memory is not in it.

    Proof: just after a block starts, the blocks that have started include all that it is after, directly
    or not, and none that is after it. The least memory over all such sets that are closed under
    dependencies is a minimum cut (project selection); the bound is its greatest value over the blocks.
    """
    return max(
        (
            block.transient
            + least_in_use(placement, device, {block.name}, set(placement.successors[block.name]))
            for block in placement.on(device)
            if block.memory_on(device) > 0 or block.transient > 0
        ),
        default=0,
    )


def least_in_use(placement: Placement, device: int, started: set[str], missing: set[str]) -> int:
    """Return the least memory that one micro-batch can have in use on a device at some point of its course.

    Proof: what has started is closed under dependencies, and project selection (a minimum cut) finds the
    choice among the other blocks that releases most.

    Args:
        placement: What runs where.
        device: Whose memory.
        started: Blocks that have started by then, and so all that they are after.
        missing: Blocks that have not, and so none that is after them; no block of `started` is.
    """
    graph = _dependencies(placement)
    memory = _memory_on(placement, device)
    before = set(started).union(*(nx.ancestors(graph, name) for name in started))
    later = set(missing).union(*(nx.descendants(graph, name) for name in missing))
    return sum(memory[name] for name in before) - _most_released(
        graph.subgraph(set(graph) - before - later), memory
    )


def require_capacity(placement: Placement) -> None:
    """Check that one micro-batch fits on each device, and releases nothing before it has allocated it.

    Were a micro-batch able to use less than nothing for a while, the others could rely on it, and the steady
    state would say nothing of warmup and cooldown, where it is missing.

    Raises:
        CapacityError: A device's memory is too small, or blocks may release it before others allocate it; the
            message names the device.
    """
    graph = _dependencies(placement) if placement.memory is not None else nx.DiGraph()
    for device in range(placement.num_devices) if placement.memory is not None else ():
        early = _most_released(graph, _memory_on(placement, device))
        if early > 0:
            raise CapacityError(
                f"blocks: one micro-batch may release {early} of memory on device {device} before it "
                "allocates it; put the blocks that release 'after' those that allocate"
            )
    for device, capacity in enumerate(placement.memory or ()):
        needed, static = minimum_memory(placement, device), placement.static[device]
        if needed + static > capacity:
            besides = f" besides {static} of static memory" if static else ""
            remedy = "raise search.memory or the placement's memory"
            if 0 < _FAR_TOO_SMALL * capacity <= needed + static:
                remedy += ", or give both in one unit if this is GiB and that MiB"
            raise CapacityError(
                f"memory[{device}]: {capacity} is too small for one micro-batch, which needs {needed} "
                f"on device {device}{besides}; {remedy}"
            )


def _dependencies(placement: Placement) -> nx.DiGraph:
    graph = nx.DiGraph((name, block.name) for block in placement.blocks for name in block.after)
    graph.add_nodes_from(block.name for block in placement.blocks)
    return graph


def _memory_on(placement: Placement, device: int) -> dict[str, int]:
    return {block.name: block.memory_on(device) for block in placement.blocks}


def _most_released(graph: nx.DiGraph, memory: dict[str, int]) -> int:
    """Return the most memory that a set of blocks closed under dependencies can release in total."""
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
