"""Shows once more that no repetend beats a period: a minimum cycle ratio, state by state.

Shares nothing with `schedsearch.state_space`, which knows the same states as arrays. A state says how often
each block has started, less what all blocks of its component have, and for how many ticks each still runs.
Every repetend is a cycle of states; node potentials show that no cycle's ratio is below the period.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

from placements import Placement
from schedsearch.solver.interrupts import INTERRUPTS

_MAX_STATES = 200_000

_FALLS_PER_LOOK = 32
"""Times that a state's length falls between two looks for a cycle."""

ReachedState = tuple[tuple[int, ...], tuple[int, ...]]
"""How often each step has started, and for how many ticks it still runs."""


def no_shorter_period(
    placement: Placement,
    devices: Collection[int],
    cut_out: Collection[str],
    period: Fraction,
    time_limit_s: float,
) -> bool | None:
    """Return whether no repetend has less than a period per micro-batch; None if it takes too long to see.

    Args:
        placement: What runs where.
        devices: What runs on others is left out: a repetend of all has one of the others in it, in which what
            waited for another through it still waits.
        cut_out: Blocks that run on all these devices and have no memory there. No other runs while one does,
            so these intervals can be cut out of every repetend, and what waited for others through such a
            block still waits; transfers may have gone on meanwhile, so nothing is left of them.
        period: Ticks per micro-batch.
        time_limit_s: Seconds.

    Raises:
        ValueError: A block cannot be cut out, or a device is not there; the message names it.
    """
    placement = placement.per_micro_batch
    here = frozenset(devices)
    if not here or not here <= set(range(placement.num_devices)):
        raise ValueError(f"devices {sorted(here)} are not some of the {placement.num_devices}")
    for name in cut_out:
        block = placement.by_name.get(name)
        if block is None:
            raise ValueError(f"there is no block {name!r}")
        if not here <= set(block.devices) or any(map(block.memory_on, here)):
            raise ValueError(f"{name} does not run on all devices, or holds memory, so it cannot be cut out")
    steps = tuple(_steps(placement, here, set(cut_out)))
    rest = period - sum(placement.by_name[name].time for name in cut_out)
    return _Walk(placement, steps, rest, time.monotonic() + time_limit_s).run()


@dataclass(frozen=True)
class _Step:
    """A block, or a transfer, which needs no device."""

    name: str
    time: int
    devices: frozenset[int]
    after: tuple[str, ...]


def _steps(placement: Placement, here: frozenset[int], cut_out: set[str]) -> Iterator[_Step]:
    waits: dict[str, set[str]] = {}
    gone = cut_out | {block.name for block in placement.blocks if not here & set(block.devices)}
    for block in placement.topological_order:
        after: list[str] = []
        for name in block.after:
            ticks = 0 if cut_out or block.name in gone else placement.transfer_time(name, block.name)
            if name in gone:
                after += waits[name]
            elif ticks:
                transfer = f"{name} to {block.name}"
                yield _Step(transfer, ticks, frozenset(), (name,))
                after.append(transfer)
            else:
                after.append(name)
        if block.name in gone:
            waits[block.name] = set(after)
        else:
            yield _Step(block.name, block.time, here & set(block.devices), tuple(dict.fromkeys(after)))


class _Walk:
    """The walk over the states of one placement."""

    def __init__(
        self, placement: Placement, steps: tuple[_Step, ...], period: Fraction, deadline: float
    ) -> None:
        self.placement = placement
        self.steps = steps
        self.period = period
        self.deadline = deadline
        index = {step.name: i for i, step in enumerate(steps)}
        self.after = [[index[name] for name in step.after] for step in steps]
        self.components = self._components()

    def _components(self) -> list[list[int]]:
        """Group the steps that wait for each other."""
        found: list[set[int]] = []
        for i, after in enumerate(self.after):
            touching = [group for group in found if group & set(after)]
            found = [group for group in found if group not in touching]
            found.append({i}.union(*touching))
        return [sorted(group) for group in found]

    def run(self) -> bool | None:
        """Return whether potentials exist: shortest lengths from the empty state, if there are any."""
        share = self.period / len(self.components)
        nothing = (0,) * len(self.steps)
        edges: dict[ReachedState, list[tuple[ReachedState, int]]] = {}
        length: dict[ReachedState, int] = {(nothing, nothing): 0}
        came_from: dict[ReachedState, ReachedState] = {}
        rounds: dict[ReachedState, int] = {}
        queue, queued = deque(length), set(length)
        while queue:
            state = queue.popleft()
            queued.discard(state)
            rounds[state] = rounds.get(state, 0) + 1
            if state not in edges:
                edges[state] = [
                    (after, ticks * share.denominator - progress * share.numerator)
                    for after, ticks, progress in self._followers(state)
                ]
                INTERRUPTS.raise_if_seen()
                if len(edges) > _MAX_STATES or time.monotonic() > self.deadline:
                    return None
            if rounds[state] % _FALLS_PER_LOOK == 0 and _returns(state, came_from):
                return False  # round this cycle lengths fall for ever
            for after, more in edges[state]:
                if after not in length or length[state] + more < length[after]:
                    length[after], came_from[after] = length[state] + more, state
                    if after not in queued:
                        queue.append(after)
                        queued.add(after)
            if time.monotonic() > self.deadline:
                return None
        return True

    def _followers(self, state: ReachedState) -> Iterator[tuple[ReachedState, int, int]]:
        """Yield the state at the next end of a step, for each choice of what to start now."""
        started, left = state
        can = [i for i in range(len(self.steps)) if self._can_start(started, left, i)]
        at_once = [i for i in can if not self.steps[i].devices]
        choices = [i for i in can if self.steps[i].devices]
        for count in range(len(choices) + 1):
            for chosen in itertools.combinations(choices, count):
                used = [device for i in chosen for device in self.steps[i].devices]
                if len(used) == len(set(used)):
                    yield from self._run(started, left, [*chosen, *at_once])

    def _can_start(self, started: tuple[int, ...], left: tuple[int, ...], i: int) -> bool:
        step = self.steps[i]
        if left[i] or any(left[j] and step.devices & self.steps[j].devices for j in range(len(left))):
            return False
        if any(started[j] - (left[j] > 0) <= started[i] for j in self.after[i]):
            return False
        return all(self._fits(started, i, device) for device in step.devices)

    def _fits(self, started: tuple[int, ...], i: int, device: int) -> bool:
        """Return whether what a step takes and needs fits a device; nothing else runs there."""
        if self.placement.free_memory is None:
            return True
        by_name = self.placement.by_name
        in_use = sum(
            by_name[step.name].memory_on(device) * (count + (j == i))
            for j, (step, count) in enumerate(zip(self.steps, started, strict=True))
            if device in step.devices
        )
        return in_use + by_name[self.steps[i].name].transient <= self.placement.free_memory[device]

    def _run(
        self, started: tuple[int, ...], left: tuple[int, ...], chosen: list[int]
    ) -> Iterator[tuple[ReachedState, int, int]]:
        counts, rest = list(started), list(left)
        for i in chosen:
            counts[i] += 1
            rest[i] = self.steps[i].time
        ticks = min((each for each in rest if each), default=0)
        if ticks == 0:
            return
        progress = 0
        for component in self.components:
            behind = min(counts[i] for i in component)
            progress += behind
            for i in component:
                counts[i] -= behind
        yield (tuple(counts), tuple(max(0, each - ticks) for each in rest)), ticks, progress


def _returns(state: ReachedState, came_from: dict[ReachedState, ReachedState]) -> bool:
    """Return whether the way by which a state was reached goes round a cycle."""
    seen = {state}
    while state in came_from:
        state = came_from[state]
        if state in seen:
            return True
        seen.add(state)
    return False
