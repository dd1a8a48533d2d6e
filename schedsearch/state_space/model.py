"""A placement as the arrays that the search over states works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements import Block, Placement
from schedsearch.proof.timeline import Timeline

Ints = NDArray[np.int64]

MAX_TICKS = 2**31
"""Ticks of a block from which on the sums over states might not fit 64 bits; other bounds are used then."""


@dataclass(frozen=True)
class Activity:
    """A block, or a transfer, which needs no device and starts by itself.

    Attributes:
        name: The block's; of a transfer, who sends to whom.
        time: Ticks.
        devices: Those that it needs; none for a transfer.
        after: Indices of the activities that it waits for.
        tail: Least ticks from its end to the end of its micro-batch.
    """

    name: str
    time: int
    devices: tuple[int, ...]
    after: tuple[int, ...]
    tail: int


@dataclass(frozen=True, eq=False)
class StateSpaceModel:
    """The part of a placement that needs a search: see `model_of`.

    Attributes:
        placement: All of it, without optimizer blocks.
        first: Blocks that can all run before everything else, at no loss, in this order.
        last: Blocks that can all run after everything else, at no loss, in this order.
        activities: The others, and transfers; in topological order.
        memory: Units that each activity allocates on each device when it starts, negative where it releases
            them; shape ``(num_devices, activities)``.
        transient: More units that it needs while it runs; same shape.
        capacity: Units of each device, less its static memory; None for no limit.
    """

    placement: Placement
    first: tuple[Block, ...]
    last: tuple[Block, ...]
    activities: tuple[Activity, ...]
    memory: Ints
    transient: Ints
    capacity: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Return the number of activities."""
        return len(self.activities)

    @property
    def apart(self) -> int:
        """Return the ticks per micro-batch of what runs before and after everything else."""
        return sum(block.time for block in (*self.first, *self.last))

    @cached_property
    def time(self) -> Ints:
        """Return the ticks of each activity."""
        return np.array([activity.time for activity in self.activities], dtype=np.int64)

    @cached_property
    def tail(self) -> Ints:
        """Return the least ticks from each activity's end to the end of its micro-batch."""
        return np.array([activity.tail for activity in self.activities], dtype=np.int64)

    @cached_property
    def on(self) -> tuple[tuple[int, ...], ...]:
        """Return the activities on each device."""
        return tuple(
            tuple(i for i, activity in enumerate(self.activities) if device in activity.devices)
            for device in range(self.placement.num_devices)
        )

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Return the activities that are blocks."""
        return tuple(i for i, activity in enumerate(self.activities) if activity.devices)

    @cached_property
    def transfers(self) -> tuple[int, ...]:
        """Return the activities that are transfers."""
        return tuple(i for i, activity in enumerate(self.activities) if not activity.devices)

    @cached_property
    def must_agree(self) -> tuple[int, ...]:
        """Return the activities of which one of two states must not have run more to be the better one.

        These are the blocks that allocate memory, where that may keep others from starting: on devices where
        several blocks allocate memory, or need it while they run.
        """
        if self.capacity is None:
            return ()
        found: set[int] = set()
        for device, here in enumerate(self.on):
            allocating = [i for i in here if self.memory[device, i] > 0]
            if len(allocating) > 1 or self.transient[device].any():
                found.update(allocating)
        return tuple(sorted(found))

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Group the activities that wait for each other, directly or not."""
        group = list(range(self.size))
        for i, activity in enumerate(self.activities):
            for j in activity.after:
                old, new = group[j], group[i]
                group = [new if g == old else g for g in group]
        return tuple(tuple(i for i in range(self.size) if group[i] == g) for g in sorted(set(group)))


def model_of(placement: Placement) -> StateSpaceModel | None:
    """Return a placement's model, or None where it has what states do not express.

    Optimizer blocks are left out. A transfer is expressed where it takes no longer than the block that
    sends, so that there is never a second one on its way; a block where it takes less than `MAX_TICKS`.

    Blocks on all devices that neither allocate nor release memory, and wait for nothing but such blocks, can
    all run first, if there are no transfers: cut the intervals in which they run out of a schedule, and put
    them before it. No device ran anything else in them, so what is left is valid and as much shorter. So can
    those that nothing but such blocks waits for, at the end. What remains in between is what matters.
    """
    placement = placement.per_micro_batch
    if any(ticks > placement.by_name[source].time for source, _, ticks in placement.transfer):
        return None
    if any(block.time >= MAX_TICKS for block in placement.blocks):
        return None
    order = placement.topological_order
    first = _apart(placement, order, lambda block: block.after)
    last = _apart(placement, order[::-1], lambda block: placement.successors[block.name])
    last = [block for block in last if block not in first]
    if len(first) + len(last) == len(placement.blocks) or any(ticks for _, _, ticks in placement.transfer):
        last, first = [], []
    apart = {block.name for block in (*first, *last)}
    rest = [block for block in placement.topological_order if block.name not in apart]
    activities = _activities(placement, rest)
    shape = (placement.num_devices, len(activities))
    memory, transient = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for i, activity in enumerate(activities):
        for device in activity.devices:
            block = placement.by_name[activity.name]
            memory[device, i], transient[device, i] = block.memory_on(device), block.transient
    return StateSpaceModel(
        placement,
        tuple(first),
        tuple(reversed(last)),
        tuple(activities),
        memory,
        transient,
        placement.free_memory,
    )


def _apart(
    placement: Placement, order: Sequence[Block], neighbors: Callable[[Block], Sequence[str]]
) -> list[Block]:
    """Return the blocks that can run apart, given what each waits for, or is waited for by."""
    found: dict[str, Block] = {}
    free = placement.free_memory
    for block in order:
        if (
            len(block.devices) == placement.num_devices
            and not any(block.memory_on(device) for device in block.devices)
            and (free is None or block.transient <= min(free))
            and all(name in found for name in neighbors(block))
        ):
            found[block.name] = block
    return list(found.values())


def _activities(placement: Placement, blocks: Sequence[Block]) -> list[Activity]:
    kept = {block.name for block in blocks}
    tails = Timeline(
        replace(
            placement,
            blocks=tuple(
                replace(block, after=tuple(name for name in block.after if name in kept), memory=0)
                for block in blocks
            ),
            transfer=tuple(t for t in placement.transfer if t[0] in kept and t[1] in kept),
        ),
        frozenset(),
    ).tails
    activities: list[Activity] = []
    index: dict[str, int] = {}
    for block in blocks:
        after = []
        for name in block.after:
            if name not in kept:
                continue
            ticks = placement.transfer_time(name, block.name)
            if ticks:
                tail = block.time + tails[block.name]
                activities.append(Activity(f"{name} to {block.name}", ticks, (), (index[name],), tail))
                after.append(len(activities) - 1)
            else:
                after.append(index[name])
        index[block.name] = len(activities)
        activities.append(Activity(block.name, block.time, block.devices, tuple(after), tails[block.name]))
    return activities
