"""Annealing of the sequences of micro-batches and of their replicas; idle devices choose the block orders.

All blocks of a kind run the micro-batches of a replica in its sequence. A device takes the block that can
start first and fits its memory; one kind waits some time for another. Compiled by numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.graph.compiled import compiled

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]

_OTHERS = 0.05
"""Weight of the mean over all replicas beside the slowest."""

_SLOWEST = 0.7
"""Share of the steps that change the slowest replica."""

_ACROSS = 0.5
"""Share of the steps that move a micro-batch to another replica."""

_PATIENCE = 0.1
"""Share of the steps that change the patience of a kind of block: its waiting time for others."""


class Sequences(NamedTuple):
    """The sequence of micro-batches on each replica, with their times and memory.

    Kinds are the blocks of a micro-batch in topological order, each on one device. Lists of lists are a pair:
    where each list begins in the next array, and one entry more.

    Attributes:
        times: Ticks of each kind of each micro-batch on each replica; shape ``(replicas, kinds, number)``.
        memory: Units that each kind of each micro-batch allocates; shape ``(kinds, number)``.
        transient: Units that it needs only while it runs; same shape.
        tails: Ticks from the start of each kind of a micro-batch to its last end; of the shape of `times`.
        free: Free memory of each device.
        device: The device of each kind.
        first_kind, kinds: The kinds of each device.
        first_input, inputs: The kinds that each kind waits for.
        delays: Ticks from the end of each input to the start.
        first_output, outputs: The kinds that wait for each kind.
        order: The micro-batches of each replica in their sequence, then -1; shape ``(replicas, number)``.
        size: Number of micro-batches of each replica; shape ``(replicas,)``.
        patience: Ticks for which each kind waits for others.
        most: Most micro-batches of one replica.
        span: Whether the longest device span counts, and not the makespan.
    """

    times: _Floats
    memory: _Ints
    transient: _Ints
    tails: _Floats
    free: _Ints
    device: _Ints
    first_kind: _Ints
    kinds: _Ints
    first_input: _Ints
    inputs: _Ints
    delays: _Floats
    first_output: _Ints
    outputs: _Ints
    order: _Ints
    size: _Ints
    patience: _Floats
    most: float
    span: bool


@compiled
def _ready(g: Sequences, at: _Ints, ends: _Floats, kind: int, count: int) -> float:
    """Return the tick at which a kind's next block has all its inputs; infinite if not yet known."""
    if at[kind] >= count:
        return np.inf
    start = 0.0
    for i in range(g.first_input[kind], g.first_input[kind + 1]):
        if at[g.inputs[i]] <= at[kind]:
            return np.inf
        start = max(start, ends[g.inputs[i], at[kind]] + g.delays[i])
    return start


@compiled
def _unchanged(g: Sequences, ran: _Ints, total: int, place: int) -> int:
    """Return the number of first blocks that stay as they are if only this place and later ones change."""
    if place == 0:
        return 0
    for done in range(total):
        if ran[done, 1] == place - 1 and g.first_input[ran[done, 0]] == g.first_input[ran[done, 0] + 1]:
            return done + 1
    return total


@compiled
def run_of(g: Sequences, replica: int, ends: _Floats, ran: _Ints, same: int, limit: float) -> float:
    """Run a replica's sequence and return its ticks; infinite if idle devices deadlock.

    Args:
        g: Sequences.
        replica: Number of the replica.
        ends: The end of each kind at each place; shape ``(kinds, number)``; filled in.
        ran: Kinds and places in the order in which they start; shape ``(kinds * number, 2)``; filled in.
        same: Number of first rows of `ran`, with their ends, that are filled in already.
        limit: Ticks of which only more is said where it is more; no limit for `span`.
    """
    num_kinds, count, devices = g.times.shape[1], g.size[replica], len(g.free)
    order, times = g.order[replica], g.times[replica]
    at, ready = np.zeros(num_kinds, np.int64), np.full(num_kinds, np.inf)
    idle, first = np.zeros(devices), np.full(devices, np.inf)
    held, dirty = np.zeros(devices, np.int64), np.ones(devices, np.bool_)
    key, begin, chosen = np.full(devices, np.inf), np.zeros(devices), np.zeros(devices, np.int64)
    for kind in range(num_kinds):
        if count and g.first_input[kind] == g.first_input[kind + 1]:
            ready[kind] = 0.0
    left = np.zeros(devices)
    for place in range(count):
        for kind in range(num_kinds):
            left[g.device[kind]] += times[kind, order[place]]
    for done in range(same):
        kind, place = ran[done, 0], ran[done, 1]
        device, number = g.device[kind], order[place]
        idle[device] = ends[kind, place]
        first[device] = min(first[device], ends[kind, place] - times[kind, number])
        held[device] += g.memory[kind, number]
        left[device] -= times[kind, number]
        at[kind] = place + 1
    for kind in range(num_kinds if same else 0):
        ready[kind] = _ready(g, at, ends, kind, count)
    for done in range(same, num_kinds * count):
        device, least = -1, np.inf
        for d in range(devices):
            if dirty[d]:
                dirty[d], key[d] = False, np.inf
                for i in range(g.first_kind[d], g.first_kind[d + 1]):
                    kind = g.kinds[i]
                    start = max(ready[kind], idle[d])
                    if start + g.patience[kind] < key[d]:
                        number = order[at[kind]]
                        after = held[d] + g.memory[kind, number] + g.transient[kind, number]
                        if after <= g.free[d]:
                            key[d], begin[d], chosen[d] = start + g.patience[kind], start, kind
            if key[d] < least:
                device, least = d, key[d]
        if device < 0:
            return np.inf
        kind, place = chosen[device], at[chosen[device]]
        end = begin[device] + times[kind, order[place]]
        ends[kind, place] = end
        if begin[device] + max(left[device], g.tails[replica, kind, order[place]]) > limit:
            return np.inf
        left[device] -= times[kind, order[place]]
        ran[done, 0], ran[done, 1] = kind, place
        idle[device] = end
        first[device] = min(first[device], begin[device])
        held[device] += g.memory[kind, order[place]]
        at[kind], dirty[device] = place + 1, True
        for i in range(g.first_output[kind] - 1, g.first_output[kind + 1]):
            later = kind if i < g.first_output[kind] else g.outputs[i]
            ready[later] = _ready(g, at, ends, later, count)
            dirty[g.device[later]] = True
    if not g.span:
        return float(np.max(idle))
    longest = 0.0
    for d in range(devices):
        if first[d] < np.inf:
            longest = max(longest, idle[d] - first[d])
    return longest


@compiled
def _value(ticks: _Floats) -> float:
    return float(np.max(ticks) + _OTHERS * np.mean(ticks))


@compiled
def _insert(order: _Ints, size: int, place: int, number: int) -> None:
    for i in range(size, place, -1):
        order[i] = order[i - 1]
    order[place] = number


@compiled
def _remove(order: _Ints, size: int, place: int) -> int:
    number = order[place]
    for i in range(place, size - 1):
        order[i] = order[i + 1]
    order[size - 1] = -1
    return int(number)


@compiled
def anneal_sequences(
    g: Sequences, steps: int, heat: float, cooling: float, seed: int, scale: float, across: bool
) -> float:
    """Anneal sequences for `steps` steps, leave the best in the arrays, and return its ticks.

    Args:
        g: Sequences; changed.
        steps: Changes to try.
        heat: Share of the value by which a step may be worse at first, on average.
        cooling: Decrease of the heat with each step.
        seed: Seed of the random choices.
        scale: Ticks of the longest patience to try.
        across: Whether micro-batches may go to other replicas.
    """
    np.random.seed(seed)
    replicas, kinds, number = g.times.shape
    ends, ran = np.zeros((replicas, kinds, number)), np.zeros((replicas, kinds * number, 2), np.int64)
    ticks, places = np.zeros(replicas), np.zeros(replicas, np.int64)
    for replica in range(replicas):
        ticks[replica] = run_of(g, replica, ends[replica], ran[replica], 0, np.inf)
    kept_order, kept_size, kept_patience = g.order.copy(), g.size.copy(), g.patience.copy()
    best_order, best_size, best_patience = g.order.copy(), g.size.copy(), g.patience.copy()
    new_ends, new_ran = ends.copy(), ran.copy()
    now, best, new = _value(ticks), np.max(ticks), ticks.copy()
    for step in range(steps):
        one = int(np.argmax(ticks)) if np.random.random() < _SLOWEST else np.random.randint(replicas)
        other = one
        draw = np.random.random()
        all_change = draw < _PATIENCE
        places[:] = number
        if all_change:
            kind = np.random.randint(kinds)
            wait = np.random.random() * scale if np.random.random() < 0.5 else 0.0
            for k in range(kinds):
                if k == kind or (g.memory[k, 0] > 0) == (g.memory[kind, 0] > 0):
                    g.patience[k] = wait
            places[:] = 0
        elif across and replicas > 1 and draw < _PATIENCE + _ACROSS:
            while other == one:
                other = np.random.randint(replicas)
            if not g.size[one]:
                continue
            i, j = np.random.randint(g.size[one]), np.random.randint(g.size[other] + 1)
            places[one], places[other] = i, j
            if j < g.size[other] and np.random.random() < 0.6:
                a, b = g.order[one, i], g.order[other, j]
                g.order[one, i], g.order[other, j] = b, a
            else:
                moved = _remove(g.order[one], g.size[one], i)
                g.size[one] -= 1
                _insert(g.order[other], g.size[other], j, moved)
                g.size[other] += 1
        elif g.size[one] > 1:
            i, j = np.random.randint(g.size[one]), np.random.randint(g.size[one])
            if i == j:
                continue
            places[one] = min(i, j)
            if np.random.random() < 0.5:
                g.order[one, i], g.order[one, j] = g.order[one, j], g.order[one, i]
            else:
                moved = _remove(g.order[one], g.size[one], i)
                _insert(g.order[one], g.size[one] - 1, j, moved)
        else:
            continue
        limit = now - (heat - step * cooling) * best * np.log(1 - np.random.random())
        value = np.inf
        if max(g.size[one], g.size[other]) <= g.most:
            new[:] = ticks
            for replica in range(replicas):
                if places[replica] < number:
                    total = kinds * min(g.size[replica], kept_size[replica])
                    same = _unchanged(g, ran[replica], total, places[replica])
                    same = 0 if g.size[replica] < kept_size[replica] and same == total else same
                    new_ran[replica, :same] = ran[replica, :same]
                    new_ends[replica] = ends[replica]
                    most = np.inf if g.span or now == np.inf else limit
                    new[replica] = run_of(g, replica, new_ends[replica], new_ran[replica], same, most)
            value = _value(new)
        if value > limit or value == np.inf:
            for replica in range(replicas):
                if places[replica] < number:
                    g.order[replica], g.size[replica] = kept_order[replica], kept_size[replica]
            g.patience[:] = kept_patience
            continue
        now = value
        ticks[:] = new
        for replica in range(replicas):
            if places[replica] < number:
                kept_order[replica], kept_size[replica] = g.order[replica], g.size[replica]
                ends[replica], ran[replica] = new_ends[replica], new_ran[replica]
        kept_patience[:] = g.patience
        if np.max(ticks) < best:
            best = np.max(ticks)
            best_order[:], best_size[:], best_patience[:] = g.order, g.size, g.patience
    g.order[:], g.size[:], g.patience[:] = best_order, best_size, best_patience
    return float(best)
