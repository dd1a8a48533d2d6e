"""Lowering clocks of stretches and of parts of a device's order, as far as slack and limits allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from schedsearch.energy.graph import Ints
from schedsearch.energy.switching.model import State, SwitchingModel
from schedsearch.energy.switching.repair import total_ms


def lowered(model: SwitchingModel, state: State) -> State:
    """Lower the clock of each stretch as far as slack and limits allow and energy goes down."""
    for device in range(model.graph.num_devices):
        for run in model.runs(device, state.clock):
            state = _lower(model, state, model.tied_to(run.members))
    return state


def lowered_in_parts(model: SwitchingModel, state: State, most_parts: int) -> State:
    """Lower parts of each device's order likewise, whatever their clocks, longer ones first.

    Args:
        model: Whose limits are kept.
        state: That keeps them.
        most_parts: Of each device's order.
    """
    for part in _parts(model, most_parts):
        state = _lower(model, state, model.tied_to(part))
    return state


def one_for_each_device(model: SwitchingModel, clock: Ints) -> Ints:
    """Return one clock for all blocks of a device, or of devices that share blocks, lowered in turn.

    It begins at the one at which all of them together are fastest. Where blocks have no clock in common they
    keep theirs.
    """
    state = model.state(clock)
    for group in _independent(model):
        members = model.tied_to(group)
        total, _ = total_ms(model, members, model.times(state.clock)[members])
        if np.isfinite(total).any():
            fastest = state.clock.copy()
            fastest[members] = model.costs.clock_mhz[np.flatnonzero(total == total.min())[-1]]
            state = _lower(model, model.state(fastest), members)
    return state.clock


def _parts(model: SwitchingModel, most_parts: int) -> Iterator[list[int]]:
    """Yield halves, quarters, eighths ... of each device's order and of each block's micro-batches."""
    rows: list[list[int]] = [*model.orders, *_by_block(model)]
    parts = 1
    while parts <= most_parts and any(len(row) >= 2 * parts for row in rows):
        for row in filter(None, rows):
            for part in np.array_split(np.array(row), min(parts, len(row))):
                yield part.tolist()
        parts *= 2


def _by_block(model: SwitchingModel) -> list[list[int]]:
    """Return the instances of each block, by micro-batch."""
    of: dict[str, list[tuple[int, int]]] = {}
    for i, (name, micro_batch) in enumerate(model.graph.instances):
        of.setdefault(name, []).append((micro_batch, i))
    return [[i for _, i in sorted(pairs)] for pairs in of.values()]


def _slower(model: SwitchingModel, members: Ints, clock: Ints) -> list[int]:
    """Return the common clocks at which instances take longer than at any of their own, fastest first.

    Of clocks that take equally long, the lower one counts as slower.
    """
    mhz, costs = model.costs.clock_mhz, model.costs
    used_ms = costs.time_ms[costs.row[members]][:, costs.column(np.unique(clock))]
    total, fastest = total_ms(model, members, used_ms.min(axis=1))
    slower = (total > fastest) | ((total == fastest) & (mhz < clock.max()))
    order = np.lexsort((-mhz, total))
    return [int(mhz[k]) for k in order if slower[k] and np.isfinite(total[k])]


def _lower(model: SwitchingModel, state: State, members: Ints) -> State:
    """Slow instances down from their clocks to a common one, by many at once as long as that works."""
    clocks = _slower(model, members, state.clock[members])
    at, step = -1, 8
    while step > 0:
        lower = _with(model, state, members, clocks[at + step]) if at + step < len(clocks) else None
        if lower is not None:
            state, at = lower, at + step
        else:
            step //= 2
    return state


def _with(model: SwitchingModel, state: State, members: Ints, mhz: int) -> State | None:
    """Return the state with instances at another clock; None where it breaks a limit or saves nothing."""
    if model.effective(members, mhz) >= model.effective(members, state.clock[members]):
        return None
    clock = state.clock.copy()
    clock[members] = mhz
    other = model.state(clock)
    return other if model.keeps(other) else None


def _independent(model: SwitchingModel) -> list[Sequence[int]]:
    """Return the instances of devices that share blocks, directly or not, together."""
    groups: list[set[int]] = []
    for block in model.schedule.placement.blocks:
        joined = [group for group in groups if group & set(block.devices)]
        groups = [group for group in groups if group not in joined]
        groups.append(set(block.devices).union(*joined))
    return [sorted({i for device in sorted(group) for i in model.orders[device]}) for group in groups]
