"""Enumeration of a steady state's states, and the two kinds of claims that are checked by it.

A state counts the starts of each block, less the starts that all blocks of its component share, and the ticks
for which each still runs. `schedsearch.state_space` and `schedsearch.proof.device_states` make the claims;
this module shares nothing with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np

from placements import Placement
from schedsearch.proof.bound import Amount, Bound

_MAX_STATES = 200_000

_MAX_LENGTH = 2**62
"""Length of a path beyond which 64 bits might not do."""

State = tuple[tuple[int, ...], tuple[int, ...]]
"""Starts of each step, and the ticks for which it still runs."""


@dataclass(frozen=True)
class MinCycleRatio(Bound):
    """The least mean time per micro-batch of a cycle of states (the minimum cycle ratio).

    Every repetend is a cycle of states; node potentials show that no cycle's ratio is below the period.

    Attributes:
        period: Least mean ticks per micro-batch.
        devices: Devices whose blocks count. Other blocks are left out: a repetend of the placement contains
            one of the rest, in which waits through a block left out remain.
        cut_out: Blocks that run on all these devices and have no memory there. No other runs while one does,
            so these intervals can be cut out of every repetend, and what waited for others through such a
            block still waits; transfers may have gone on meanwhile, so nothing is left of them.
    """

    name: ClassVar[str] = "cycles"
    period: Fraction
    devices: tuple[int, ...]
    cut_out: tuple[str, ...] = ()

    def value(self, placement: Placement) -> Fraction:
        """Return the claimed period in ticks, which `is_shown` checks."""
        return self.period

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Check by enumeration of all states that no cycle's ratio is below the period; None if too slow."""
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
        deadline = time.monotonic() + time_limit_s
        kept = {b.name for b in placement.blocks if here & set(b.devices)}.difference(self.cut_out)
        walk = _Walk(placement, here, kept, with_transfers=not self.cut_out)
        if not walk.go(deadline):
            return None
        rest = self.period - sum(placement.by_name[name].time for name in self.cut_out)
        return _has_potentials(walk, rest / len(walk.components), deadline)

    def __str__(self) -> str:
        return "cycles of states"


@dataclass(frozen=True)
class HeldLimit:
    """A limit on the weighted sum of micro-batches that are between two blocks of a device.

    The sum is at most `limit` at any time, and at most ``limit - spare[b]`` while b runs, its start included.

    Attributes:
        device: Device of the limit.
        between: Pairs of blocks, the second of which waits for the first, with a micro-batch's weight between
            the starts of the two. All blocks with memory on the device are in some pair.
        limit: Limit of the sum.
        spare: Part of the limit that is unused while a block of the device runs; 0 for blocks not named.
    """

    device: int
    between: tuple[tuple[str, str, Amount], ...]
    limit: Amount
    spare: Mapping[str, Amount]

    @property
    def weight(self) -> dict[str, int]:
        """Change of the sum at a start of each block."""
        changes: dict[str, int] = {}
        for first, second, amount in self.between:
            changes[first] = changes.get(first, 0) + amount
            changes[second] = changes.get(second, 0) - amount
        return changes

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Return whether every state keeps the limit; None if checking takes too long.

        Only states count from which the device can become empty: every micro-batch that has begun ends in a
        schedule, and would also end without later ones, since a micro-batch never holds less than nothing.

        Raises:
            ValueError: The limit is not of this placement, which has capacities and no optimizer blocks.
        """
        import networkx as nx

        device, weight = self.device, self.weight
        if not 0 <= device < placement.num_devices:
            raise ValueError(f"there is no device {device}")
        here = {block.name: block for block in placement.on(device)}
        for name in (*weight, *self.spare):
            if name not in here:
                raise ValueError(f"there is no block {name!r} on device {device}")
        for name, block in here.items():
            if name not in weight and block.memory_on(device):
                raise ValueError(f"{name} has memory on device {device}, but is not weighed")
        walk = _Walk(placement, frozenset([device]), weight.keys(), with_transfers=False)
        weights = [weight[step.name] for step in walk.steps]
        units = walk.memory[device]
        for group in walk.components:
            if any(sum(amounts[i] for i in group) for amounts in (weights, units)):
                names = ", ".join(sorted(walk.steps[i].name for i in group))
                raise ValueError(f"weights or memory of {names} do not sum to 0")
        deadline = time.monotonic() + time_limit_s
        if not self._above_limit_fits(placement, walk, time_limit_s / 2):
            return True
        if not walk.go(deadline):
            return None
        graph = nx.DiGraph([move[:2] for move in walk.moves])
        graph.add_node(0)
        returning = nx.ancestors(graph, 0) | {0}
        states = np.array([started for started, _ in walk.number])
        weighed, in_use = states @ np.array(weights), states @ np.array(units)
        at_end = sorted(returning)
        assert placement.free_memory is not None
        free = placement.free_memory[device] - in_use[at_end]
        above = [int(weighed[at_end].max())]
        for name in here.keys() - weight.keys():
            while_it_runs = weighed[at_end][here[name].transient <= free]
            above.append(int(while_it_runs.max(initial=0)) + self.spare.get(name, 0))
        for move in walk.moves:
            if {move.source, move.target} <= returning:
                (i,) = move.started
                spare = self.spare.get(walk.steps[i].name, 0)
                above.append(int(weighed[move.source]) + weights[i] + spare)
        return max(above) <= self.limit

    def _above_limit_fits(self, placement: Placement, walk: _Walk, time_limit_s: float) -> bool:
        """Return whether Z3 cannot exclude in time that numbers of starts above the limit fit the capacity.

        The device may never come to those: then all states are gone through.
        """
        import z3

        from schedsearch.proof.check.refutation import verdict

        assert placement.free_memory is not None
        free, weight, solver = placement.free_memory[self.device], self.weight, z3.SolverFor("QF_LIA")
        starts = [z3.Int(step.name) for step in walk.steps]
        number = {step.name: i for i, step in enumerate(walk.steps)}
        held = z3.Sum([units * count for units, count in zip(walk.memory[self.device], starts, strict=True)])
        weighed = z3.Sum([weight[name] * starts[i] for name, i in number.items()])
        solver.add(held <= free)
        solver.add([starts[j] >= starts[i] for i, after in enumerate(walk.after) for j in after])
        above = [weighed > self.limit]
        for block in placement.on(self.device):
            added, limit = weight.get(block.name, 0), self.limit - self.spare.get(block.name, 0)
            runs = [held + block.memory_on(self.device) + block.transient <= free, weighed + added > limit]
            if (i := number.get(block.name)) is not None:
                runs += [starts[j] > starts[i] for j in walk.after[i]]
            above.append(z3.And(runs))
        solver.add(z3.Or(above))
        return verdict(solver, time_limit_s) != "unsat"


class _Step(NamedTuple):
    """A block, or a transfer, which needs no device."""

    name: str
    time: int
    devices: frozenset[int]
    after: tuple[str, ...]


class _Move(NamedTuple):
    """A move between numbered states, up to the next end of a step: ticks, progress, and started steps."""

    source: int
    target: int
    ticks: int
    progress: int
    started: tuple[int, ...]


def _steps(placement: Placement, here: frozenset[int], kept: Set[str], transfers: bool) -> Iterator[_Step]:
    """Yield steps of kept blocks and transfers; a wait for a block left out becomes waits for its inputs."""
    waits: dict[str, list[str]] = {}
    for block in placement.topological_order:
        after: list[str] = []
        for name in block.after:
            ticks = placement.transfer_time(name, block.name) if transfers and block.name in kept else 0
            if ticks and name in kept:
                after.append(f"{name} to {block.name}")
                yield _Step(after[-1], ticks, frozenset(), (name,))
            else:
                after += waits[name]
        waits[block.name] = [block.name] if block.name in kept else after
        if block.name in kept:
            yield _Step(block.name, block.time, here & set(block.devices), tuple(dict.fromkeys(after)))


class _Walk:
    """The walk over all states of some blocks on some devices.

    Attributes:
        steps: The blocks and transfers.
        components: Numbers of steps that wait for each other, directly or not.
        number: Reached states with their numbers; 0 is the state in which no step has started.
        moves: From each state to the states that may follow.
    """

    def __init__(
        self, placement: Placement, here: frozenset[int], kept: Set[str], *, with_transfers: bool
    ) -> None:
        import networkx as nx

        self.steps = tuple(_steps(placement, here, kept, with_transfers))
        index = {step.name: i for i, step in enumerate(self.steps)}
        self.after = [[index[name] for name in step.after] for step in self.steps]
        waiting = nx.Graph([(i, j) for i, after in enumerate(self.after) for j in (i, *after)])
        self.components = [sorted(component) for component in nx.connected_components(waiting)]
        blocks = [placement.by_name.get(step.name) for step in self.steps]
        self.free = placement.free_memory
        self.memory = {d: [block.memory_on(d) if block else 0 for block in blocks] for d in here}
        self.transient = [block.transient if block else 0 for block in blocks]
        nothing = (0,) * len(self.steps)
        self.number: dict[State, int] = {(nothing, nothing): 0}
        self.moves: list[_Move] = []

    def go(self, deadline: float) -> bool:
        """Enumerate all states; return whether time and room sufficed."""
        todo = [*self.number]
        while todo:
            state = todo.pop()
            for after, ticks, progress, started in self._followers(state):
                if after not in self.number:
                    self.number[after] = len(self.number)
                    todo.append(after)
                move = _Move(self.number[state], self.number[after], ticks, progress, started)
                self.moves.append(move)
            if len(self.number) > _MAX_STATES or time.monotonic() > deadline:
                return False
        return True

    def _followers(self, state: State) -> Iterator[tuple[State, int, int, tuple[int, ...]]]:
        """Yield the state at the next end of a step, for each choice of steps to start now."""
        started, left = state
        can = [i for i in range(len(self.steps)) if self._can_start(started, left, i)]
        at_once = [i for i in can if not self.steps[i].devices]
        choices = [i for i in can if self.steps[i].devices]
        for count in range(len(choices) + 1):
            for chosen in combinations(choices, count):
                used = [device for i in chosen for device in self.steps[i].devices]
                if len(used) == len(set(used)) and (chosen or at_once or any(left)):
                    yield self._run(started, left, (*chosen, *at_once))

    def _can_start(self, started: tuple[int, ...], left: tuple[int, ...], i: int) -> bool:
        step = self.steps[i]
        if left[i] or any(left[j] and step.devices & self.steps[j].devices for j in range(len(left))):
            return False
        if any(started[j] - (left[j] > 0) <= started[i] for j in self.after[i]):
            return False
        return self.free is None or all(
            sum(units * count for units, count in zip(self.memory[device], started, strict=True))
            + self.memory[device][i]
            + self.transient[i]
            <= self.free[device]
            for device in step.devices
        )

    def _run(
        self, started: tuple[int, ...], left: tuple[int, ...], chosen: tuple[int, ...]
    ) -> tuple[State, int, int, tuple[int, ...]]:
        """Return the state after some starts, the ticks until then, the progress, and the started steps."""
        counts, rest = list(started), list(left)
        for i in chosen:
            counts[i] += 1
            rest[i] = self.steps[i].time
        ticks, progress = min(filter(None, rest)), 0
        for component in self.components:
            behind = min(counts[i] for i in component)
            progress += behind
            for i in component:
                counts[i] -= behind
        return (tuple(counts), tuple(max(0, n - ticks) for n in rest)), ticks, progress, chosen


def _has_potentials(walk: _Walk, period: Fraction, deadline: float) -> bool | None:
    """Return whether no cycle takes fewer ticks than its progress times the period; None if not decided.

    A move's length is its ticks less what the period gives. Shortest lengths of paths to each state are
    potentials; where none are, the states by which the paths came go round a cycle.
    """
    source, target, ticks, progress = np.array([move[:4] for move in walk.moves], dtype=np.int64).T
    longest = int(ticks.max()) * period.denominator + int(progress.max()) * period.numerator
    if longest * (len(walk.number) + 1) > _MAX_LENGTH:
        return None
    more = ticks * period.denominator - progress * period.numerator
    if more[source == target].min(initial=0) < 0:
        return False
    length, came_from = np.zeros(len(walk.number), dtype=np.int64), np.arange(len(walk.number))
    while time.monotonic() < deadline:
        through = length[source] + more
        shorter = length.copy()
        np.minimum.at(shorter, target, through)
        falls = (through == shorter[target]) & (shorter < length)[target]
        if not falls.any():
            return True
        length, came_from[target[falls]] = shorter, source[falls]
        first = came_from
        for _ in range(len(walk.number).bit_length()):
            first = first[first]
        if (came_from[first] != first).any():
            return False  # round this cycle lengths fall for ever
    return None
