"""Least memory that one micro-batch needs on each device, known before any search."""

from __future__ import annotations

from collections.abc import Iterable

from placements import Placement
from placements.copies.replicas import copies_in

_FAR_TOO_SMALL = 50
"""A capacity this many times too small for one micro-batch is probably given in another unit."""


class CapacityError(ValueError):
    """A device's memory is too small for even one micro-batch.

    Attributes:
        reason: The device and its missing memory, in words; the message also names the remedy.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason

    def __str__(self) -> str:
        return "; ".join(self.args)


def minimum_memory(placement: Placement, device: int) -> int:
    """Return a lower bound on the memory that one micro-batch alone needs on a device; exact for chains.

    Static memory is not in it.

    Proof: just after a block starts, the blocks that have started include all that it is after, directly
    or not, and none that is after it. The least memory over all such sets that are closed under
    dependencies is a minimum cut (project selection); the bound is its greatest value over the blocks.
    """
    needs = [block for block in placement.on(device) if block.memory_on(device) > 0 or block.transient > 0]
    missing = {block.name: set(placement.successors[block.name]) for block in needs}
    course = DeviceMemory(placement, device, set(missing).union(*missing.values()))
    in_use = (b.transient + course.min_in_use({b.name}, missing[b.name]) for b in needs)
    return max(in_use, default=0)


def require_capacity(placement: Placement) -> None:
    """Check that one micro-batch fits on each device, and releases no memory before it allocates it.

    If a micro-batch could use less than nothing for a while, others could rely on it, and the steady state
    would not prove that warmup and cooldown fit, where this micro-batch is missing.

    Raises:
        CapacityError: A device's memory is too small, or blocks may release it before others allocate it; the
            message names the device.
    """
    if placement.memory is None:
        return
    as_run = [placement]
    if placement.decisions:  # what a decision's blocks allocate they release, so one choice of each at a time
        numbers = range(max(len(decision.choices) for decision in placement.decisions))
        last = [len(decision.choices) - 1 for decision in placement.decisions]
        as_run = [placement.as_run(tuple(min(number, most) for most in last)) for number in numbers]
    for plain in as_run:
        for device in range(placement.num_devices):
            course = DeviceMemory(plain, device)
            if (early := course.max_released(course.memory)) > 0:
                raise CapacityError(
                    f"blocks: one micro-batch may release {early} of memory on device {device} before it "
                    "allocates it",
                    "put the blocks that release 'after' those that allocate",
                )
    least = as_run[-1] if copies_in(placement) else placement.at_best
    needs = [minimum_memory(least, device) for device in range(placement.num_devices)]
    for device, capacity in enumerate(placement.memory):
        needed, static = needs[device], placement.static[device]
        if needed + static > capacity:
            besides = f" besides {_shown(placement, static)} of static memory" if static else ""
            enough = max(map(sum, zip(needs, placement.static, strict=True)))
            remedy = f"give each device {_shown(placement, enough)} or more"
            if 0 < _FAR_TOO_SMALL * capacity <= needed + static:
                remedy += ", and all in one unit, if this is GiB and that MiB"
            raise CapacityError(
                f"memory[{device}]: {_shown(placement, capacity)} is too small for one micro-batch, which "
                f"needs {_shown(placement, needed)} on device {device}{besides}",
                remedy,
            )


def _shown(placement: Placement, units: int) -> str:
    return f"{units}" if placement.memory_unit_mib is None else f"{placement.mib(units):.10g} MiB"


class DeviceMemory:
    """The blocks of one micro-batch that change a device's memory, with their predecessors.

    Dependencies over other devices are followed, but a cut is made through these few blocks only: where
    each device has a handful of thousands, cuts through all of them take a minute.

    Attributes:
        memory: Units that each block allocates; negative if it releases.
        before: Predecessors, direct or not, of each of these blocks and of others asked for.
    """

    def __init__(self, placement: Placement, device: int, others: Iterable[str] = ()) -> None:
        """Take the blocks with memory on a device, and others."""
        held = {block.name: block.memory_on(device) for block in placement.on(device)}
        self.memory = {name: units for name, units in held.items() if units}
        asked = set(self.memory).union(others)
        self.before: dict[str, frozenset[str]] = {}
        upto: dict[str, frozenset[str]] = {}
        for block in placement.topological_order:
            upto[block.name] = frozenset[str]().union(*(upto[name] for name in block.after))
            if block.name in asked:
                self.before[block.name] = upto[block.name]
                upto[block.name] |= {block.name}

    def min_in_use(self, started: set[str], missing: set[str]) -> int:
        """Return the least memory that one micro-batch can have in use on the device at some point.

        Proof: what has started is closed under dependencies, and project selection (a minimum cut) finds the
        choice among the other blocks that releases most.

        Args:
            started: Blocks that have started by then, and so all that they are after; of the blocks taken.
            missing: Blocks that have not, and so none that is after them; likewise, and not in `started`.
        """
        before = started.union(*(self.before[name] for name in started))
        free = self.memory.keys() - before - missing
        can = [name for name in self.memory if name in free and not self.before[name] & missing]
        return sum(self.memory.get(name, 0) for name in before) - self.max_released(can)

    def max_released(self, names: Iterable[str]) -> int:
        """Return the most memory that blocks of a set can release in total, each with its predecessors."""
        import networkx as nx

        network, names = nx.DiGraph(), set(names)
        network.add_nodes_from(["source", "sink"])
        for name in names:
            units = self.memory[name]
            ends = ("source", ("block", name)) if units < 0 else (("block", name), "sink")
            network.add_edge(*ends, capacity=abs(units))
            network.add_edges_from((("block", name), ("block", a)) for a in self.before[name] & names)
        total = -sum(min(0, self.memory[name]) for name in names)
        return total - int(nx.minimum_cut_value(network, "source", "sink")) if total else 0
