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
    """The order of blocks on every device in one period, as arrays.

    An instance is a block of one micro-batch of the repetend, a visit an instance on one of its devices. Each
    device has a row of places in `order`, one for each visit. The target of an edge may start `wait` ticks
    after its source, `back` rounds later. The edges of inputs come first, then from each place the
    edge to the next place in the device's cyclic order.

    Attributes:
        ticks: Ticks of each instance.
        source, target, wait, back: Of each edge: two instances, ticks, and rounds.
        first: The first place of each device, and the end of the last.
        order: Visit at each place.
        round_, instance, memory, transient, place: Of each visit: the round and number of its instance, the
            memory that its device holds more from then on, what it needs while it runs, and where it is.
        free: Memory of each device.
        visits: Visits of each instance; -1 behind the last. Shape ``(instances, most devices of one + 1)``.
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
    """Buffers of a step: results before they are taken, and the rows to restore if the step is rejected.

    Attributes:
        starts, pushed_by, cycle: As in `PeriodOrders`.
        course: Rows of `order`, `round_` and `place` before the step.
        seen, path: As of `schedsearch.graph.kernel.critical_cycle`.
    """

    starts: Ints
    pushed_by: Ints
    cycle: Ints
    course: Ints
    seen: Ints
    path: Ints


@uncounted
def take_steps(
    orders: PeriodOrders,
    scratch: Scratch,
    best: Ints,
    period: int,
    shortest: int,
    least: int,
    heat: float,
    steps: int,
    seed: int,
) -> tuple[int, int]:
    """Take some steps of simulated annealing, and keep the best orders seen.

    A step exchanges the ends of an edge of the critical cycle, and often one of them with those behind it, as
    a block may have to go past several before the period is less. It is taken back if a device would hold too
    much, or with a chance that grows with the ticks that the period grows by.

    Args:
        orders: Where to begin, and then where the steps have led.
        scratch: Where to write.
        best: Rows of `order`, `round_` and `place` of the best orders.
        period: Ticks of the critical cycle; `FOREVER` to find it first.
        shortest: The period of the best.
        least: No period is shorter: the steps end there.
        heat: Ticks by which a period may well grow.
        steps: Number of steps.
        seed: Seed of the random choices.

    Returns:
        The period where the steps have led, and the best.
    """
    np.random.seed(seed)
    if period == FOREVER:
        _connect(orders)
        period = _critical_cycle(orders, scratch, least, FOREVER - 1)
    for _ in range(steps):
        if period < shortest:
            shortest = period
            _save(orders, best)
        if period <= least:
            break
        _save(orders, scratch.course)
        place, way, now = _any_place_of_cycle(orders), 1 if np.random.random() < 0.5 else -1, FOREVER
        is_possible = _exchange_everywhere(orders, place)
        while is_possible and np.random.random() < _GO_ON:
            place = _beside(orders, place, way)
            is_possible = _exchange_everywhere(orders, place)
        if is_possible:
            most = int(period - heat * math.log(max(1e-12, np.random.random())))
            _connect(orders)
            now = _critical_cycle(orders, scratch, least, most)
        if now < FOREVER:
            period = now
        else:
            _copy(scratch.course[0], orders.order)
            _copy(scratch.course[1], orders.round_)
            _copy(scratch.course[2], orders.place)
            _connect(orders)
    if period < shortest:
        shortest = period
        _save(orders, best)
    return period, shortest


@uncounted
def _copy(source: Ints, target: Ints) -> None:
    """Copy one by one: to assign a slice would make an array."""
    for i in range(len(source)):
        target[i] = source[i]


@uncounted
def _save(orders: PeriodOrders, course: Ints) -> None:
    _copy(orders.order, course[0])
    _copy(orders.round_, course[1])
    _copy(orders.place, course[2])


@uncounted
def _any_place_of_cycle(orders: PeriodOrders) -> int:
    """Return the place of a random edge of the critical cycle along a device's order."""
    cycle, inputs = orders.cycle, len(orders.source) - len(orders.order)
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
def _beside(orders: PeriodOrders, place: int, step: int) -> int:
    """Return the next place in a device's cyclic row, or with a step of -1 the place before."""
    first, end = orders.first[orders.device[place]], orders.first[orders.device[place] + 1]
    place += step
    return end - 1 if place < first else first if place == end else place


@uncounted
def _connect(orders: PeriodOrders) -> None:
    """Set the edges from each place to the next one, after the order has changed."""
    inputs = len(orders.source) - len(orders.order)
    for place in range(len(orders.order)):
        following, edge = _beside(orders, place, 1), inputs + place
        visit, other = orders.order[place], orders.order[following]
        orders.source[edge], orders.target[edge] = orders.instance[visit], orders.instance[other]
        orders.wait[edge] = orders.ticks[orders.instance[visit]]
        orders.back[edge] = orders.round_[other] - orders.round_[visit] + (following <= place)


@uncounted
def _exchange_everywhere(orders: PeriodOrders, place: int) -> bool:
    """Swap the instances at a place and the next one, on all devices that run both; edges stay as they are.

    If other visits are between the two, the first one goes past these too.

    Returns:
        Whether the swap is possible and fits the memory of the devices.
    """
    following = _beside(orders, place, 1)
    if following == place:
        return False
    visit, other = orders.order[place], orders.order[following]
    ones, others = orders.visits[orders.instance[visit]], orders.visits[orders.instance[other]]
    for one in ones:
        for two in others:
            if one < 0 or two < 0 or orders.device[orders.place[one]] != orders.device[orders.place[two]]:
                continue
            is_past = False
            while not is_past:
                at = orders.place[one]
                following = _beside(orders, at, 1)
                past = orders.order[following]
                is_past = past == two
                orders.order[at], orders.order[following] = past, one
                orders.place[past], orders.place[one] = at, following
                if following < at:  # each into the next period or the one before
                    orders.round_[past] += 1
                    orders.round_[one] -= 1
            if not _has_room(orders, orders.device[orders.place[one]]):
                return False
    return True


@uncounted
def _has_room(orders: PeriodOrders, device: int) -> bool:
    """Return whether a device never holds more than its memory."""
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
    """Return the least period of the orders, rounded up, and record it; `FOREVER` if it is above `most`.

    It begins at the cycles of the edges that the instances were pushed by before the step: one of them often
    is the critical one, or too long already. Taken are the starts, what pushed them and the critical cycle,
    unless that period is the least.
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
