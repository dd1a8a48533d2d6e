"""Taking changes of clock out until a plan keeps its limits, by steps that save time: so this ends.

In a measured profile a higher clock may be slower by a little. So what is faster is decided by times: each
step makes the blocks that it changes faster together, or gives them higher clocks at equal time.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.switching.model import Run, State, SwitchingModel


def raised(model: SwitchingModel, clock: Ints) -> State | None:
    """Hurry blocks until no stretch is too short and the deadline is kept; None where that fails.

    Stretches that are too short take the higher clock of a neighbor, or both take another one, such that no
    block takes longer if possible, and so do those between which the critical path waits.
    """
    state = model.state(clock)
    while True:
        short = list(model.too_short(state))
        if not short and state.time_ms <= model.latest_ms:
            return state
        clock = _merged(model, state, short) if short else _hurried(model, state)
        if (clock == state.clock).all():
            return None
        state = model.state(clock)


def _merged(model: SwitchingModel, state: State, short: list[tuple[list[Run], int]]) -> Ints:
    """Return clocks with each stretch that is too short joined to a neighbor, the cheaper one."""
    clock = state.clock.copy()
    joined = None
    for runs, i in short:
        beside = (runs[i - 1], runs[(i + 1) % len(runs)])
        ways = [_merge(model, clock, runs[i], run) for run in beside]
        cost, members, mhz = min(ways, key=lambda way: way[0])
        if cost < math.inf and joined is not runs[i - 1]:
            clock[members] = mhz
            joined = runs[i]
    return clock


def _merge(model: SwitchingModel, clock: Ints, run: Run, neighbor: Run) -> tuple[float, Ints, int]:
    """Return what it costs to give two stretches one clock, whose clocks that changes, and the clock.

    That is the higher one of the two, for the other stretch, if no block takes longer with it; else one for
    both with which no block does, or at least all of them together do not. The cost is infinite without any.
    """
    slower, faster = sorted((run, neighbor), key=lambda each: each.mhz)
    mhz, costs = model.costs.clock_mhz, model.costs
    both = model.tied_to([*run.members, *neighbor.members])
    for members, allowed in ((model.tied_to(slower.members), mhz == faster.mhz), (both, mhz > 0)):
        time = costs.time_ms[costs.row[members]]
        now = model.times(clock)[members]
        total, total_now = total_ms(model, members, now)
        hurries = (total < total_now) | ((total == total_now) & (mhz > clock[members].mean()))
        each = hurries & (time <= now[:, None]).all(axis=0)
        fits = np.flatnonzero(allowed & (hurries if members is both and not each.any() else each))
        if len(fits):
            energy = [model.effective(members, int(mhz[k])) for k in fits]
            cost = min(energy) - model.effective(members, clock[members])
            return cost, members, int(mhz[fits[int(np.argmin(energy))]])
    return math.inf, both, 0


def total_ms(model: SwitchingModel, members: Ints, now_ms: Floats) -> tuple[Floats, float]:
    """Return how long instances take together at each clock, infinite where one lacks it, and now.

    All are summed in one order, so that equal times give equal sums.
    """
    sums: Floats = np.column_stack([model.costs.time_ms[model.costs.row[members]], now_ms]).sum(axis=0)
    return sums[:-1], float(sums[-1])


def _hurried(model: SwitchingModel, state: State) -> Ints:
    """Return clocks without the changes on the critical path; or with faster ones on it."""
    clock = state.clock.copy()
    path = _critical_path(model, state)
    of = _run_of(model, state)
    pairs = [*pairwise(path), *_seams(model)]
    for before, member in pairs:
        for one, other in zip(of[before], of[member], strict=True):
            if one is not None and other is not None and one.mhz != other.mhz:
                cost, members, mhz = _merge(model, clock, one, other)
                if cost < math.inf:
                    clock[members] = mhz
    if (clock == state.clock).all():
        for run in {id(run): run for i in path for run in of[i] if run is not None}.values():
            members = model.tied_to(run.members)
            total, total_now = total_ms(model, members, model.times(clock)[members])
            faster = np.flatnonzero(total < total_now)
            if len(faster):
                clock[members] = model.costs.clock_mhz[faster[total[faster].argmax()]]
    return clock


def _seams(model: SwitchingModel) -> list[tuple[int, int]]:
    """Return last and first instance of each device where the change between iterations costs time."""
    if not model.limits.back_to_back or model.limits.latency_ms == 0:
        return []
    return [(order[-1], order[0]) for order in model.orders if order]


def _run_of(model: SwitchingModel, state: State) -> list[list[Run | None]]:
    """Return for each instance the stretch that it is part of on each device, None on others."""
    found: list[list[Run | None]] = [[None] * model.graph.num_devices for _ in model.graph.instances]
    for device in range(model.graph.num_devices):
        for run in model.runs(device, state.clock):
            for i in run.members:
                found[i][device] = run
    return found


def _critical_path(model: SwitchingModel, state: State) -> list[int]:
    """Return instances that start as soon as the one before lets them, up to the last one to end."""
    waits = model.waits
    end = state.start_ms + model.times(state.clock)
    ready = end[waits.tail] + waits.delays(state.clock, model.limits.latency_ms)
    path = [int(end.argmax())]
    while (first := waits.first[path[-1]]) < (last := waits.first[path[-1] + 1]):
        path.append(int(waits.tail[first + ready[first:last].argmax()]))
    return path[::-1]
