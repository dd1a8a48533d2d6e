"""States of a device's memory: how often each of its blocks has started, in states in which it is not stuck.

Times and other devices are left out, so there are few such states even where those of the whole placement
are too many. They say what the capacity alone does not: memory for ten units and blocks of four hold eight,
and memory full of what cannot go on without more of it is never given back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from placements import Block, Placement
from schedsearch.proof.device_states import Pair, amounts_held

Counts = NDArray[np.int64]
"""How many micro-batches are between the pairs of each group; shape ``(states, groups)``."""

Group = tuple[tuple[Pair, int], ...]
"""Pairs of blocks, and how often a micro-batch between each counts."""

_MAX_STATES = 1_500
"""States of a device beyond which only what fits counts; more raised no bound of 140 random placements."""

_MAX_GROUPS = 12
"""Groups of blocks that wait for each other beyond which the states are too many: sets of groups."""

_MAX_STATES_IN_ALL = 12_000
"""The same of all devices together; that takes a fraction of a second."""


@dataclass(frozen=True, eq=False)
class DeviceStates:
    """Micro-batches between blocks in the states of one device from which it can end all that it has begun.

    Blocks that allocate and release nothing there are counted only between two that do. The others run in
    any state in which what they need while they run fits.

    No other state is in a schedule. Proof. As micro-batches are alike, let the n-th start of each block be
    that of micro-batch n. After a state, leave out what has not begun: of each group of blocks that wait for
    each other, those of micro-batches of which none has started. What is left ends all that has begun, and is
    valid, as what a micro-batch holds of a group is never less than nothing.

    Where they are too many, `schedsearch.proof.device_states` has the greatest of those whose memory fits.

    Attributes:
        device: Device whose states they are.
        blocks: Names of the blocks that are counted.
        groups: Pairs of these; the second of a pair waits for the first through no third.
        held: Every state.
        running: For each block of the device, the states in which it runs: those before it with its start.
    """

    device: int
    blocks: tuple[str, ...]
    groups: tuple[Group, ...]
    held: Counts
    running: Mapping[str, Counts]


@lru_cache(maxsize=8)
def device_states(placement: Placement) -> tuple[DeviceStates, ...]:
    """Return the states of each device on which they are not too many.

    Args:
        placement: What runs where, without optimizer blocks.
    """
    if placement.free_memory is None:
        return ()
    most = min(_MAX_STATES, _MAX_STATES_IN_ALL // placement.num_devices)
    found = (_states_of(placement, device, most) for device in range(placement.num_devices))
    return tuple(states for states in found if states is not None)


def _states_of(placement: Placement, device: int, most: int) -> DeviceStates | None:
    """Return a device's states, or None for none, for too many, or where they have no end."""
    counted = _counted(placement, device)
    if not counted:
        return None
    walk = _Walk(placement, device, counted)
    pairs = tuple(
        (a, b)
        for b, after in enumerate(walk.after)
        for a in after
        if not any(a in walk.after[c] for c in after)
    )
    others = [block for block in placement.on(device) if block not in counted]
    found = _walked(walk, pairs, others, most) or _fitting(walk, pairs, others, most)
    return found if found is not None and all(map(len, found.running.values())) else None


def _walked(walk: _Walk, pairs: Sequence[Pair], others: Sequence[Block], most: int) -> DeviceStates | None:
    """Return the states that can be reached and left; None if too many, or if a block never runs."""
    steps = walk.steps(most)
    if len({step.block for step in steps}) < len(walk.names):
        return None
    starts = np.array(sorted({state for step in steps for state in (step.state, step.following)}))
    in_use = starts @ np.array(walk.memory)
    first, second = np.array(pairs).T
    held = starts[:, first] - starts[:, second]
    running = {block.name: held[in_use + block.transient <= walk.capacity] for block in others}
    for i, name in enumerate(walk.names):
        meanwhile = np.array([step.meanwhile for step in steps if step.block == i])
        running[name] = meanwhile[:, first] - meanwhile[:, second]
    return DeviceStates(walk.device, walk.names, tuple(((pair, 1),) for pair in pairs), held, running)


def _fitting(walk: _Walk, pairs: Sequence[Pair], others: Sequence[Block], most: int) -> DeviceStates | None:
    """Return the greatest states whose memory fits; None where that says no more than the capacity."""
    amounts = amounts_held(walk.memory, pairs)
    if amounts is None or amounts.max_ways(walk.capacity) > most:
        return None
    groups = tuple(
        tuple((pair, int(times)) for pair, times in zip(pairs, row, strict=True) if times)
        for row in amounts.times
    )
    held = amounts.fit(walk.capacity)
    running = {block.name: amounts.fit(walk.capacity - block.transient) for block in others}
    for i, name in enumerate(walk.names):
        running[name] = amounts.fit(walk.capacity - max(0, walk.needs[i]), i) + amounts.started(i)
    return DeviceStates(walk.device, walk.names, groups, held, running)


def _counted(placement: Placement, device: int) -> list[Block]:
    """Return the blocks of a device that have memory there, and those between two that have."""
    has = {block.name for block in placement.on(device) if block.memory_on(device)}
    after_some = _reached(placement.topological_order, {b.name: b.after for b in placement.blocks}, has)
    before_some = _reached(placement.topological_order[::-1], placement.successors, has)
    return [
        block
        for block in placement.topological_order
        if device in block.devices
        and (block.name in has or (block.name in after_some and block.name in before_some))
    ]


def _reached(order: Sequence[Block], before: Mapping[str, Sequence[str]], some: set[str]) -> set[str]:
    found: set[str] = set()
    for block in order:
        if any(name in some or name in found for name in before[block.name]):
            found.add(block.name)
    return found


DeviceState = tuple[int, ...]
"""How often each counted block has started."""


@dataclass(frozen=True)
class _Step:
    """The start of a block.

    Attributes:
        state: State in which it starts.
        block: Which; an index.
        meanwhile: The state with it, from which nothing has been taken yet.
        following: The state after it.
    """

    state: DeviceState
    block: int
    meanwhile: DeviceState
    following: DeviceState


class _Walk:
    """The walk over the states of one device."""

    def __init__(self, placement: Placement, device: int, counted: Sequence[Block]) -> None:
        assert placement.free_memory is not None
        self.device = device
        self.names = tuple(block.name for block in counted)
        index = {name: i for i, name in enumerate(self.names)}
        waits: dict[str, set[int]] = {}
        for block in placement.topological_order:
            waits[block.name] = set[int]().union(*(waits[name] for name in block.after))
            waits[block.name].update(index[name] for name in block.after if name in index)
        self.after = [waits[block.name] for block in counted]
        self.memory = [block.memory_on(device) for block in counted]
        self.needs = [block.memory_on(device) + block.transient for block in counted]
        self.capacity = placement.free_memory[device]
        self.groups = self._groups()

    def _groups(self) -> list[list[int]]:
        """Return the blocks that wait for each other, directly or not."""
        group = list(range(len(self.after)))
        for i, after in enumerate(self.after):
            for j in after:
                old, new = group[j], group[i]
                group = [new if g == old else g for g in group]
        return [[i for i, g in enumerate(group) if g == number] for number in sorted(set(group))]

    def steps(self, most: int) -> list[_Step]:
        """Return every step between states from which the device can empty itself; none if too many."""
        if any(sum(self.memory[i] for i in group) for group in self.groups):
            return []  # what a group holds then has no end
        if len(self.groups) > _MAX_GROUPS:
            return []
        nothing = (0,) * len(self.after)
        seen, todo, steps = {nothing}, [nothing], list[_Step]()
        while todo:
            state = todo.pop()
            for i in range(len(state)):
                if self._can_start(state, i):
                    meanwhile = (*state[:i], state[i] + 1, *state[i + 1 :])
                    following = self._without_completed(meanwhile)
                    steps.append(_Step(state, i, meanwhile, following))
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
            if len(seen) > most:
                return []
        return _of_return(steps, nothing)

    def _can_start(self, state: DeviceState, i: int) -> bool:
        if any(state[j] <= state[i] for j in self.after[i]):
            return False
        in_use = sum(units * count for units, count in zip(self.memory, state, strict=True))
        return in_use + self.needs[i] <= self.capacity

    def _without_completed(self, counts: DeviceState) -> DeviceState:
        left = list(counts)
        for group in self.groups:
            completed = min(counts[i] for i in group)
            for i in group:
                left[i] -= completed
        return tuple(left)


def _of_return(steps: list[_Step], nothing: DeviceState) -> list[_Step]:
    """Return the steps by which the device can come to hold nothing again."""
    before: dict[DeviceState, list[DeviceState]] = {}
    for step in steps:
        before.setdefault(step.following, []).append(step.state)
    returning, todo = {nothing}, [nothing]
    while todo:
        for state in before.get(todo.pop(), ()):
            if state not in returning:
                returning.add(state)
                todo.append(state)
    return [step for step in steps if step.following in returning]
