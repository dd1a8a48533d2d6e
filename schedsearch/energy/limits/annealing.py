"""Simulated annealing of the clocks under switching limits: stretches of a device take another clock.

A step changes one or two stretches, or parts of them, to a neighbouring stretch's clock, or to one that is a
little or much slower or faster, with all that share a clock with them, and simulates the iteration. What ends
late, and stretches that are too short, cost a price for each millisecond, which grows until they are gone: so
a step may go through plans that keep no limit. Compiled by numba: a plan takes some hundred thousand steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.graph import Floats, Ints
from schedsearch.graph.compiled import compiled

ROUNDS = 6
"""Rounds of steps from each start; each begins with the best plan so far from there."""

MAX_STEPS, STEPS_OF_ONE, MAX_WORK = 60_000, 400, 6e7
"""Steps of a round, at most, and for each clock group; and at most of steps times instances."""

PASSES_OF_ONE, MIN_PASSES, MAX_PASSES = 3000, 2, 4
"""Times that all starts are gone on from, times the number of instances; at least and at most.

Two passes from one start differ by as much as a hundredth of the energy, so that one is not enough.
"""

FIRST_HEAT, LAST_HEAT, COOLER = 0.3, 0.003, 0.6
"""Heat of a step at the beginning and end of the first round, as a share of a block's range of energies; and
what is left of the former in each next round."""

PRICE = 3.0
"""Times the shadow price of time that a millisecond too late costs, at first."""


class SwitchArrays(NamedTuple):
    """A problem under switching limits as arrays for compiled loops; columns are clocks.

    Attributes:
        row: Row of each instance's block in its mode; shape ``(instances,)``.
        time_ms: Time of each block in its mode at each clock, infinite where it has it not; shape
            ``(blocks, clocks)``.
        energy_mj: Likewise, effective, on all devices of the block.
        first: Offset of each instance's first edge in `tail`; shape ``(instances + 1,)``.
        tail: Instance that each edge waits for.
        delay_ms: Delay, at least.
        is_adjacent: Whether a device runs the head just after the tail.
        order: Instances of all devices, one device after the other, in its order.
        begins: Where each device begins there, and the end.
        group: Clock group of each instance.
        members: Instances of all groups, one group after the other.
        groups: Where each group begins there, and the end.
        latency_ms: Latency from each clock to each other.
        dwell_ms: See `SwitchingLimits`, but for rounding errors.
        back_to_back: Likewise.
        latest_ms: For the length of the iteration.
    """

    row: Ints
    time_ms: Floats
    energy_mj: Floats
    first: Ints
    tail: Ints
    delay_ms: Floats
    is_adjacent: NDArray[np.bool_]
    order: Ints
    begins: Ints
    group: Ints
    members: Ints
    groups: Ints
    latency_ms: Floats
    dwell_ms: float
    back_to_back: bool
    latest_ms: float


def annealed(arrays: SwitchArrays, starts: list[Ints], price_w: float) -> list[Ints]:
    """Return, for each start and pass, the best clocks that keep the limits, else the last clocks.

    A start has the column of each instance's clock, the same within a clock group, and need not keep the
    limits.
    """
    size = len(arrays.row)
    range_mj = float(np.median([np.ptp(row[np.isfinite(row)]) for row in arrays.energy_mj])) or 1.0
    typical_ms = float(np.median(arrays.time_ms[np.isfinite(arrays.time_ms)]))
    steps = min(MAX_STEPS, STEPS_OF_ONE * (len(arrays.groups) - 1), math.ceil(MAX_WORK / size))
    passes = min(max(PASSES_OF_ONE // size, MIN_PASSES), MAX_PASSES)
    columns = []
    for number, column in enumerate(starts * passes):
        price, best_mj = PRICE * max(price_w, range_mj / typical_ms), np.inf
        for turn in range(ROUNDS):
            heats = FIRST_HEAT * COOLER**turn * range_mj, LAST_HEAT * range_mj
            last, best, mj, is_kept = _steps(
                arrays, column.copy(), price, *heats, steps, ROUNDS * number + turn
            )
            if mj < best_mj:
                best_mj, column = mj, best
            elif best_mj == np.inf:
                column = last
            if not is_kept:
                price *= 2
        columns.append(column)
    return columns


@compiled
def simulate(a: SwitchArrays, column: Ints, start: Floats, end: Floats) -> tuple[float, float]:
    """Write when instances start and end.

    Returns:
        The length of the iteration, and the ms by which it and the stretches miss the limits.
    """
    length = 0.0
    for i in range(len(column)):
        ready = 0.0
        for edge in range(a.first[i], a.first[i + 1]):
            tail, delay = a.tail[edge], a.delay_ms[edge]
            if a.is_adjacent[edge]:
                delay = max(delay, a.latency_ms[column[tail], column[i]])
            ready = max(ready, end[tail] + delay)
        start[i] = ready
        end[i] = ready + a.time_ms[a.row[i], column[i]]
        length = max(length, end[i])
    for device in range(len(a.begins) - 1):
        low, high = a.begins[device], a.begins[device + 1]
        if a.back_to_back and low < high:
            first, last = a.order[low], a.order[high - 1]
            if column[first] != column[last]:
                length = max(length, end[last] - start[first] + a.latency_ms[column[last], column[first]])
    over = max(0.0, length - a.latest_ms)
    for device in range(len(a.begins) - 1 if a.dwell_ms > 0 else 0):
        low, high = a.begins[device], a.begins[device + 1]
        begin, since = -1.0, -1.0  # a first stretch that follows nothing, and a last one, may be short
        for k in range(low, high):
            before = a.order[k - 1 if k > low else high - 1 if a.back_to_back else low]
            here = a.order[k]
            if column[before] != column[here]:
                if since < 0:
                    begin = start[here]
                else:
                    over += max(0.0, a.dwell_ms - (start[here] - since))
                since = start[here]
        if a.back_to_back and since >= 0:
            over += max(0.0, a.dwell_ms - (begin + length - since))
    return length, over


@compiled
def _steps(
    a: SwitchArrays, column: Ints, price: float, first_heat: float, last_heat: float, steps: int, seed: int
) -> tuple[Ints, Ints, float, bool]:
    """Anneal given clocks; return the last clocks, the best that keep the limits, and their energy in mJ.

    The fourth value says whether the last clocks keep the limits.
    """
    np.random.seed(seed)
    start, end = np.empty(len(column)), np.empty(len(column))
    changed, before = np.empty(2 * len(column), np.int64), np.empty(2 * len(column), np.int64)
    _, over = simulate(a, column, start, end)
    now = 0.0
    for i in range(len(column)):
        now += a.energy_mj[a.row[i], column[i]]
    best, best_mj = column.copy(), now if over <= 0 else np.inf
    cost = now + price * over
    for step in range(steps):
        heat = first_heat * (last_heat / first_heat) ** (step / steps)
        count, other = 0, now
        for _ in range(1 if np.random.random() < 0.5 else 2):
            if other < np.inf:
                count, more = _change(a, column, changed, before, count)
                other += more
        most = cost - heat * np.log(max(1e-300, np.random.random()))
        if count > 0 and other <= most:
            _, over = simulate(a, column, start, end)
            if other + price * over <= most:
                now, cost, count = other, other + price * over, 0
                if over <= 0 and now < best_mj:
                    best_mj = now
                    best[:] = column
        for k in range(count - 1, -1, -1):
            column[changed[k]] = before[k]
    return column, best, best_mj, simulate(a, column, start, end)[1] <= 0


@compiled
def _change(a: SwitchArrays, column: Ints, changed: Ints, before: Ints, count: int) -> tuple[int, float]:
    """Give consecutive blocks of a device one clock, and likewise all instances of their clock groups.

    Returns the number of changes so far, and the added energy, infinite where an instance lacks that
    clock.
    """
    at = int(np.random.random() * len(a.order))
    device = np.searchsorted(a.begins, at, side="right") - 1
    low, high = a.begins[device], a.begins[device + 1]
    begin, end, clock = at, at + 1, column[a.order[at]]
    which = np.random.random()
    if which < 0.6:  # a stretch, or its part before or after
        while which < 0.42 and begin > low and column[a.order[begin - 1]] == clock:
            begin -= 1
        while (which < 0.25 or which >= 0.42) and end < high and column[a.order[end]] == clock:
            end += 1
    else:
        end = min(high, at + 1 + int((high - low) ** np.random.random()))
    which, most = np.random.random(), len(a.latency_ms) - 1
    if which < 0.4 and begin > low:
        clock = column[a.order[begin - 1]]
    elif which < 0.7 and end < high:
        clock = column[a.order[end]]
    elif which < 0.85:  # near
        clock = min(max(column[a.order[begin]] + int((np.random.random() - 0.5) * 10), 0), most)
    else:
        clock = int(np.random.random() * (most + 1))
    more = 0.0
    for k in range(begin, end):
        i = a.order[k]
        if column[i] == clock:
            continue
        group = a.group[i]
        for place in range(a.groups[group], a.groups[group + 1]):
            member = a.members[place]
            energy = a.energy_mj[a.row[member]]
            if not energy[clock] < np.inf:
                return count, np.inf
            more += energy[clock] - energy[column[member]]
            changed[count], before[count] = member, column[member]
            column[member] = clock
            count += 1
    return count, more
