"""Taking changes of clock out until a plan keeps its limits: clocks only rise, so this ends.

In a measured profile a higher clock may be slower by a little. Where rising clocks lead nowhere, it is tried
again by times: each step then makes the blocks that it changes faster together, or gives them higher clocks
at equal time, so this ends, too.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.switching.model import Run, State, SwitchingModel


def raised(model: SwitchingModel, clock: Ints) -> State | None:
    """Hurry blocks until no stretch is too short and the deadline is kept; None where that fails.

    Stretches that are too short take the higher clock of a neighbor, and so do those between which the
    critical path waits. By times, both may take another clock.
    """
    found = _raised(model, clock, by_time=False)
    return _raised(model, clock, by_time=True) if found is None and model.costs.is_uneven else found


def _raised(model: SwitchingModel, clock: Ints, *, by_time: bool) -> State | None:
    state = model.state(clock)
    while True:
        short = list(model.too_short(state))
        if not short and state.time_ms <= model.latest_ms:
            return state
        clock = _merged(model, state, short, by_time) if short else _hurried(model, state, by_time)
        if (clock == state.clock).all():
            return None
        state = model.state(clock)


def _merged(model: SwitchingModel, state: State, short: list[tuple[list[Run], int]], by_time: bool) -> Ints:
    """Return clocks with each stretch that is too short joined to a neighbor, the cheaper one."""
    clock = state.clock.copy()
    joined = None
    for runs, i in short:
        beside = (runs[i - 1], runs[(i + 1) % len(runs)])
        ways = [_merge(model, clock, runs[i], run, by_time) for run in beside]
        cost, members, mhz = min(ways, key=lambda way: way[0])
        if cost < math.inf and joined is not runs[i - 1]:
            clock[members] = mhz if by_time else np.maximum(clock[members], mhz)
            joined = runs[i]
    return clock


def _merge(
    model: SwitchingModel, clock: Ints, run: Run, neighbor: Run, by_time: bool
) -> tuple[float, Ints, int]:
    """Return what it costs to give two stretches one clock, whose clocks that changes, and the clock.

    That is the higher one of the two, for the other stretch. By times, it is that only if the blocks take no
    longer together with it; else it is the cheapest one with which those of both stretches do not. The cost
    is infinite where a block lacks the clock.
    """
    slower, faster = sorted((run, neighbor), key=lambda each: each.mhz)
    members, mhz = model.tied_to(slower.members), model.costs.clock_mhz
    allowed = mhz == faster.mhz
    if by_time and not (allowed & _hurries(model, members, clock)).any():
        members, allowed = model.tied_to([*run.members, *neighbor.members]), mhz > 0
    if by_time:
        allowed &= _hurries(model, members, clock)
    cost, best = min(
        ((model.effective(members, int(each)), int(each)) for each in mhz[allowed]), default=(math.inf, 0)
    )
    return (cost - model.effective(members, clock[members]) if cost < math.inf else cost), members, best


def _hurries(model: SwitchingModel, members: Ints, clock: Ints) -> NDArray[np.bool_]:
    """Return which clocks make instances faster together than their own, or are higher at equal time."""
    total, total_now = total_ms(model, members, model.times(clock)[members])
    higher: NDArray[np.bool_] = model.costs.clock_mhz > clock[members].mean()
    hurries: NDArray[np.bool_] = (total < total_now) | ((total == total_now) & higher)
    return hurries


def total_ms(model: SwitchingModel, members: Ints, now_ms: Floats) -> tuple[Floats, float]:
    """Return how long instances take together at each clock, infinite where one lacks it, and now.

    All are summed in one order, so that equal times give equal sums.
    """
    sums: Floats = np.column_stack([model.costs.time_ms[model.costs.row[members]], now_ms]).sum(axis=0)
    return sums[:-1], float(sums[-1])


def _hurried(model: SwitchingModel, state: State, by_time: bool) -> Ints:
    """Return clocks without the changes on the critical path; or with faster ones on it."""
    clock = state.clock.copy()
    path = _critical_path(model, state)
    of = _run_of(model, state)
    pairs = [*pairwise(path), *_seams(model)]
    for before, member in pairs:
        for one, other in zip(of[before], of[member], strict=True):
            if one is not None and other is not None and one.mhz != other.mhz:
                cost, members, mhz = _merge(model, clock, one, other, by_time)
                if cost < math.inf:
                    clock[members] = mhz if by_time else np.maximum(clock[members], mhz)
    if (clock == state.clock).all():
        for run in {id(run): run for i in path for run in of[i] if run is not None}.values():
            members = model.tied_to(run.members)
            total, total_now = total_ms(model, members, model.times(clock)[members])
            clocks = model.costs.clock_mhz
            if by_time:
                faster = np.flatnonzero(total < total_now)
                clock[members] = clocks[faster[total[faster].argmax()]] if len(faster) else clock[members]
            else:
                higher = clocks[(clocks > run.mhz) & np.isfinite(total)]
                clock[members] = np.maximum(clock[members], higher[0] if len(higher) else 0)
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
