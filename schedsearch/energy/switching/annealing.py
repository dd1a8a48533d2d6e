"""Simulated annealing of the clocks under switching limits: stretches of a device take another clock.

A step changes one or two stretches, or parts of them, to a neighbouring stretch's clock, or to one that is a
little or much slower or faster, and simulates the iteration. What ends late, and stretches that are too
short, cost a price for each millisecond, which grows until they are gone: so a step may go through plans that
keep no limit. Compiled by numba, as a plan takes some hundred thousand steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.switching.model import State, SwitchingModel
from schedsearch.graph.compiled import compiled

ROUNDS = 6
"""Rounds of steps from each start; each begins with the best plan so far from there."""

MAX_STEPS, STEPS_OF_ONE = 60_000, 400
"""Steps of a round, at most, and for each instance."""

PASSES_OF_ONE, MAX_PASSES = 1500, 4
"""Times that all starts are gone on from, times the number of instances; and at most. Few instances have
more of them, as each takes less time."""

FIRST_HEAT, LAST_HEAT, COOLER = 0.3, 0.003, 0.6
"""Of a step at the beginning and end of the first round, as a share of a block's range of energies; and what
is left of the former in each next round."""

PRICE = 3.0
"""Times the shadow price of time that a millisecond too late costs, at first."""


class _Problem(NamedTuple):
    """A model as arrays; columns are clocks.

    Attributes:
        row: Of each instance the row of its block.
        time_ms: Of each block at each clock; infinite where it has it not.
        energy_mj: Likewise, effective.
        modes: Of each block the clocks that no other beats in both, fastest first; shape as before.
        num_modes: How many these are.
        place: Where a clock is among them, or would be.
        first: Where the waits of each instance begin; see `schedsearch.energy.switching.model.Waits`.
        tail: Who is waited for.
        delay_ms: At least.
        is_adjacent: Whether a device runs the head just after the tail.
        order: Instances of all devices, one device after the other, in its order.
        begins: Where each device begins there, and the end.
        latency_ms: See `SwitchingLimits`.
        dwell_ms: Likewise.
        back_to_back: Likewise.
        latest_ms: For the length of the iteration.
    """

    row: Ints
    time_ms: Floats
    energy_mj: Floats
    modes: Ints
    num_modes: Ints
    place: Ints
    first: Ints
    tail: Ints
    delay_ms: Floats
    is_adjacent: NDArray[np.bool_]
    order: Ints
    begins: Ints
    latency_ms: float
    dwell_ms: float
    back_to_back: bool
    latest_ms: float


def annealed(model: SwitchingModel, starts: list[Ints], price_w: float, seed: int = 0) -> State | None:
    """Return the best state that keeps the limits and was found from some clocks, or None.

    Args:
        model: Without ties.
        starts: MHz of each instance; they need not keep the limits.
        price_w: Shadow price of the iteration's time.
        seed: Of the random choices.
    """
    problem = _problem(model)
    energy = model.costs.energy_mj
    range_mj = float(np.median([np.ptp(row[np.isfinite(row)]) for row in energy])) or 1.0
    typical_ms = float(np.median(problem.time_ms[np.isfinite(problem.time_ms)]))
    steps = min(MAX_STEPS, STEPS_OF_ONE * len(problem.row))
    passes = min(max(PASSES_OF_ONE // len(problem.row), 1), MAX_PASSES)
    best, min_mj = None, np.inf
    for number, clock in enumerate(starts * passes):
        price, own_mj = PRICE * max(price_w, range_mj / typical_ms), np.inf
        column = model.costs.column(clock)
        for round_ in range(ROUNDS):
            heat = FIRST_HEAT * COOLER**round_
            now, found, found_mj, is_kept = _steps(
                problem,
                column.copy(),
                price,
                heat * range_mj,
                LAST_HEAT * range_mj,
                steps,
                seed + ROUNDS * number + round_,
            )
            if found_mj < own_mj:
                own_mj, column = found_mj, found
            elif own_mj == np.inf:
                column = now
            if not is_kept:
                price *= 2
            if found_mj < min_mj:
                best, min_mj = found, found_mj
    if best is None:
        return None
    state = model.state(model.costs.clock_mhz[best])
    return state if model.keeps(state) else None


def _problem(model: SwitchingModel) -> _Problem:
    costs, waits, limits = model.costs, model.waits, model.limits
    modes = np.zeros(costs.time_ms.shape, dtype=np.int64)
    num_modes = np.zeros(len(modes), dtype=np.int64)
    place = np.zeros_like(modes)
    for row, (time, energy) in enumerate(zip(costs.time_ms, costs.energy_mj, strict=True)):
        order = np.argsort(time, kind="stable")
        least = np.minimum.accumulate(energy[order])
        kept = order[energy[order] < np.concatenate([[np.inf], least[:-1]])]
        modes[row, : len(kept)], num_modes[row] = kept, len(kept)
        place[row] = np.searchsorted(time[kept], time).clip(max=len(kept) - 1)
    return _Problem(
        costs.row,
        costs.time_ms,
        costs.energy_mj,
        modes,
        num_modes,
        place,
        waits.first,
        waits.tail,
        waits.delay_ms,
        waits.is_adjacent,
        np.concatenate([np.array(order, dtype=np.int64) for order in model.orders]),
        np.cumsum([0, *map(len, model.orders)]),
        limits.latency_ms,
        limits.dwell_ms,
        limits.back_to_back,
        model.latest_ms,
    )


@compiled
def _steps(
    problem: _Problem, column: Ints, price: float, first_heat: float, last_heat: float, steps: int, seed: int
) -> tuple[Ints, Ints, float, bool]:
    """Take steps from some clocks; return those at the end, the best that keep the limits, and their energy.

    Also returns whether those at the end keep the limits.
    """
    np.random.seed(seed)
    row, energy_mj, order = problem.row, problem.energy_mj, problem.order
    start, end = np.empty(len(row)), np.empty(len(row))
    changed, before = np.empty(2 * len(order), np.int64), np.empty(2 * len(order), np.int64)
    over = _simulate(problem, column, start, end)
    now = 0.0
    for i in range(len(row)):
        now += energy_mj[row[i], column[i]]
    best, best_mj = column.copy(), now if over <= 0 else np.inf
    cost = now + price * over
    for step in range(steps):
        heat = first_heat * (last_heat / first_heat) ** (step / steps)
        count, other = 0, now
        for _ in range(1 if np.random.random() < 0.5 else 2):
            if other < np.inf:
                count, more = _change(problem, column, changed, before, count)
                other += more
        most = cost - heat * np.log(max(1e-300, np.random.random()))
        if count > 0 and other <= most:
            over = _simulate(problem, column, start, end)
            if other + price * over <= most:
                now, cost, count = other, other + price * over, 0
                if over <= 0 and now < best_mj:
                    best_mj = now
                    best[:] = column
        for k in range(count - 1, -1, -1):
            column[changed[k]] = before[k]
    return column, best, best_mj, _simulate(problem, column, start, end) <= 0


@compiled
def _change(problem: _Problem, column: Ints, changed: Ints, before: Ints, count: int) -> tuple[int, float]:
    """Give some blocks of a device that follow each other one clock; return how many have changed in all.

    Also returns the energy that it takes, infinite where one of them has not that clock.
    """
    device = int(np.random.random() * (len(problem.begins) - 1))
    low, high = problem.begins[device], problem.begins[device + 1]
    if low == high:
        return count, 0.0
    at = low + int(np.random.random() * (high - low))
    begin, end = at, at + 1
    which = np.random.random()
    if which < 0.6:  # a stretch, or its part before or after
        clock = column[problem.order[at]]
        while which < 0.42 and begin > low and column[problem.order[begin - 1]] == clock:
            begin -= 1
        while (which < 0.25 or which >= 0.42) and end < high and column[problem.order[end]] == clock:
            end += 1
    else:
        end = min(high, at + 1 + int((high - low) ** np.random.random()))
    which = np.random.random()
    if which < 0.4 and begin > low:
        clock = column[problem.order[begin - 1]]
    elif which < 0.7 and end < high:
        clock = column[problem.order[end]]
    else:
        row = problem.row[problem.order[begin]]
        mode = int(np.random.random() * problem.num_modes[row])
        if which < 0.85:
            near = problem.place[row, column[problem.order[begin]]] + int((np.random.random() - 0.5) * 10)
            mode = min(max(near, 0), problem.num_modes[row] - 1)
        clock = problem.modes[row, mode]
    more = 0.0
    for k in range(begin, end):
        i = problem.order[k]
        if column[i] != clock:
            energy = problem.energy_mj[problem.row[i]]
            if not energy[clock] < np.inf:
                return count, np.inf
            more += energy[clock] - energy[column[i]]
            changed[count], before[count] = i, column[i]
            column[i] = clock
            count += 1
    return count, more


@compiled
def _simulate(problem: _Problem, column: Ints, start: Floats, end: Floats) -> float:
    """Write when instances start and end; return the ms by which iteration and stretches miss the limits."""
    length = 0.0
    for i in range(len(column)):
        ready = 0.0
        for edge in range(problem.first[i], problem.first[i + 1]):
            tail, delay = problem.tail[edge], problem.delay_ms[edge]
            if problem.is_adjacent[edge] and column[tail] != column[i]:
                delay = max(delay, problem.latency_ms)
            ready = max(ready, end[tail] + delay)
        start[i] = ready
        end[i] = ready + problem.time_ms[problem.row[i], column[i]]
        length = max(length, end[i])
    for device in range(len(problem.begins) - 1):
        low, high = problem.begins[device], problem.begins[device + 1]
        if problem.back_to_back and problem.latency_ms > 0 and low < high:
            first, last = problem.order[low], problem.order[high - 1]
            if column[first] != column[last]:
                length = max(length, end[last] - start[first] + problem.latency_ms)
    over = max(0.0, length - problem.latest_ms)
    if problem.dwell_ms > 0:
        for device in range(len(problem.begins) - 1):
            over += _too_short(problem, device, column, start, length)
    return over


@compiled
def _too_short(problem: _Problem, device: int, column: Ints, start: Floats, length: float) -> float:
    """Return by how many ms the stretches of a device between two changes are shorter than the dwell."""
    low, high = problem.begins[device], problem.begins[device + 1]
    short, number, begin, first = 0.0, 0, 0.0, 0.0
    for k in range(low, high):
        i = problem.order[k]
        is_first = k == low
        is_new = not is_first and column[problem.order[k - 1]] != column[i]
        if is_first:
            is_new = not problem.back_to_back or column[problem.order[high - 1]] != column[i]
        if not is_new:
            continue
        # a first stretch that follows nothing, and a last one that nothing follows, may be short
        if number > (0 if problem.back_to_back else 1):
            short += max(0.0, problem.dwell_ms - (start[i] - begin))
        if number == 0:
            first = start[i]
        begin = start[i]
        number += 1
    if problem.back_to_back and number > 1:
        short += max(0.0, problem.dwell_ms - (first + length - begin))
    return short
