"""Taking changes of clock out until a plan keeps its limits: clocks only rise, so this ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from schedsearch.energy.graph import Ints
from schedsearch.energy.switching.model import Run, State, SwitchingModel


def raised(model: SwitchingModel, clock: Ints) -> State | None:
    """Raise clocks until no stretch is too short and the deadline is kept; None where that fails.

    Stretches that are too short take the higher clock of a neighbor, which makes nothing later, and so do
    those between which the critical path waits.
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


def common_clocks(model: SwitchingModel, members: Sequence[int] | Ints) -> list[int]:
    """Return the clocks that all instances have, ascending."""
    rows = np.unique(model.costs.row[members])
    return model.costs.clock_mhz[np.isfinite(model.costs.time_ms[rows]).all(axis=0)].tolist()  # type: ignore[no-any-return]


def _merged(model: SwitchingModel, state: State, short: list[tuple[list[Run], int]]) -> Ints:
    """Return clocks with each stretch that is too short joined to a neighbor, the cheaper one."""
    clock = state.clock.copy()
    joined = None
    for runs, i in short:
        beside = (runs[i - 1], runs[(i + 1) % len(runs)])
        cost, members, mhz = min((_merge(model, runs[i], run) for run in beside), key=lambda way: way[0])
        if cost < math.inf and joined is not runs[i - 1]:
            clock[members] = np.maximum(clock[members], mhz)
            joined = runs[i]
    return clock


def _merge(model: SwitchingModel, run: Run, neighbor: Run) -> tuple[float, Ints, int]:
    """Return what it costs to give the slower of two stretches the other's clock, whom, and the clock."""
    slower, faster = sorted((run, neighbor), key=lambda each: each.mhz)
    members = model.tied_to(slower.members)
    return _dearer(model, members, slower.mhz, faster.mhz), members, faster.mhz


def _dearer(model: SwitchingModel, members: Ints, before: int, after: int) -> float:
    """Return how much more energy instances need at another clock; infinite where one lacks it."""
    then = model.effective(members, after)
    return then - model.effective(members, before) if then < math.inf else math.inf


def _hurried(model: SwitchingModel, state: State) -> Ints:
    """Return clocks without the changes on the critical path; or with higher ones on it."""
    clock = state.clock.copy()
    path = _critical_path(model, state)
    of = _run_of(model, state)
    pairs = [*pairwise(path), *_seams(model)]
    for before, member in pairs:
        for one, other in zip(of[before], of[member], strict=True):
            if one is not None and other is not None and one.mhz != other.mhz:
                cost, members, mhz = _merge(model, one, other)
                if cost < math.inf:
                    clock[members] = np.maximum(clock[members], mhz)
    if (clock == state.clock).all():
        for run in {id(run): run for i in path for run in of[i] if run is not None}.values():
            members = model.tied_to(run.members)
            higher = [mhz for mhz in common_clocks(model, members) if mhz > run.mhz]
            clock[members] = np.maximum(clock[members], min(higher, default=0))
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
