"""States of a device's memory: how many micro-batches are between its blocks, where it is not stuck.

Times and other devices are left out, so there are few such states even where those of the whole placement
are too many. They say what the capacity alone does not: memory for ten units and blocks of four hold eight,
and memory full of what cannot go on without more of it is never given back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from schedsearch.proof.timeline import Timeline

Counts = NDArray[np.int64]
"""How many micro-batches are between the pairs of each group; shape ``(states, groups)``."""

Pair = tuple[int, int]
"""Two blocks, as indices, of which the second waits for the first."""

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

    Where they are too many, there are the greatest of those whose memory fits: memory for 100 units holds two
    micro-batches of 37, not 2.7.

    Attributes:
        device: Device whose states they are.
        blocks: Names of the blocks that are counted.
        groups: Pairs of these; the second of a pair waits for the first through no third.
        held: Every state.
        running: For each block of the device, the states in which it runs; its start is in them.
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
    ancestors = Timeline(placement, frozenset()).ancestors
    courses = [_Course(placement, device, ancestors) for device in range(placement.num_devices)]
    found = [_walked(course, most) or _fitting(course, most) for course in courses if course.blocks]
    return tuple(each for each in found if each is not None and all(map(len, each.running.values())))


class _Course:
    """The blocks of one device whose starts are counted, and what each waits for.

    Attributes:
        blocks: In topological order.
        others: The other blocks of the device.
        after: Indices of the blocks that each waits for, directly or not.
        pairs: Those of which the second waits for the first through no third.
        memory: Units that each allocates; less than 0 for what it releases.
        needs: Units that must be free for each to start.
        capacity: Units of the device.
    """

    def __init__(self, placement: Placement, device: int, ancestors: Mapping[str, frozenset[str]]) -> None:
        assert placement.free_memory is not None
        self.device, self.capacity = device, placement.free_memory[device]
        has = {block.name for block in placement.on(device) if block.memory_on(device)}
        before_some = has.union(*(ancestors[name] for name in has))
        here = [block for block in placement.topological_order if device in block.devices]
        counted = has | {b.name for b in here if b.name in before_some and ancestors[b.name] & has}
        self.blocks = [block for block in here if block.name in counted]
        self.others = [block for block in here if block.name not in counted]
        index = {block.name: i for i, block in enumerate(self.blocks)}
        self.after = [{index[name] for name in ancestors[b.name] & counted} for b in self.blocks]
        self.pairs = [
            (a, b)
            for b, after in enumerate(self.after)
            for a in after
            if not any(a in self.after[c] for c in after)
        ]
        self.memory = [block.memory_on(device) for block in self.blocks]
        self.needs = [block.memory_on(device) + block.transient for block in self.blocks]

    def states(self, groups: Sequence[Group], held: Counts, running: Sequence[Counts]) -> DeviceStates:
        """Return the states, given those in which each block runs: the counted ones, then the others."""
        blocks = [block.name for block in self.blocks]
        names = (*blocks, *(block.name for block in self.others))
        by_name = dict(zip(names, running, strict=True))
        return DeviceStates(self.device, tuple(blocks), tuple(groups), held, by_name)


State = tuple[int, ...]
"""How often each counted block has started, less what all of its group have."""


def _walked(course: _Course, most: int) -> DeviceStates | None:
    """Return the states that can be reached and left; None if too many, or if a block never runs."""
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
                following = _without_completed((*state[:i], state[i] + 1, *state[i + 1 :]), groups)
                steps.append((state, i, following))
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        if len(seen) > most:
            return None
    returning = _returning(steps, nothing)
    steps = [step for step in steps if step[2] in returning]
    if len({i for _, i, _ in steps}) < len(course.blocks):
        return None
    first, second = np.array(course.pairs).T

    def between(states: Counts) -> Counts:
        return np.array(states[:, first] - states[:, second])

    starts = np.array(sorted(returning))
    in_uses = starts @ np.array(course.memory)
    running = [np.array([after for _, j, after in steps if j == i]) for i in range(len(course.blocks))]
    running += [starts[in_uses + block.transient <= course.capacity] for block in course.others]
    return course.states(
        [((pair, 1),) for pair in course.pairs], between(starts), [between(states) for states in running]
    )


def _without_completed(counts: State, groups: Sequence[Sequence[int]]) -> State:
    left = list(counts)
    for group in groups:
        completed = min(counts[i] for i in group)
        for i in group:
            left[i] -= completed
    return tuple(left)


def _returning(steps: Sequence[tuple[State, int, State]], nothing: State) -> set[State]:
    """Return the states from which the device can come to hold nothing again."""
    before: dict[State, list[State]] = {}
    for state, _, following in steps:
        before.setdefault(following, []).append(state)
    found, todo = {nothing}, [nothing]
    while todo:
        new = [state for state in before.get(todo.pop(), ()) if state not in found]
        found.update(new)
        todo += new
    return found


def _fitting(course: _Course, most: int) -> DeviceStates | None:
    """Return the greatest states whose memory fits; None where that says no more than the capacity.

    Micro-batches between pairs of blocks hold multiples of a few amounts, each of which is a group.
    """
    held = _held_between(course)
    units: list[int] = []
    for amount in sorted({amount for amount in held or () if amount}):
        if all(amount % smaller for smaller in units):
            units.insert(0, amount)
    if held is None or units in ([], [1]):
        return None
    capacity = course.capacity
    if math.prod(capacity // unit + 1 for unit in units[:-1]) > most:
        return None
    number = [next(i for i, unit in enumerate(units) if amount % unit == 0) for amount in held]
    times = np.zeros((len(units), len(held)), dtype=np.int64)
    times[number, range(len(held))] = [amount // units[i] for amount, i in zip(held, number, strict=True)]
    groups = [
        tuple((pair, int(count)) for pair, count in zip(course.pairs, row, strict=True) if count)
        for row in times
    ]

    def fit(free: int, there: Counts) -> Counts:
        """Return how many of each amount fit, besides those that are there."""
        ways = [there + more for more in _fill(units, free - int(there @ np.array(units)))]
        return np.array(ways, dtype=np.int64).reshape(-1, len(units))

    nothing = np.zeros(len(units), dtype=np.int64)
    running = []
    for i in range(len(course.blocks)):
        before, after = (
            times[:, [p for p, pair in enumerate(course.pairs) if pair[end] == i]].sum(axis=1)
            for end in (1, 0)
        )
        running.append(fit(capacity - max(0, course.needs[i]), before) + after - before)
    running += [fit(capacity - block.transient, nothing) for block in course.others]
    return course.states(groups, fit(capacity, nothing), running)


def _held_between(course: _Course) -> list[int] | None:
    """Return what a micro-batch holds between each pair besides what it holds between others.

    It is None where that is not known: a block that waits for two others leaves open between which of them it
    is held.
    """
    before = {b: a for a, b in course.pairs}
    if len(before) < len(course.pairs):
        return None
    released = [-units for units in course.memory]
    for block in reversed(range(len(released))):  # a block comes after those that it waits for
        if block in before:
            released[before[block]] += released[block]
    held = [released[b] for _, b in course.pairs]
    whole = not any(amount for block, amount in enumerate(released) if block not in before)
    return held if whole and min(held, default=0) >= 0 else None


def _fill(units: Sequence[int], free: int) -> Iterator[list[int]]:
    """Yield the numbers of each amount with which no more of the last fit memory."""
    if free < 0:
        return
    first, *others = units
    if not others:
        yield [free // first]
        return
    for count in range(free // first + 1):
        for rest in _fill(others, free - count * first):
            yield [count, *rest]
