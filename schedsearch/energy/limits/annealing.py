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

from schedsearch.energy.graph import Ints
from schedsearch.energy.limits.switching import SwitchArrays, SwitchingProblem
from schedsearch.energy.limits.switching_kernel import simulate
from schedsearch.energy.simulation import undominated
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


class _Moves(NamedTuple):
    """What steps choose from.

    Attributes:
        modes: Clocks of each block that no other beats in both time and energy, fastest first; shape
            ``(blocks, clocks)``.
        num_modes: How many these are.
        place: Where a clock is among them, or would be.
        members: Instances of all groups, one group after the other.
        begins: Where each group begins there, and the end.
    """

    modes: Ints
    num_modes: Ints
    place: Ints
    members: Ints
    begins: Ints


def annealed(problem: SwitchingProblem, starts: list[Ints], price_w: float) -> list[Ints]:
    """Return the best clocks that keep the limits and were found from some others; empty without any.

    Args:
        problem: Problem whose clocks are chosen.
        starts: Column of each instance's clock, the same within a clock group; they need not keep the limits.
        price_w: Shadow price of the iteration's time.
    """
    arrays, size = problem.arrays, problem.graph.size
    moves = _moves(arrays)
    range_mj = float(np.median([np.ptp(row[np.isfinite(row)]) for row in arrays.energy_mj])) or 1.0
    typical_ms = float(np.median(arrays.time_ms[np.isfinite(arrays.time_ms)]))
    steps = min(MAX_STEPS, STEPS_OF_ONE * len(moves.begins), math.ceil(MAX_WORK / size))
    passes = min(max(PASSES_OF_ONE // size, MIN_PASSES), MAX_PASSES)
    best, min_mj = list[Ints](), np.inf
    for number, start in enumerate(starts * passes):
        price, own_mj, column = PRICE * max(price_w, range_mj / typical_ms), np.inf, start
        for round_ in range(ROUNDS):
            heats = FIRST_HEAT * COOLER**round_ * range_mj, LAST_HEAT * range_mj
            now, found, found_mj, is_kept = _steps(
                arrays, moves, column.copy(), price, *heats, steps, ROUNDS * number + round_
            )
            if found_mj < own_mj:
                own_mj, column = found_mj, found
            elif own_mj == np.inf:
                column = now
            if not is_kept:
                price *= 2
            if found_mj < min_mj:
                best, min_mj = [found], found_mj
    return best


def _moves(arrays: SwitchArrays) -> _Moves:
    modes = np.zeros(arrays.time_ms.shape, dtype=np.int64)
    num_modes, place = np.zeros(len(modes), dtype=np.int64), np.zeros_like(modes)
    for row, (time, energy) in enumerate(zip(arrays.time_ms, arrays.energy_mj, strict=True)):
        kept = undominated(time, energy, np.zeros(len(time)))
        modes[row, : len(kept)], num_modes[row] = kept, len(kept)
        place[row] = np.searchsorted(time[kept], time).clip(max=len(kept) - 1)
    members = np.argsort(arrays.group, kind="stable")
    return _Moves(modes, num_modes, place, members, np.cumsum([0, *np.bincount(arrays.group)]))


@compiled
def _steps(
    arrays: SwitchArrays,
    moves: _Moves,
    column: Ints,
    price: float,
    first_heat: float,
    last_heat: float,
    steps: int,
    seed: int,
) -> tuple[Ints, Ints, float, bool]:
    """Take steps from some clocks; return those at the end, the best that keep the limits, and their energy.

    Also returns whether those at the end keep the limits.
    """
    np.random.seed(seed)
    row, energy_mj = arrays.row, arrays.energy_mj
    start, end = np.empty(len(row)), np.empty(len(row))
    changed, before = np.empty(2 * len(row), np.int64), np.empty(2 * len(row), np.int64)
    _, over = simulate(arrays, column, start, end)
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
                count, more = _change(arrays, moves, column, changed, before, count)
                other += more
        most = cost - heat * np.log(max(1e-300, np.random.random()))
        if count > 0 and other <= most:
            _, over = simulate(arrays, column, start, end)
            if other + price * over <= most:
                now, cost, count = other, other + price * over, 0
                if over <= 0 and now < best_mj:
                    best_mj = now
                    best[:] = column
        for k in range(count - 1, -1, -1):
            column[changed[k]] = before[k]
    return column, best, best_mj, simulate(arrays, column, start, end)[1] <= 0


@compiled
def _change(
    arrays: SwitchArrays, moves: _Moves, column: Ints, changed: Ints, before: Ints, count: int
) -> tuple[int, float]:
    """Give some blocks of a device that follow each other one clock, and all that share theirs.

    Returns how many have changed in all, and the energy that it takes, infinite where one of them has not
    that clock.
    """
    device = int(np.random.random() * (len(arrays.begins) - 1))
    low, high = arrays.begins[device], arrays.begins[device + 1]
    if low == high:
        return count, 0.0
    at = low + int(np.random.random() * (high - low))
    begin, end = at, at + 1
    which = np.random.random()
    if which < 0.6:  # a stretch, or its part before or after
        clock = column[arrays.order[at]]
        while which < 0.42 and begin > low and column[arrays.order[begin - 1]] == clock:
            begin -= 1
        while (which < 0.25 or which >= 0.42) and end < high and column[arrays.order[end]] == clock:
            end += 1
    else:
        end = min(high, at + 1 + int((high - low) ** np.random.random()))
    which = np.random.random()
    if which < 0.4 and begin > low:
        clock = column[arrays.order[begin - 1]]
    elif which < 0.7 and end < high:
        clock = column[arrays.order[end]]
    else:
        row = arrays.row[arrays.order[begin]]
        mode = int(np.random.random() * moves.num_modes[row])
        if which < 0.85:
            near = moves.place[row, column[arrays.order[begin]]] + int((np.random.random() - 0.5) * 10)
            mode = min(max(near, 0), moves.num_modes[row] - 1)
        clock = moves.modes[row, mode]
    more = 0.0
    for k in range(begin, end):
        i = arrays.order[k]
        if column[i] == clock:
            continue
        group = arrays.group[i]
        for place in range(moves.begins[group], moves.begins[group + 1]):
            member = moves.members[place]
            energy = arrays.energy_mj[arrays.row[member]]
            if not energy[clock] < np.inf:
                return count, np.inf
            more += energy[clock] - energy[column[member]]
            changed[count], before[count] = member, column[member]
            column[member] = clock
            count += 1
    return count, more
