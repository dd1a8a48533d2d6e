"""A placement as arrays for the search over states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements import Block, Placement

Ints = NDArray[np.int64]

MAX_TICKS = 2**31
"""Ticks of a block from which on the sums over states might not fit 64 bits; other bounds are used then."""


@dataclass(frozen=True, eq=False)
class StateSpaceModel:
    """The part of a placement that needs a search: see `model_of`.

    An activity is a block, or a transfer, which needs no device and starts by itself. They are in topological
    order.

    Attributes:
        placement: The whole placement, without optimizer blocks.
        first: Blocks that can all run before all others, at no loss, in this order.
        last: Blocks that can all run after all others, at no loss, in this order.
        names: The block of each activity; of a transfer, ``SENDER to RECEIVER``.
        after: Activities that each waits for.
        on: Activities on each device.
        time: Ticks of each; shape ``(activities,)``.
        memory: Units that each allocates on each device when it starts, negative where it releases them;
            shape ``(num_devices, activities)``.
        transient: More units that it needs while it runs; same shape.
        capacity: Units of each device, less its static memory; None for no limit.
    """

    placement: Placement
    first: tuple[Block, ...]
    last: tuple[Block, ...]
    names: tuple[str, ...]
    after: tuple[tuple[int, ...], ...]
    on: tuple[tuple[int, ...], ...]
    time: Ints
    memory: Ints
    transient: Ints
    capacity: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Number of activities."""
        return len(self.names)

    @property
    def apart(self) -> int:
        """Ticks per micro-batch of the blocks in `first` and `last`."""
        return sum(block.time for block in (*self.first, *self.last))

    @cached_property
    def tail(self) -> Ints:
        """Least ticks from each activity's end to the end of its micro-batch."""
        tail = np.zeros(self.size, dtype=np.int64)
        for i in reversed(range(self.size)):
            for j in self.after[i]:
                tail[j] = max(tail[j], self.time[i] + tail[i])
        return tail

    @cached_property
    def devices(self) -> tuple[tuple[int, ...], ...]:
        """Devices of each activity; empty for a transfer."""
        return tuple(tuple(d for d, here in enumerate(self.on) if i in here) for i in range(self.size))

    @cached_property
    def must_agree(self) -> tuple[int, ...]:
        """Activities that two states must have started equally often, so that one can dominate the other.

        These are the blocks that allocate memory on devices where this may keep others from starting: where
        several blocks allocate memory, or some need memory while they run.
        """
        if self.capacity is None:
            return ()
        activities: set[int] = set()
        for device, here in enumerate(self.on):
            allocating = [i for i in here if self.memory[device, i] > 0]
            if len(allocating) > 1 or self.transient[device].any():
                activities.update(allocating)
        return tuple(sorted(activities))

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Groups of activities that wait for each other, directly or not."""
        group = list(range(self.size))
        for i, after in enumerate(self.after):
            for j in after:
                group = [group[i] if g == group[j] else g for g in group]
        return tuple(tuple(i for i in range(self.size) if group[i] == g) for g in sorted(set(group)))


def model_of(placement: Placement) -> StateSpaceModel | None:
    """Return a placement's model; None if a transfer or a block is too long for the states.

    Optimizer blocks are left out. A transfer must take no longer than the block that sends it, so that
    a second one is never on its way at the same time; a block must take less than `MAX_TICKS`.

    Blocks on all devices that neither allocate nor release memory, and wait for nothing but such blocks, can
    all run first, if there are no transfers: cut the intervals in which they run out of a schedule, and put
    them before it. No device ran any other block in them, so the rest is valid and shorter by their time.
    Likewise, blocks that only such blocks wait for can run at the end. The search is over the rest.
    """
    placement = placement.per_micro_batch
    if any(ticks > placement.by_name[source].time for source, _, ticks in placement.transfer):
        return None
    if any(block.time >= MAX_TICKS for block in placement.blocks):
        return None
    order = placement.topological_order
    first = _apart(placement, order, lambda block: block.after)
    last = _apart(placement, order[::-1], lambda block: placement.successors[block.name])
    last = [block for block in reversed(last) if block not in first]
    if len(first) + len(last) == len(placement.blocks) or any(ticks for _, _, ticks in placement.transfer):
        last, first = [], []
    activities: list[tuple[str, Block | None, int, tuple[int, ...]]] = []
    index: dict[str, int] = {}
    for block in order:
        if block in first or block in last:
            continue
        after: list[int] = []
        for name in block.after:
            if name in index and (ticks := placement.transfer_time(name, block.name)):
                after.append(len(activities))
                activities.append((f"{name} to {block.name}", None, ticks, (index[name],)))
            elif name in index:
                after.append(index[name])
        index[block.name] = len(activities)
        activities.append((block.name, block, block.time, tuple(after)))
    names, blocks, times, inputs = zip(*activities, strict=True)
    devices = range(placement.num_devices)
    return StateSpaceModel(
        placement,
        tuple(first),
        tuple(last),
        names,
        inputs,
        tuple(tuple(i for i, block in enumerate(blocks) if block and d in block.devices) for d in devices),
        np.array(times, dtype=np.int64),
        np.array([[block.memory_on(d) if block else 0 for block in blocks] for d in devices]),
        np.array([[b.transient if b and d in b.devices else 0 for b in blocks] for d in devices]),
        placement.free_memory,
    )


def _apart(
    placement: Placement, order: Sequence[Block], neighbors: Callable[[Block], Sequence[str]]
) -> list[Block]:
    """Return the blocks that can all run first, given each one's inputs; or last, given its successors."""
    apart: dict[str, Block] = {}
    free = placement.free_memory
    for block in order:
        if (
            len(block.devices) == placement.num_devices
            and not any(map(block.memory_on, block.devices))
            and (free is None or block.transient <= min(free))
            and all(name in apart for name in neighbors(block))
        ):
            apart[block.name] = block
    return list(apart.values())
