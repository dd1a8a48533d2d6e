"""Steps from one order of blocks to the next, each two neighbours on a device that change places.

The orders of all devices and the inputs of blocks make a graph whose edges each go some rounds back. The
period is the greatest ratio of ticks to rounds over its cycles, so that only a change on the critical cycle
can make it shorter. Compiled by numba, as a search takes some hundred thousand steps a second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]

NEVER = -1
"""The period of orders that make a circle, or of which it is longer than allowed."""


class Orders(NamedTuple):
    """What every device runs in one period, in order, as arrays.

    An instance is a block of one micro-batch of the repetend, a visit an instance on one of its devices. Each
    device has a row of places in `order`, as many as it has visits.

    Attributes:
        ticks: Of each instance.
        source: Of each edge of the graph the instance that comes first; the edges of inputs come first, then
            from each place the edge to the next around the device's row.
        target: Likewise the instance that waits.
        wait: Likewise the ticks from start to start.
        back: Likewise the rounds that the target is later.
        first: The first place of each device, and the end of the last.
        order: At each place the visit.
        round_: Of each visit which round its instance is of.
        instance: Of each visit.
        memory: Of each visit the units that its device holds more from then on.
        transient: Of each visit the units that its device needs while it runs.
        free: Units of each device.
        visits: Of each instance; -1 behind the last. Shape ``(instances, most devices of one + 1)``.
        place: Of each visit.
        device: Of each place.
        starts: Of each instance, in ticks of round 0: from where to look for a cycle.
    """

    ticks: Ints
    source: Ints
    target: Ints
    wait: Ints
    back: Ints
    first: Ints
    order: Ints
    round_: Ints
    instance: Ints
    memory: Ints
    transient: Ints
    free: Ints
    visits: Ints
    place: Ints
    device: Ints
    starts: Ints


@njit(cache=True, nogil=True)
def take_steps(
    orders: Orders,
    cycle: Ints,
    period: int,
    best: Ints,
    least: int,
    heat: float,
    anywhere: float,
    steps: int,
    seed: int,
) -> tuple[int, int]:
    """Take some steps of simulated annealing, and keep the best orders seen.

    Steps exchange the ends of an edge of the critical cycle, or any neighbours. A step is taken back
    if a device would hold too much, or with a chance that grows with the ticks that the period grows by.

    Args:
        orders: Where to begin, and then where the steps have led.
        cycle: The edges of its critical cycle, -1 behind the last.
        period: Ticks of it; `NEVER` to find it and the cycle first.
        best: Its rows are `order` and `round_` of the best orders, and the period is before them.
        least: No period is shorter: the steps end there.
        heat: Ticks by which a period may well grow.
        anywhere: Chance that a step is not on the critical cycle.
        steps: How many.
        seed: Of the random choices.

    Returns:
        The period where the steps have led, and the best.
    """
    np.random.seed(seed)
    inputs = len(orders.source) - len(orders.order)
    starts = np.empty_like(orders.starts)
    found = np.empty_like(cycle)
    done = np.empty(len(orders.order) + 1, np.int64)
    if period == NEVER:
        for place in range(len(orders.order)):
            _connect(orders, place)
        period = _critical_cycle(orders, orders.starts, least, 1 << 60, cycle)
        _remember(orders, period, best)
    for _ in range(steps):
        if period <= least:
            break
        if np.random.random() < anywhere:
            place = int(np.random.random() * len(orders.order))
        else:
            place = _any_place_of(cycle, inputs)
        changed = _exchange_everywhere(orders, place, done)
        if changed == 0:
            continue
        starts[:] = orders.starts
        most = int(period - heat * math.log(max(1e-12, np.random.random())))
        now = _critical_cycle(orders, starts, least, most, found)
        if now == NEVER:
            for i in range(changed - 1, -1, -1):
                _exchange(orders, done[i])
                _connect_around(orders, done[i])
            continue
        period = now
        cycle[:] = found
        orders.starts[:] = starts - starts.min()
        if period < best[0, 0]:
            _remember(orders, period, best)
    return period, best[0, 0]


@njit(cache=True, nogil=True)
def _any_place_of(cycle: Ints, inputs: int) -> int:
    """Return the place of one of the edges of a cycle that are from place to place."""
    number, length = 0, 0
    while cycle[length] >= 0:
        number += cycle[length] >= inputs
        length += 1
    left = int(np.random.random() * number)
    for edge in cycle[:length]:
        left -= edge >= inputs
        if left < 0:
            return int(edge - inputs)
    return 0


@njit(cache=True, nogil=True)
def _remember(orders: Orders, period: int, best: Ints) -> None:
    best[0, 0] = period
    best[0, 1:] = orders.order
    best[1, 1:] = orders.round_


@njit(cache=True, nogil=True)
def _after(orders: Orders, place: int) -> int:
    """Return the place after one around its device's row."""
    device = orders.device[place]
    return place + 1 if place + 1 < orders.first[device + 1] else orders.first[device]


@njit(cache=True, nogil=True)
def _before(orders: Orders, place: int) -> int:
    """Return the place before one around its device's row."""
    device = orders.device[place]
    return place - 1 if place > orders.first[device] else orders.first[device + 1] - 1


@njit(cache=True, nogil=True)
def _connect(orders: Orders, place: int) -> None:
    """Set the edge from a place to the next."""
    following = _after(orders, place)
    edge = len(orders.source) - len(orders.order) + place
    visit, other = orders.order[place], orders.order[following]
    orders.source[edge], orders.target[edge] = orders.instance[visit], orders.instance[other]
    orders.wait[edge] = orders.ticks[orders.instance[visit]]
    orders.back[edge] = orders.round_[other] - orders.round_[visit] + (following <= place)


@njit(cache=True, nogil=True)
def _connect_around(orders: Orders, place: int) -> None:
    """Set the edges to a place, to the next and from there."""
    _connect(orders, _before(orders, place))
    _connect(orders, place)
    _connect(orders, _after(orders, place))


@njit(cache=True, nogil=True)
def _exchange(orders: Orders, place: int) -> None:
    """Exchange what is at a place and at the next, but not the edges; done twice, it is as before."""
    following = _after(orders, place)
    visit, other = orders.order[place], orders.order[following]
    orders.order[place], orders.order[following] = other, visit
    orders.place[other], orders.place[visit] = place, following
    if following < place:  # each into the next period or the one before
        orders.round_[other] += 1
        orders.round_[visit] -= 1


@njit(cache=True, nogil=True)
def _exchange_everywhere(orders: Orders, place: int, done: Ints) -> int:
    """Exchange what is at a place and at the next, on all devices that run both.

    Where others are between them, the first goes past these too.

    Returns:
        The number of exchanges, of which `done` has the places; 0 if a device has not the memory for it, and
        then nothing is done.
    """
    following = _after(orders, place)
    if following == place:
        return 0
    visit, other = orders.order[place], orders.order[following]
    ones, others = orders.visits[orders.instance[visit]], orders.visits[orders.instance[other]]
    number, can = 0, True
    for one in ones:
        for two in others:
            if one < 0 or two < 0 or orders.device[orders.place[one]] != orders.device[orders.place[two]]:
                continue
            is_past = not can
            while not is_past:
                at = orders.place[one]
                is_past = _after(orders, at) == orders.place[two]
                _exchange(orders, at)
                done[number] = at
                number += 1
            can = can and _has_room(orders, orders.device[orders.place[one]])
    for i in range(number - 1, -1, -1):
        if can:
            _connect_around(orders, done[i])
        else:
            _exchange(orders, done[i])
    return number if can else 0


@njit(cache=True, nogil=True)
def _has_room(orders: Orders, device: int) -> bool:
    """Return whether a device never holds too much."""
    order, memory, transient, round_ = orders.order, orders.memory, orders.transient, orders.round_
    first, end, free = orders.first[device], orders.first[device + 1], orders.free[device]
    held = 0
    for place in range(first, end):
        held += memory[order[place]] * round_[order[place]]
    for place in range(first, end):
        held += memory[order[place]]
        if held + transient[order[place]] > free:
            return False
    return True


@njit(cache=True, nogil=True)
def _critical_cycle(orders: Orders, starts: Ints, period: int, most: int, cycle: Ints) -> int:
    """Return the least period of the orders, as `DifferenceSystem.least_period` does, but compiled.

    Args:
        orders: The graph.
        starts: From where to look; moved.
        period: No period is shorter.
        most: No longer one is of use.
        cycle: Takes the edges of the critical cycle, -1 behind the last; unless the period is as short as
            can be.

    Returns:
        Ticks, rounded up; `NEVER` if they are too many, or if there is none.
    """
    source, target, wait, back = orders.source, orders.target, orders.wait, orders.back
    pushed_by = np.full(len(starts), -1)
    seen = np.empty(len(starts), np.int64)
    for attempt in range(1 << 60):
        is_done = True
        for edge in range(len(source)):
            start = starts[source[edge]] + wait[edge] - back[edge] * period
            if start > starts[target[edge]]:
                starts[target[edge]] = start
                pushed_by[target[edge]] = edge
                is_done = False
        if is_done:
            break
        if attempt % 2 == 0:
            continue
        on_cycle = _pushed_around(source, pushed_by, seen)
        if on_cycle < 0:
            continue
        ticks, rounds, length, at = 0, 0, 0, on_cycle
        while length == 0 or at != on_cycle:
            edge = pushed_by[at]
            cycle[length] = edge
            length += 1
            ticks += wait[edge]
            rounds += back[edge]
            at = source[edge]
        cycle[length] = -1
        if rounds <= 0:
            return NEVER
        period = -((-ticks) // rounds)
        if period > most:
            return NEVER
        pushed_by[:] = -1
    return period


@njit(cache=True, nogil=True)
def _pushed_around(source: Ints, pushed_by: Ints, seen: Ints) -> int:
    """Return an instance that pushes itself around a cycle; -1 if there is none."""
    seen[:] = -1
    for first in range(len(seen)):
        at = first
        while seen[at] < 0 and pushed_by[at] >= 0:
            seen[at] = first
            at = source[pushed_by[at]]
        if seen[at] == first and pushed_by[at] >= 0:
            return at
        if seen[at] < 0:
            seen[at] = first
    return -1
