"""The period by cycles of states: no cycle has a lesser mean time per micro-batch (the minimum cycle ratio).

`schedsearch.state_space` finds it; here it is shown by a program that shares nothing with that. A state says
how often each block has started, less what all blocks of its component have, and for how many ticks each
still runs. Every repetend is a cycle of states; node potentials show that no cycle's ratio is below a period.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from placements import Placement
from schedsearch.proof.bound import Bound

_MAX_STATES = 200_000

_FALLS_PER_LOOK = 32
"""Times that a state's length falls between two looks for a cycle."""

State = tuple[tuple[int, ...], tuple[int, ...]]
"""How often each step has started, and for how many ticks it still runs."""


@dataclass(frozen=True)
class MinCycleRatio(Bound):
    """The least mean time per micro-batch of a cycle of states.

    Attributes:
        period: That time, in ticks.
        devices: What runs on others is left out: a repetend of all has one of the others in it, in which what
            waited for another through it still waits.
        cut_out: Blocks that run on all these devices and have no memory there. No other runs while one does,
            so these intervals can be cut out of every repetend, and what waited for others through such a
            block still waits; transfers may have gone on meanwhile, so nothing is left of them.
    """

    name: ClassVar[str] = "cycles"
    period: Fraction
    devices: tuple[int, ...]
    cut_out: tuple[str, ...] = ()

    def value(self, placement: Placement) -> Fraction:
        """Return the period, which `is_shown` shows."""
        return self.period

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Go through all states."""
        placement, here = placement.per_micro_batch, frozenset(self.devices)
        if not here or not here <= set(range(placement.num_devices)):
            raise ValueError(f"devices {sorted(here)} are not some of the {placement.num_devices}")
        for name in self.cut_out:
            block = placement.by_name.get(name)
            if block is None:
                raise ValueError(f"there is no block {name!r}")
            if not here <= set(block.devices) or any(map(block.memory_on, here)):
                raise ValueError(
                    f"{name} does not run on all devices, or holds memory, so it cannot be cut out"
                )
        cut_out = set(self.cut_out)
        steps = tuple(_steps(placement, here, cut_out))
        rest = self.period - sum(placement.by_name[name].time for name in cut_out)
        return _Walk(placement, steps).has_potentials(rest, time.monotonic() + time_limit_s)

    def __str__(self) -> str:
        return "cycles of states"


@dataclass(frozen=True)
class _Step:
    """A block, or a transfer, which needs no device."""

    name: str
    time: int
    devices: frozenset[int]
    after: tuple[str, ...]


def _steps(placement: Placement, here: frozenset[int], cut_out: set[str]) -> Iterator[_Step]:
    """Yield what runs on some devices; what waited through a block that is left out waits for its inputs."""
    waits: dict[str, list[str]] = {}
    for block in placement.topological_order:
        is_left_out = block.name in cut_out or not here & set(block.devices)
        after: list[str] = []
        for name in block.after:
            ticks = 0 if cut_out or is_left_out else placement.transfer_time(name, block.name)
            if ticks and waits[name] == [name]:
                transfer = f"{name} to {block.name}"
                yield _Step(transfer, ticks, frozenset(), (name,))
                after.append(transfer)
            else:
                after += waits[name]
        waits[block.name] = after if is_left_out else [block.name]
        if not is_left_out:
            yield _Step(block.name, block.time, here & set(block.devices), tuple(dict.fromkeys(after)))


class _Walk:
    """The walk over the states of one placement."""

    def __init__(self, placement: Placement, steps: tuple[_Step, ...]) -> None:
        import networkx as nx

        self.placement = placement
        self.steps = steps
        index = {step.name: i for i, step in enumerate(steps)}
        self.after = [[index[name] for name in step.after] for step in steps]
        waiting = nx.Graph([(i, j) for i, after in enumerate(self.after) for j in (i, *after)])
        self.components = [sorted(component) for component in nx.connected_components(waiting)]

    def has_potentials(self, period: Fraction, deadline: float) -> bool | None:
        """Return whether there are shortest lengths from the empty state; None if it takes too long to see.

        An edge's length is its ticks less what the period gives for its progress.
        """
        share = period / len(self.components)
        nothing = (0,) * len(self.steps)
        edges: dict[State, list[tuple[State, int]]] = {}
        length: dict[State, int] = {(nothing, nothing): 0}
        came_from: dict[State, State] = {}
        rounds: dict[State, int] = {}
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
            if len(edges) > _MAX_STATES or time.monotonic() > deadline:
                return None
            if rounds[state] % _FALLS_PER_LOOK == 0 and _returns(state, came_from):
                return False  # round this cycle lengths fall for ever
            for after, more in edges[state]:
                if after not in length or length[state] + more < length[after]:
                    length[after], came_from[after] = length[state] + more, state
                    if after not in queued:
                        queue.append(after)
                        queued.add(after)
        return True

    def _followers(self, state: State) -> Iterator[tuple[State, int, int]]:
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
    ) -> Iterator[tuple[State, int, int]]:
        """Yield the state after some starts, if anything runs, with the ticks until then and the progress."""
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


def _returns(state: State, came_from: dict[State, State]) -> bool:
    """Return whether the way by which a state was reached goes round a cycle."""
    seen = {state}
    while state in came_from:
        state = came_from[state]
        if state in seen:
            return True
        seen.add(state)
    return False
