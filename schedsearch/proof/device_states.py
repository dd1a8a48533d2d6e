"""States of a device's memory without a deadlock: the micro-batches between its blocks.

Times and other devices are left out, so the states are few even if the whole placement has too many. They say
more than the capacity alone: memory for ten units and blocks of four hold eight, and memory full of
micro-batches that cannot go on without more memory is never released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from placements import Block, Placement
from schedsearch.proof.timeline import Timeline

Counts = NDArray[np.int64]
"""Micro-batches between the pairs of each group, by state; shape ``(states, groups)``."""

Group = tuple[tuple[str, str, int], ...]
"""Pairs of blocks, the second of which waits for the first, with the weight of a micro-batch between them."""

_MAX_STATES = 1_500
"""Most states of a device, else only capacities count; more raised no bound of 140 random placements."""

_MAX_GROUPS = 12
"""Most groups of blocks that wait for each other; with more, the states (sets of groups) are too many."""

_MAX_STATES_IN_ALL = 12_000
"""Most states of all devices together; this takes a fraction of a second."""


@dataclass(frozen=True, eq=False)
class DeviceStates:
    """Micro-batches between blocks of one device, in the states from which all begun micro-batches can end.

    Blocks without memory there are counted only between two blocks with memory. The others run in
    any state in which their transient memory fits.

    No other state is in a schedule. Proof. As micro-batches are alike, let the n-th start of each block be
    that of micro-batch n. After a state, leave out what has not begun: of each group of blocks that wait for
    each other, those of micro-batches of which none has started. What is left ends all that has begun, and is
    valid, as what a micro-batch holds of a group is never less than nothing.

    Where they are too many, what is held is counted in some unit, each pair's rounded down, and so is the
    memory: that for 100 units holds two micro-batches of 37, not 2.7.

    Attributes:
        device: Device of the states.
        groups: Pairs of blocks between which micro-batches are counted.
        held: Every state, or the state with the greatest count.
        running: For each block of the device, the states in which it runs; its start is in them.
    """

    device: int
    groups: tuple[Group, ...]
    held: Counts
    running: Mapping[str, Counts]


@lru_cache(maxsize=8)
def device_states(placement: Placement) -> tuple[DeviceStates, ...]:
    """Return the memory states of each device, for devices where they say more than the capacity.

    Args:
        placement: What runs where, without optimizer blocks.
    """
    if placement.free_memory is None:
        return ()
    ancestors = Timeline(placement, frozenset()).ancestors
    courses = [_Course(placement, device, ancestors) for device in range(placement.num_devices)]
    most = min(_MAX_STATES, _MAX_STATES_IN_ALL // placement.num_devices)
    states: list[DeviceStates] = []
    for course in courses:
        if course.blocks:
            walked = _walked(course, most)
            states += [walked] if walked is not None else _rounded(course)
    return tuple(states)


class _Course:
    """The blocks of one device whose starts are counted, with their dependencies and memory.

    Attributes:
        blocks: In topological order.
        others: The other blocks of the device.
        after: Indices of the blocks that each waits for, directly or not.
        pairs: Pairs of blocks, the second of which waits for the first through no third one.
        memory: Units that each block allocates; negative if it releases.
        needs: Units that must be free for each to start.
        capacity: Units of the device.
    """

    def __init__(self, placement: Placement, device: int, ancestors: Mapping[str, frozenset[str]]) -> None:
        assert placement.free_memory is not None
        self.device, self.capacity = device, placement.free_memory[device]
        here = [block for block in placement.topological_order if device in block.devices]
        has = {block.name for block in here if block.memory_on(device)}
        before_some = has.union(*(ancestors[name] for name in has))

        def is_counted(block: Block) -> bool:
            return block.name in has or (block.name in before_some and bool(ancestors[block.name] & has))

        self.blocks = [block for block in here if is_counted(block)]
        self.others = [block for block in here if not is_counted(block)]
        index = {block.name: i for i, block in enumerate(self.blocks)}
        self.after = [{index[name] for name in ancestors[b.name] & index.keys()} for b in self.blocks]
        self.pairs = [
            (a, b)
            for b, after in enumerate(self.after)
            for a in after
            if not any(a in self.after[c] for c in after)
        ]
        self.memory = [block.memory_on(device) for block in self.blocks]
        self.needs = [block.memory_on(device) + block.transient for block in self.blocks]

    def group(self, times: Sequence[int]) -> Group:
        """Return the pairs of blocks with their weights `times`."""
        names = [(self.blocks[a].name, self.blocks[b].name) for a, b in self.pairs]
        return tuple((*pair, count) for pair, count in zip(names, times, strict=True))

    def states(self, groups: Sequence[Group], held: Counts, running: Sequence[Counts]) -> DeviceStates:
        """Return the record of states; `running` has the states of each counted block, then of the others."""
        names = [block.name for block in (*self.blocks, *self.others)]
        return DeviceStates(self.device, tuple(groups), held, dict(zip(names, running, strict=True)))


State = tuple[int, ...]
"""Starts of each counted block, less the starts that all blocks of its group share."""


def _walked(course: _Course, most: int) -> DeviceStates | None:
    """Return the reachable states without a deadlock; None if too many, or if a block never runs."""
    import networkx as nx

    waiting = nx.Graph([(i, j) for i, after in enumerate(course.after) for j in (i, *after)])
    groups = [sorted(group) for group in nx.connected_components(waiting)]
    if len(groups) > _MAX_GROUPS or any(sum(course.memory[i] for i in group) for group in groups):
        return None  # what a group holds may have no end
    nothing = (0,) * len(course.blocks)
    steps, seen, todo = list[tuple[State, int, State]](), {nothing}, [nothing]
    while todo:
        state = todo.pop()
        in_use = sum(units * count for units, count in zip(course.memory, state, strict=True))
        for i, after in enumerate(course.after):
            if in_use + course.needs[i] <= course.capacity and all(state[j] > state[i] for j in after):
                counts = [*state]
                counts[i] += 1
                for group in groups:
                    if completed := min(counts[j] for j in group):
                        for j in group:
                            counts[j] -= completed
                steps.append((state, i, following := tuple(counts)))
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        if len(seen) > most:
            return None
    graph = nx.DiGraph([(state, following) for state, _, following in steps])
    returning = nx.ancestors(graph, nothing) | {nothing} if steps else {nothing}
    after_start = [
        [after for _, j, after in steps if j == i and after in returning] for i in range(len(nothing))
    ]
    if not all(after_start):
        return None
    first, second = np.array(course.pairs).T

    def between(states: Counts) -> Counts:
        return np.array(states[:, first] - states[:, second])

    starts = np.array(sorted(returning))
    free = course.capacity - starts @ np.array(course.memory)
    running = [between(np.array(states)) for states in after_start]
    running += [between(starts[block.transient <= free]) for block in course.others]
    if not all(map(len, running)):
        return None
    pairs = course.group([1] * len(course.pairs))
    return course.states([(pair,) for pair in pairs], between(starts), running)


def _rounded(course: _Course) -> Iterator[DeviceStates]:
    """Yield limits of the memory held, counted in some units; only units that give more than the capacity.

    The units are the amounts that a micro-batch holds between pairs of blocks.
    """
    held = _held_between(course)
    for unit in sorted({amount for amount in held if amount > 1}):
        counts = [amount // unit for amount in held]
        if unit * sum(counts) == sum(held) and course.capacity % unit == 0:
            continue
        running = []
        for i, needs in enumerate(course.needs):
            before, after = ([p for p, pair in enumerate(course.pairs) if pair[end] == i] for end in (1, 0))
            others = (course.capacity - max(0, needs) - sum(held[p] for p in before)) // unit
            running.append(others + sum(counts[p] for p in after))
        running += [(course.capacity - block.transient) // unit for block in course.others]
        limits = [np.array([[most]], dtype=np.int64) for most in (course.capacity // unit, *running)]
        yield course.states([course.group(counts)], limits[0], limits[1:])


def _held_between(course: _Course) -> list[int]:
    """Return the memory that a micro-batch holds between each pair of blocks; empty if it is not known.

    It is not known if a block waits for two others: then either pair may hold the memory.
    """
    before = {b: a for a, b in course.pairs}
    released = [-units for units in course.memory]
    for block in reversed(range(len(released))):  # a block comes after those that it waits for
        if block in before:
            released[before[block]] += released[block]
    held = [released[b] for _, b in course.pairs]
    is_known = len(before) == len(course.pairs) and min(held, default=0) >= 0
    return held if is_known and not any(released[b] for b in range(len(released)) if b not in before) else []
