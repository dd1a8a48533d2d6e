"""The best clocks of one device after the other within the windows that all others leave.

What the windows do not know, the other devices' dwell and the seam between iterations, is simulated
afterwards, and a choice that breaks it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.switching.model import State, SwitchingModel
from schedsearch.energy.switching.repair import raised
from schedsearch.energy.windows import SHARES_OF_SLACK, Windows, best_within, windows_of


def chosen_in_windows(model: SwitchingModel, state: State) -> State:
    """Return a state of no more energy, from choosing every device's clocks again, in sweeps.

    Args:
        model: Without ties.
        state: That keeps the limits.
    """
    for share in SHARES_OF_SLACK:
        for device in range(model.graph.num_devices):
            for clock in _choices(model, state, device, share):
                if model.effective(np.arange(len(clock)), clock) >= state.effective_mj:
                    continue
                other = model.state(clock)
                found = other if model.keeps(other) else raised(model, clock)
                if found is not None and found.effective_mj < state.effective_mj:
                    state = found
    return state


def _choices(model: SwitchingModel, state: State, device: int, share: float) -> Iterator[Ints]:
    """Yield clocks of all instances with those of one device chosen anew, in a few ways."""
    members = np.array(model.orders[device], dtype=np.int64)
    if not len(members):
        return
    start = state.start_ms + share * (_latest_start(model, state) - state.start_ms)
    waits, costs = model.waits, model.costs
    windows = windows_of(
        members,
        start,
        start + model.times(state.clock),
        model.latest_ms,
        (waits.tail, waits.head, waits.delay_ms),
        waits.delays(state.clock, model.limits.latency_ms),
    )
    rows = costs.row[members]
    for each, time_ms in _ends(model, windows, costs.time_ms[rows], state.clock[members]):
        best = best_within(
            each, time_ms, costs.energy_mj[rows], model.limits.latency_ms, model.limits.dwell_ms
        )
        if best is not None:
            clock = state.clock.copy()
            clock[members] = model.costs.clock_mhz[best]
            yield clock


def _latest_start(model: SwitchingModel, state: State) -> Floats:
    """Return when each instance must start at the latest for the iteration to end in time."""
    waits, time = model.waits, model.times(state.clock)
    delay = waits.delays(state.clock, model.limits.latency_ms)
    end = np.full(len(time), model.latest_ms)
    if model.limits.back_to_back:
        for order in model.orders:
            if order and state.clock[order[0]] != state.clock[order[-1]]:
                end[order[-1]] += min(state.start_ms[order[0]] - model.limits.latency_ms, 0.0)
    latest: list[float] = end.tolist()
    tail, first = waits.tail.tolist(), waits.first.tolist()
    took, least = time.tolist(), delay.tolist()
    for i in range(len(took) - 1, -1, -1):
        latest[i] -= took[i]
        for edge in range(first[i], first[i + 1]):
            due = latest[i] - least[edge]
            if due < latest[tail[edge]]:
                latest[tail[edge]] = due
    result: Floats = np.maximum(np.array(latest), state.start_ms)
    return result


def _ends(
    model: SwitchingModel, windows: Windows, time_ms: Floats, clock: Ints
) -> Iterator[tuple[Windows, Floats]]:
    """Yield windows and times that keep the seam between iterations: with time for a change, or at one clock.

    Where nothing is to be kept there, they are those that are given.
    """
    limits = model.limits
    if not limits.back_to_back or (limits.latency_ms == 0 and limits.dwell_ms == 0):
        yield windows, time_ms
        return
    due = windows.due_ms.copy()
    due[-1] = min(due[-1], model.latest_ms - limits.latency_ms + max(windows.release_ms[0], 0.0))
    yield replace(windows, due_ms=due), time_ms
    for mhz in sorted({int(clock[0]), int(clock[-1])}):
        column = int(model.costs.column(np.array([mhz]))[0])
        time = time_ms.copy()
        others = np.arange(time.shape[1]) != column
        time[0, others] = time[-1, others] = np.inf
        yield windows, time
