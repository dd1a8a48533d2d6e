"""Annealing of orders on many draws at once: neighbours on a device swap, mostly on a draw's critical path.

Compiled by numba: a search tries some hundred thousand orders.
"""

from __future__ import annotations

import math

import numpy as np

from schedsearch.graph.compiled import compiled
from schedsearch.robust.drawn_orders import DrawnOrders, Floats, Ints

_SAME = 1e-9
"""Share of a time below which two are equal."""

_CRITICAL = 0.9
"""Share of the steps that swap neighbours on a draw's critical path; the others swap any neighbours."""


def current_ticks(g: DrawnOrders, quantile: float) -> float:
    """Return the objective of the current orders in ticks; see `timed`."""
    nodes = len(g.times)
    begins, missing, ready = np.zeros_like(g.times), np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    value: float = timed(g, quantile, begins, missing, ready)
    return value


@compiled
def timed(g: DrawnOrders, quantile: float, begins: Floats, missing: Ints, ready: Ints) -> float:
    """Fill in the start of each node in each draw; return the mean or quantile of the ends, inf for a cycle.

    Args:
        g: Orders and times.
        quantile: Quantile of the ends, above 0 to 1; a negative number for the mean.
        begins: Buffer for the starts; shape ``(nodes, draws)``.
        missing: Buffer; shape ``(nodes,)``.
        ready: Buffer; same shape.
    """
    nodes, draws = g.times.shape
    missing[:] = 0
    begins[:] = 0.0
    for receiver in g.receivers:
        missing[receiver] += 1
    for place in range(1, len(g.order)):
        if g.device[place] == g.device[place - 1]:
            missing[g.order[place]] += 1
    count = done = 0
    for node in range(nodes):
        if not missing[node]:
            ready[count] = node
            count += 1
    ends = np.zeros(draws)
    while done < count:
        node = ready[done]
        done += 1
        for k in range(draws):
            ends[k] = max(ends[k], begins[node, k] + g.times[node, k])
        for message in range(g.sends[node], g.sends[node + 1]):
            later = g.receivers[message]
            for k in range(draws):
                there = begins[node, k] + g.times[node, k] + g.delays[message, k]
                begins[later, k] = max(begins[later, k], there)
            missing[later] -= 1
            if not missing[later]:
                ready[count] = later
                count += 1
        for i in range(g.places[node], g.places[node + 1]):
            place = g.place_of[i] + 1
            if place < len(g.order) and g.device[place] == g.device[place - 1]:
                later = g.order[place]
                for k in range(draws):
                    begins[later, k] = max(begins[later, k], begins[node, k] + g.times[node, k])
                missing[later] -= 1
                if not missing[later]:
                    ready[count] = later
                    count += 1
    if count < nodes:
        return math.inf
    if quantile < 0:
        return float(np.sum(ends * g.weights))
    kept = 0.0
    ranked = np.argsort(ends)
    for k in ranked:
        kept += g.weights[k]
        if kept >= quantile - _SAME:
            return float(ends[k])
    return float(ends[ranked[-1]])


@compiled
def _critical_place(
    g: DrawnOrders, begins: Floats, senders: Ints, inputs: Ints, first_input: Ints, k: int, places: Ints
) -> int:
    """Return a place on draw k's critical path whose node waits for the place before it; -1 for none."""
    nodes = len(g.times)
    node, last = 0, -1.0
    for candidate in range(nodes):
        if begins[candidate, k] + g.times[candidate, k] > last:
            node, last = candidate, begins[candidate, k] + g.times[candidate, k]
    count = 0
    slack = _SAME * last
    while begins[node, k] > slack:
        before = -1
        for i in range(g.places[node], g.places[node + 1]):
            place = g.place_of[i]
            if place > 0 and g.device[place] == g.device[place - 1]:
                other = g.order[place - 1]
                if begins[other, k] + g.times[other, k] >= begins[node, k] - slack:
                    places[count] = place
                    count += 1
                    before = other
                    break
        if before < 0 or np.random.random() < 0.5:
            for i in range(first_input[node], first_input[node + 1]):
                message, other = inputs[i], senders[inputs[i]]
                if begins[other, k] + g.times[other, k] + g.delays[message, k] >= begins[node, k] - slack:
                    before = other
                    break
        if before < 0:
            break
        node = before
    return places[np.random.randint(count)] if count else -1


@compiled
def _may_move(g: DrawnOrders, place: int) -> bool:
    """Return whether a node may swap with its predecessor on the device: both movable, and memory fits."""
    if place < 1 or g.device[place] != g.device[place - 1]:
        return False
    node, before, device = g.order[place], g.order[place - 1], g.device[place]
    if not (g.movable[node] and g.movable[before]):
        return False
    if g.free[device] < 0:
        return True
    held, first = g.memory[node, device], place - 2
    while first >= 0 and g.device[first] == device:
        held += g.memory[g.order[first], device]
        first -= 1
    most = max(held + g.transient[node], held + g.memory[before, device] + g.transient[before])
    return bool(most <= g.free[device])


@compiled
def _swap(g: DrawnOrders, place: int) -> None:
    one, other = g.order[place - 1], g.order[place]
    g.order[place - 1], g.order[place] = other, one
    g.place_of[g.places[one]] = place  # each is on one device
    g.place_of[g.places[other]] = place - 1


@compiled
def anneal(g: DrawnOrders, quantile: float, steps: int, heat: float, cooling: float, seed: int) -> float:
    """Anneal orders for `steps` steps, leave the best in the arrays, and return its value in ticks.

    Args:
        g: Orders and times.
        quantile: As of `timed`.
        steps: Swaps to try.
        heat: Share of the value by which a step may be worse at first, on average.
        cooling: Decrease of the heat with each step.
        seed: Seed of the random choices.
    """
    np.random.seed(seed)
    nodes, draws = g.times.shape
    begins, missing = np.zeros((nodes, draws)), np.zeros(nodes, np.int64)
    ready, places = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    senders = np.zeros(len(g.receivers), np.int64)
    for node in range(nodes):
        senders[g.sends[node] : g.sends[node + 1]] = node
    inputs = np.argsort(g.receivers)
    first_input = np.searchsorted(g.receivers[inputs], np.arange(nodes + 1))
    best = now = timed(g, quantile, begins, missing, ready)
    best_order, best_place_of = g.order.copy(), g.place_of.copy()
    kept = begins.copy()
    for step in range(steps):
        if np.random.random() < _CRITICAL:
            k = np.random.randint(draws)
            place = _critical_place(g, kept, senders, inputs, first_input, k, places)
        else:
            place = np.random.randint(1, len(g.order)) if len(g.order) > 1 else -1
        if not _may_move(g, place):
            continue
        limit = now - (heat - step * cooling) * best * np.log(1 - np.random.random())
        _swap(g, place)
        value = timed(g, quantile, begins, missing, ready)
        if value > limit:
            _swap(g, place)
            continue
        now = value
        kept[:] = begins
        if now < best * (1 - _SAME):
            best = now
            best_order[:], best_place_of[:] = g.order, g.place_of
    g.order[:], g.place_of[:] = best_order, best_place_of
    return best
