"""Steps from one order of blocks to the next, in each of which a block goes past some on its device.

The orders of all devices and the inputs of blocks make a graph whose edges each go some rounds back. The
period is the greatest ratio of ticks to rounds over its cycles, so that only a change on the critical cycle
can make it shorter. Compiled by numba, as a search takes some hundred thousand steps a second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.graph.compiled import critical_cycle, uncounted
from schedsearch.graph.kernel import FOREVER

Ints = NDArray[np.int64]

_GO_ON = 0.3
"""Chance that a block that went past its neighbour goes past the next one, too, in the same step."""


class PeriodOrders(NamedTuple):
    """What every device runs in one period, in order, as arrays.

    An instance is a block of one micro-batch of the repetend, a visit an instance on one of its devices. Each
    device has a row of places in `order`, as many as it has visits.

    Attributes:
        ticks: Ticks of each instance.
        source: Instance at the tail of each edge. The edges of inputs come first, then from each place the
            edge to the next place in the device's cyclic order.
        target: Likewise the instance that waits.
        wait: Likewise the ticks from start to start.
        back: Likewise the rounds that the target is later.
        first: The first place of each device, and the end of the last.
        order: Visit at each place.
        round_: Round of each visit's instance.
        instance: Instance of each visit.
        memory: Memory units that each visit's device holds more from then on.
        transient: Memory units that each visit's device needs while the instance runs.
        free: Units of each device.
        visits: Visits of each instance; -1 behind the last. Shape ``(instances, most devices of one + 1)``.
        place: Place of each visit.
        device: Device of each place.
        starts: Start of each instance, in ticks of round 0, at the period where the steps have led.
        pushed_by: Edge from which each instance has its start.
        cycle: The edges of the critical cycle, -1 behind the last.
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
    pushed_by: Ints
    cycle: Ints


class Scratch(NamedTuple):
    """Where a step writes, before it is known whether it is taken back.

    Attributes:
        starts: As those of the orders.
        pushed_by: Likewise.
        cycle: Likewise.
        done: The places of its exchanges; a step ends when there are no more than places of devices left.
        seen: Whether each instance was seen, and from which instance.
        path: The instances, each after the one that pushes it, but for one of each cycle.
    """

    starts: Ints
    pushed_by: Ints
    cycle: Ints
    done: Ints
    seen: Ints
    path: Ints


@uncounted
def take_steps(
    orders: PeriodOrders,
    scratch: Scratch,
    period: int,
    best: Ints,
    least: int,
    heat: float,
    anywhere: float,
    steps: int,
    seed: int,
) -> tuple[int, int]:
    """Take some steps of simulated annealing, and keep the best orders seen.

    Steps exchange the ends of an edge of the critical cycle, or any neighbours, and often one of them with
    those behind it. A step is taken back if a device would hold too much, or with a chance that grows with
    the ticks that the period grows by.

    Args:
        orders: Where to begin, and then where the steps have led.
        scratch: Where to write.
        period: Ticks of their critical cycle; `FOREVER` to find it first.
        best: Its rows are `order` and `round_` of the best orders, and the period is before them.
        least: No period is shorter: the steps end there.
        heat: Ticks by which a period may well grow.
        anywhere: Chance that a step is not on the critical cycle.
        steps: How many.
        seed: Seed of the random choices.

    Returns:
        The period where the steps have led, and the best.
    """
    np.random.seed(seed)
    inputs = len(orders.source) - len(orders.order)
    if period == FOREVER:
        for place in range(len(orders.order)):
            _connect(orders, place)
        period = _critical_cycle(orders, scratch, least, FOREVER - 1)
        _remember(orders, period, best)
    for _ in range(steps):
        if period <= least:
            break
        if np.random.random() < anywhere:
            place = int(np.random.random() * len(orders.order))
        else:
            place = _any_place_of(orders.cycle, inputs)
        changed = _exchange_and_go_on(orders, scratch.done, place)
        if changed == 0:
            continue
        most = int(period - heat * math.log(max(1e-12, np.random.random())))
        now = _critical_cycle(orders, scratch, least, most)
        if now == FOREVER:
            for i in range(changed - 1, -1, -1):
                _exchange(orders, scratch.done[i])
                _connect_around(orders, scratch.done[i])
            continue
        period = now
        if period < best[0, 0]:
            _remember(orders, period, best)
    return period, best[0, 0]


@uncounted
def _copy(source: Ints, target: Ints) -> None:
    """Copy one by one: to assign a slice would make an array."""
    for i in range(len(source)):
        target[i] = source[i]


@uncounted
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


@uncounted
def _remember(orders: PeriodOrders, period: int, best: Ints) -> None:
    best[0, 0] = period
    _copy(orders.order, best[0, 1:])
    _copy(orders.round_, best[1, 1:])


@uncounted
def _beside(orders: PeriodOrders, place: int, step: int) -> int:
    """Return the place after one, or with a step of -1 before it, around its device's row."""
    first, end = orders.first[orders.device[place]], orders.first[orders.device[place] + 1]
    place += step
    return end - 1 if place < first else first if place == end else place


@uncounted
def _connect(orders: PeriodOrders, place: int) -> None:
    """Set the edge from a place to the next."""
    following = _beside(orders, place, 1)
    edge = len(orders.source) - len(orders.order) + place
    visit, other = orders.order[place], orders.order[following]
    orders.source[edge], orders.target[edge] = orders.instance[visit], orders.instance[other]
    orders.wait[edge] = orders.ticks[orders.instance[visit]]
    orders.back[edge] = orders.round_[other] - orders.round_[visit] + (following <= place)


@uncounted
def _connect_around(orders: PeriodOrders, place: int) -> None:
    """Set the edges to a place, to the next and from there."""
    _connect(orders, _beside(orders, place, -1))
    _connect(orders, place)
    _connect(orders, _beside(orders, place, 1))


@uncounted
def _exchange(orders: PeriodOrders, place: int) -> None:
    """Exchange what is at a place and at the next, but not the edges; done twice, it is as before."""
    following = _beside(orders, place, 1)
    visit, other = orders.order[place], orders.order[following]
    orders.order[place], orders.order[following] = other, visit
    orders.place[other], orders.place[visit] = place, following
    if following < place:  # each into the next period or the one before
        orders.round_[other] += 1
        orders.round_[visit] -= 1


@uncounted
def _exchange_everywhere(orders: PeriodOrders, place: int, done: Ints) -> int:
    """Exchange what is at a place and at the next, on all devices that run both.

    Where others are between them, the first goes past these too.

    Returns:
        The number of exchanges, of which `done` has the places; 0 if a device has not the memory for it, and
        then nothing is done.
    """
    following = _beside(orders, place, 1)
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
                is_past = _beside(orders, at, 1) == orders.place[two]
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


@uncounted
def _exchange_and_go_on(orders: PeriodOrders, done: Ints, place: int) -> int:
    """Exchange what is at a place and at the next, and often one of the two with those that come after it.

    Returns:
        The number of exchanges, as `_exchange_everywhere`.
    """
    number = _exchange_everywhere(orders, place, done)
    step = 1 if np.random.random() < 0.5 else -1
    more = number
    while more > 0 and number + len(orders.order) <= len(done) and np.random.random() < _GO_ON:
        place = _beside(orders, place, step)
        more = _exchange_everywhere(orders, place, done[number:])
        number += more
    return number


@uncounted
def _has_room(orders: PeriodOrders, device: int) -> bool:
    """Return whether a device never holds too much."""
    order, memory, transient = orders.order, orders.memory, orders.transient
    first, end, held = orders.first[device], orders.first[device + 1], 0
    for place in range(first, end):
        held += memory[order[place]] * orders.round_[order[place]]
    for place in range(first, end):
        held += memory[order[place]]
        if held + transient[order[place]] > orders.free[device]:
            return False
    return True


@uncounted
def _critical_cycle(orders: PeriodOrders, scratch: Scratch, least: int, most: int) -> int:
    """Return the least period of the orders, rounded up, and take it; `FOREVER` if that is above `most`.

    It begins at the cycles of the edges that the instances were pushed by before the step: one of them often
    is the critical one, or too long already. Taken are the starts, what pushed them and the critical cycle,
    unless that period is the least.

    Args:
        orders: The graph.
        scratch: Where to write.
        least: No period is shorter.
        most: No longer one is of use.
    """
    starts, pushed_by = scratch.starts, scratch.pushed_by
    _copy(orders.starts, starts)
    _copy(orders.pushed_by, pushed_by)
    for one in range(len(pushed_by)):
        if orders.target[pushed_by[one]] != one:
            place = orders.place[orders.visits[one, 0]]
            pushed_by[one] = len(orders.source) - len(orders.order) + _beside(orders, place, -1)
    period: int = critical_cycle(
        orders.source,
        orders.target,
        orders.wait,
        orders.back,
        least,
        most,
        starts,
        pushed_by,
        scratch.cycle,
        scratch.seen,
        scratch.path,
    )
    if period < FOREVER:
        _copy(scratch.cycle, orders.cycle)
        _copy(pushed_by, orders.pushed_by)
        earliest = starts[0]
        for start in starts:
            earliest = min(earliest, start)
        for one in range(len(starts)):
            orders.starts[one] = starts[one] - earliest
    return period
