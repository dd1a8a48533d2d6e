"""The least period per micro-batch of any repetend, of any number of micro-batches: a minimum cycle ratio.

In the steady state only the differences between activities matter: take from a state the micro-batches
that all activities have completed. What is left are finitely many states where memory bounds how far one
activity runs ahead of another, and every repetend is a cycle of their graph. The least ratio of a cycle's
ticks to its micro-batches is the least period; node potentials prove it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from placements import Placement
from schedsearch.graph import DifferenceSystem
from schedsearch.graph.kernel import FOREVER
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.state_space.model import Ints, StateSpaceModel, model_of
from schedsearch.state_space.transitions import States, Transitions, empty_state, joined

MAX_STATES = 100_000
"""States beyond which the search gives up."""

_STATES_AT_ONCE = 20_000
"""States that one portion of states may lead to, about: these take a fraction of a second."""

_MAX_AHEAD = 60_000
"""Most starts of one activity ahead of another; reached only if no memory limits it."""


@dataclass(frozen=True)
class MinPeriod:
    """A minimum cycle ratio of the states: the least period per micro-batch.

    Attributes:
        ticks: Per micro-batch; no repetend of any number of micro-batches has a shorter period.
        micro_batches: Micro-batches of the cycle that has this period, or None where the period given was not
            beaten.
        cut_out: Blocks that were left out, because they can run before or after all others.
        states: Number of states.
        devices: Devices whose blocks were searched; ascending.
    """

    ticks: Fraction
    micro_batches: Fraction | None
    cut_out: tuple[str, ...]
    states: int
    devices: tuple[int, ...]


def min_period(
    placement: Placement, *, known: Fraction, time_limit_s: float = 10.0, max_states: int = MAX_STATES
) -> MinPeriod | None:
    """Return the least period per micro-batch in ticks; None if the states are too many.

    Blocks that wait for each other, directly or not, make a component. With several (the two directions
    of an X-shape) a micro-batch is one of each, and a cycle may run more of one than of another; the mean
    counts, so the result is a lower bound, which no repetend may reach. The same holds if blocks of
    the placement can run apart (see `schedsearch.state_space.model.model_of`): to run them apart takes ever
    longer repetends. If the states are too many, the states of each branch of the placement may be
    few enough: the blocks on the devices of one branch, without the others. Optimizer blocks are left out.
    Periods above `known`, which a repetend reaches, are not searched.
    """
    deadline = time.monotonic() + time_limit_s
    everywhere = tuple(range(placement.num_devices))
    whole = _min_period(placement, everywhere, known, deadline, max_states)
    if whole is not None:
        return whole
    parts = (_min_period(placement, part, known, deadline, max_states) for part in _branches(placement))
    return max((part for part in parts if part is not None), key=lambda part: part.ticks, default=None)


def _branches(placement: Placement) -> list[tuple[int, ...]]:
    """Return groups of devices that no blocks connect, except blocks that run on all devices."""
    within = {b.name: b for b in placement.per_micro_batch.blocks if len(b.devices) < placement.num_devices}
    groups = [{device} for device in range(placement.num_devices)]
    for block in within.values():
        joined_by = set(block.devices).union(
            *(within[name].devices for name in block.after if name in within)
        )
        apart = [group for group in groups if not group & joined_by]
        groups = [*apart, joined_by.union(*(group for group in groups if group & joined_by))]
    branches = sorted(tuple(sorted(group)) for group in groups)
    return [devices for devices in branches if placement.on(devices[0])] if len(branches) > 1 else []


def _restricted_to(placement: Placement, devices: tuple[int, ...]) -> Placement:
    """Return the part of a placement on some devices (in ascending order), with devices numbered from 0 on.

    Blocks that also run on other devices keep their time on these alone. Waits for a block that is left out
    become waits for its inputs, without its time. So every schedule of the whole placement gives one of
    this part.
    """
    number = {device: i for i, device in enumerate(devices)}
    waits: dict[str, tuple[str, ...]] = {}
    blocks = {}
    for block in placement.topological_order:
        after = tuple(dict.fromkeys(name for source in block.after for name in waits[source]))
        here = [device for device in block.devices if device in number]
        waits[block.name] = (block.name,) if here else after
        if here:
            memory = tuple(block.memory_on(device) for device in here)
            numbered = tuple(number[device] for device in here)
            kept = replace(block, devices=numbered, memory=memory, after=after, data_parallel=1)
            blocks[block.name] = kept
    pairs = {(name, block.name) for block in blocks.values() for name in block.after}
    transfer = tuple(edge for edge in placement.transfer if edge[:2] in pairs)
    return placement.on_devices(devices, blocks.values(), transfer=transfer, nodes=None, shared_streams=())


def _min_period(
    placement: Placement, devices: tuple[int, ...], known: Fraction, deadline: float, max_states: int
) -> MinPeriod | None:
    model = model_of(_restricted_to(placement.per_micro_batch, devices))
    if model is None or model.capacity is None:
        return None
    graph, components = _explore(model, deadline, max_states), len(model.components)
    result = None if graph is None else graph.min_ratio((known - model.apart) / components)
    if graph is None or result is None:
        return None
    ratio, progress = result
    cut_out = tuple(block.name for block in (*model.first, *model.last))
    cycle = Fraction(progress, components) if progress else None
    return MinPeriod(ratio * components + model.apart, cycle, cut_out, graph.num_states, devices)


@dataclass(frozen=True, eq=False)
class _StateGraph:
    """States of the steady state, and the edges between them, sorted by target.

    Attributes:
        num_states: Number of states, which are numbered from 0 on.
        source: State at the begin of each edge; this and all arrays below have the shape ``(edges,)``.
        target: State at the end of each edge; ascending.
        ticks: Ticks of each edge.
        progress: Micro-batches that each edge completes, summed over components.
    """

    num_states: int
    source: Ints
    target: Ints
    ticks: Ints
    progress: Ints

    def min_ratio(self, best: Fraction) -> tuple[Fraction, int] | None:
        """Return the least ticks per progress of any cycle, at most a ratio, and the progress of the cycle.

        That is 0 where no cycle is better. It is None where the gains of paths may not fit 64 bits.

        Each round looks for a cycle that is better than the best so far: one whose progress times the best
        ratio is more than its ticks, and so one that forbids a period of 0 where each edge gains that much in
        a round. Without one the greatest gains of paths are potentials: no edge gains more than their
        difference, so no cycle gains.
        """
        progress = 0
        while True:
            INTERRUPTS.raise_if_seen()
            most = max(int(self.ticks.max()) * best.denominator, int(self.progress.max()) * best.numerator)
            if 2 * most * (self.num_states + len(self.source)) >= FOREVER:
                return None
            gains = self.progress * best.numerator - self.ticks * best.denominator
            system = DifferenceSystem(self.num_states, self.source, self.target, gains, np.ones_like(gains))
            cycle = system.forbidding(0)
            if not cycle:
                return best, progress
            progress = int(self.progress[cycle].sum())
            best = Fraction(int(self.ticks[cycle].sum()), progress)


def _explore(model: StateSpaceModel, deadline: float, max_states: int) -> _StateGraph | None:
    """Return the graph of all reachable states; None if they are too many, or time is up."""
    transitions = Transitions(model)
    number: dict[bytes, int] = {}
    frontier = empty_state(model, _MAX_AHEAD)
    ids = _numbers(frontier, number)
    edges: list[tuple[Ints, Ints, Ints, Ints]] = []
    at_once = _STATES_AT_ONCE
    while len(frontier):
        first, parts = 0, []
        while first < len(frontier):
            INTERRUPTS.raise_if_seen()
            part = np.arange(first, min(first + at_once, len(frontier)))
            following, ticks = transitions.next_states(frontier.at(part), None)
            progress = _normalise(model, following)
            if (following.started >= _MAX_AHEAD).any():
                return None
            size = len(number)
            reached = _numbers(following, number)
            edges.append((ids[part][following.parent], reached, ticks, progress))
            if len(number) > max_states or time.monotonic() > deadline:
                return None
            new, where = np.unique(reached, return_index=True)
            parts.append((new[new >= size], following.at(where[new >= size])))
            first += len(part)
            at_once = max(1, len(part) * _STATES_AT_ONCE // max(1, len(following)))
        ids, frontier = np.concatenate([new for new, _ in parts]), joined([states for _, states in parts])
    source, target, ticks, progress = map(np.concatenate, zip(*edges, strict=True))
    order = np.argsort(target, kind="stable")  # the same, however the states were cut into portions
    return _StateGraph(len(number), *(column[order] for column in (source, target, ticks, progress)))


def _normalise(model: StateSpaceModel, states: States) -> Ints:
    """Subtract in place the micro-batches that each component has completed; return their sum."""
    progress = np.zeros(len(states), dtype=np.int64)
    for component in model.components:
        completed = states.started[list(component)].min(axis=0)
        states.started[list(component)] -= completed
        progress += completed
    return progress


def _numbers(states: States, number: dict[bytes, int]) -> Ints:
    """Return the number of each state; a new state gets the next number."""
    rows = np.ascontiguousarray(np.concatenate([states.started, states.left]).T)
    return np.array([number.setdefault(row.tobytes(), len(number)) for row in rows], dtype=np.int64)
