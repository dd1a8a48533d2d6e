"""The best clocks of one device within the windows that all others leave, changes of clock included.

A device's order is gone through once. For each clock that the last block can have, those ways so far are
kept that no other beats in both end and energy; a way goes on at its clock at once, or at another one after
the latency, if its stretch has lasted for the dwell. What the rows of windows do not know, the other
devices' dwell and the seam between iterations, is simulated afterwards, and a choice that breaks it is
dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.switching.model import State, SwitchingModel
from schedsearch.energy.switching.repair import raised
from schedsearch.energy.windows import SHARES_OF_SLACK, Windows, windows_of

_MOST_LABELS = 8
"""Ways kept for each clock of the last block."""

_MOST_CHANGING = 24
"""Ways kept, over all clocks, for a change."""


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
        best = best_clocks(
            each, time_ms, costs.energy_mj[rows], model.limits.dwell_ms, model.limits.latency_ms
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


@dataclass(frozen=True, eq=False)
class _Labels:
    """Ways so far, by the clock of the last block; infinite ends where there are fewer.

    Attributes:
        end_ms: Of the last block; shape ``(clocks, labels)``.
        cost_mj: So far.
        since_ms: Start of the last stretch.
        number: Of each way, among all that were ever kept.
    """

    end_ms: Floats
    cost_mj: Floats
    since_ms: Floats
    number: Ints


def best_clocks(
    windows: Windows, time_ms: Floats, energy_mj: Floats, dwell_ms: float, latency_ms: float
) -> Ints | None:
    """Return the columns of the clocks of least energy that keep a row of windows, or None.

    The first and the last stretch may be short.

    Args:
        windows: Of a device.
        time_ms: Of each member at each clock, infinite where it has it not; shape ``(members, clocks)``.
        energy_mj: Likewise.
        dwell_ms: From the start of a stretch to that of the next.
        latency_ms: Between blocks of different clocks.
    """
    num_clocks = time_ms.shape[1]
    labels = _Labels(
        np.full((num_clocks, 1), -np.inf),
        np.zeros((num_clocks, 1)),
        np.full((num_clocks, 1), -np.inf),
        np.full((num_clocks, 1), -1),
    )
    steps: list[tuple[Ints, Ints]] = []
    count = 0
    for k in range(len(windows.release_ms)):
        release, gap = float(windows.release_ms[k]), float(windows.gap_ms[k])
        stay = np.maximum(labels.end_ms + gap, release)
        if k == 0:
            start, cost, since, before = stay, labels.cost_mj, labels.since_ms, labels.number
        else:
            change = _changing(labels, max(gap, latency_ms), release, dwell_ms)
            spread = [np.broadcast_to(part, (num_clocks, len(part))) for part in change]
            start = np.hstack([stay, spread[0]])
            cost = np.hstack([labels.cost_mj, spread[1]])
            since = np.hstack([labels.since_ms, spread[0]])
            before = np.hstack([labels.number, spread[2].astype(np.int64)])
        with np.errstate(invalid="ignore"):
            end = start + time_ms[k][:, None]
            cost = cost + energy_mj[k][:, None]
        late = ~(end <= windows.due_ms[k])
        end, cost = np.where(late, np.inf, end), np.where(late, np.inf, cost)
        ripe = (end - since >= dwell_ms) | (dwell_ms == 0)
        groups = [ripe, ~ripe] if dwell_ms > 0 else [ripe]
        kept = [_pruned(np.where(group, end, np.inf), np.where(group, cost, np.inf)) for group in groups]
        order = np.hstack([columns for columns, _ in kept])
        alive = np.hstack([good for _, good in kept])
        if not alive.any():
            return None
        rows = np.arange(num_clocks)[:, None]
        number = np.where(alive, count + np.cumsum(alive).reshape(alive.shape) - 1, -1)
        mhz = np.broadcast_to(rows, alive.shape)[alive]
        steps.append((mhz, before[rows, order][alive]))
        first_of_step = count
        count += int(alive.sum())
        labels = _Labels(
            np.where(alive, end[rows, order], np.inf),
            np.where(alive, cost[rows, order], np.inf),
            np.where(alive, since[rows, order], -np.inf),
            number,
        )
    best = int(labels.number[np.unravel_index(labels.cost_mj.argmin(), labels.cost_mj.shape)])
    return _traced(steps, best, first_of_step)


def _changing(
    labels: _Labels, gap_ms: float, release_ms: float, dwell_ms: float
) -> tuple[Floats, Floats, Ints]:
    """Return start, cost and number of the ways that can go on at another clock, the best ones."""
    start = np.maximum(labels.end_ms + gap_ms, release_ms).ravel()
    fits = np.isfinite(start) & (start - labels.since_ms.ravel() >= dwell_ms)
    cost = np.where(fits, labels.cost_mj.ravel(), np.inf)
    columns, good = _pruned(np.where(fits, start, np.inf)[None], cost[None], _MOST_CHANGING)
    chosen = columns[good]
    return start[chosen], cost[chosen], labels.number.ravel()[chosen]


def _pruned(end: Floats, cost: Floats, most: int = _MOST_LABELS) -> tuple[Ints, NDArray[np.bool_]]:
    """Return for each row the columns of the ways no other beats, spread over time, and which are some."""
    order = np.argsort(end, axis=1, kind="stable")
    rows = np.arange(len(end))[:, None]
    sorted_end, sorted_cost = end[rows, order], cost[rows, order]
    least = np.minimum.accumulate(sorted_cost, axis=1)
    good = np.isfinite(sorted_end)
    good[:, 1:] &= sorted_cost[:, 1:] < least[:, :-1]
    if good.sum(axis=1).max(initial=0) > most:
        good = _spread(sorted_end, good, most)
    front = np.argsort(~good, axis=1, kind="stable")[:, :most]
    return order[rows, front], good[rows, front]


def _spread(end: Floats, good: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
    """Keep of the good ones in each row the first of each of so many equal parts of time."""
    first = np.where(good, end, np.inf).min(axis=1, keepdims=True)
    last = np.where(good, end, -np.inf).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        cell = np.where(good, np.floor((end - first) * ((most - 1) / (last - first))), -1.0)
    cell = np.where(np.isnan(cell), 0.0, cell)
    so_far = np.maximum.accumulate(cell, axis=1)
    kept = good.copy()
    kept[:, 1:] &= cell[:, 1:] > so_far[:, :-1]
    return kept


def _traced(steps: list[tuple[Ints, Ints]], best: int, first_of_step: int) -> Ints:
    """Return the columns along the way that ends in `best`."""
    choice = np.empty(len(steps), dtype=np.int64)
    for k in range(len(steps) - 1, -1, -1):
        mhz, before = steps[k]
        choice[k], best = mhz[best - first_of_step], int(before[best - first_of_step])
        first_of_step -= len(steps[k - 1][0]) if k else 0
    return choice
