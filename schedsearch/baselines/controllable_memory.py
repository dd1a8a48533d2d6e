"""V-Half, V-Min and 1F1B-V: waves whose activation memory follows from one building block.

A building block is when one micro-batch's blocks run on each device; repeated every six ticks without
collision it is a schedule, and the longer its activations live, the more it holds ("Pipeline Parallelism
with Controllable Memory"). Blocks count as one tick long, whole backward
blocks as two; with other times the order is kept.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping

from placements import Kind, Placement
from schedsearch.baselines.structure import Stage, wave_stages
from schedsearch.metrics import peak_memory
from schedsearch.schedule import DeadlockError, Instance, Schedule, as_soon_as_possible, memory_needed

_INTERVAL = 6
"""Ticks from one micro-batch to the next: a device's work for one, two chunks of F, I and W."""

_BuildingBlock = Callable[[int, int], tuple[int, int, int, int]]
"""From device and number of devices, to the ticks of F and F, I and I: chunk 0, chunk 1, chunk 1, chunk 0."""


def v_half(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return V-Half: about half the activations of 1F1B, and little idle time at either end.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with split backward.
    """
    return _from_building_block(placement, num_micro_batches, "V-Half", _half)


def v_min(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return V-Min: about a third of the activations of 1F1B, and no idle time in the steady state.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with split backward.
    """
    return _from_building_block(placement, num_micro_batches, "V-Min", _min)


def one_f_one_b_v(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B-V: two thirds to three quarters of the activations of 1F1B, with whole backward blocks.

    The building block leaves devices idle at the begin. There a device runs as many forward blocks of its
    first chunk as it has time for, but keeps room for some of its second, as many as make the schedule short.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with whole backward.
    """
    stages = wave_stages(placement, "1F1B-V")
    num_devices = len(stages) // 2
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for d, ticks in enumerate(_whole(num_devices)):
        orders[stages[d].device] = _repeated(stages[d], stages[-1 - d], ticks, num_micro_batches)
    found = [as_soon_as_possible(placement, num_micro_batches, orders)]
    limits = [int(units) for units in peak_memory(found[0])]
    for most in range(1, num_devices + 1):
        filled = [list(order) for order in orders]
        for d in range(num_devices):
            near, far = stages[d], stages[-1 - d]
            ahead = min(2 * (num_devices - d) - 1, num_micro_batches)  # ticks before the second chunk's first
            room = min(3 * d // 2 + 1, most, num_micro_batches)  # what comes of it before its first backward
            limit = limits[near.device]
            order = _filled(placement, near, far, orders[near.device], ahead, room, limit)
            filled[near.device] = order
        with contextlib.suppress(DeadlockError):
            found.append(as_soon_as_possible(placement, num_micro_batches, filled))
    return min(found, key=lambda schedule: schedule.makespan)


def _whole(p: int) -> list[tuple[int, int, int, int]]:
    """Return for each device the earliest ticks of a building block with whole backward blocks.

    Forward blocks run without a pause, down the devices and up again. Then each backward block comes as
    early as it can, if it leaves two ticks in a row for the other one in every interval.
    """
    far: list[int] = []
    for d in range(p):
        free = set(range(_INTERVAL)) - {d % _INTERVAL, (2 * p - 1 - d) % _INTERVAL}
        earliest = far[-1] + 2 if far else 2 * p
        far.append(_first(earliest, [each for each in _pairs() if each <= free and free - each in _pairs()]))
    near = [0] * (p + 1)
    near[p] = far[-1]
    for d in reversed(range(p)):
        taken = {d % _INTERVAL, (2 * p - 1 - d) % _INTERVAL, far[d] % _INTERVAL, (far[d] + 1) % _INTERVAL}
        near[d] = _first(near[d + 1] + 2, [set(range(_INTERVAL)) - taken])
    return [(d, 2 * p - 1 - d, far[d], near[d]) for d in range(p)]


def _pairs() -> list[set[int]]:
    """Return the pairs of ticks of an interval that a block of two ticks can take."""
    return [{tick, (tick + 1) % _INTERVAL} for tick in range(_INTERVAL)]


def _first(earliest: int, pairs: list[set[int]]) -> int:
    """Return the first tick from some on at which a block of two ticks takes one of some pairs."""
    ticks = range(earliest, earliest + _INTERVAL)
    return next(tick for tick in ticks if {tick % _INTERVAL, (tick + 1) % _INTERVAL} in pairs)


def _filled(
    placement: Placement,
    near: Stage,
    far: Stage,
    order: list[Instance],
    ahead: int,
    room: int,
    limit: int,
) -> list[Instance]:
    """Return an order with more forward blocks at its begin.

    Args:
        placement: What runs where.
        near: The first chunk.
        far: The second chunk.
        order: Of their device.
        ahead: The most forward blocks of the first chunk before any other.
        room: Forward blocks of the second chunk before its first backward block.
        limit: Units that the device may hold.
    """
    moves: list[tuple[int | None, Instance]] = [
        (k, (near.forward, k)) for k in range(max(1, min(ahead, limit - room)))
    ]
    moves += [(None, (far.forward, n)) for n in range(room)]
    for at, instance in moves:
        place = order.index((far.backward, 0)) if at is None else at
        if order.index(instance) > place:
            rest = [each for each in order if each != instance]
            changed = [*rest[:place], instance, *rest[place:]]
            if max(memory_needed(placement, near.device, changed)) > limit:
                break
            order = changed
    return order


def _half(d: int, p: int) -> tuple[int, int, int, int]:
    extra = 3 if p % 2 == 0 else 0  # else blocks of two micro-batches meet
    return 2 * d, 3 * p - d - 2, 3 * p + extra + 2 * d - 1, 6 * p + extra - d - 2


def _min(d: int, p: int) -> tuple[int, int, int, int]:
    extra = 2 if p % 3 == 0 else 0
    return d, 2 * p - d - 1, 2 * p + extra + d, 4 * p + extra - d - 1


def _from_building_block(
    placement: Placement, num_micro_batches: int, schedule: str, building_block: _BuildingBlock
) -> Schedule:
    stages = wave_stages(placement, schedule, split=True)
    num_devices = len(stages) // 2
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for d in range(num_devices):
        ticks = building_block(d, num_devices)
        orders[stages[d].device] = _repeated(stages[d], stages[-1 - d], ticks, num_micro_batches)
    repeated = as_soon_as_possible(placement, num_micro_batches, orders)
    limits = [int(units) for units in peak_memory(repeated)]
    return as_soon_as_possible(placement, num_micro_batches, _closed_up(placement, orders, limits))


def _repeated(
    near: Stage, far: Stage, ticks: tuple[int, int, int, int], num_micro_batches: int
) -> list[Instance]:
    """Return the order of one device: the building block again and again, weight halves in the first gap."""
    names = near.forward, far.forward, far.backward, near.backward
    weights = {stage.backward: stage.weight for stage in (near, far) if stage.weight is not None}
    at: dict[int, Instance] = {}
    for n in range(num_micro_batches):
        for tick, name in zip(ticks, names, strict=True):
            assert tick + _INTERVAL * n not in at, "two blocks of the pattern meet"
            at[tick + _INTERVAL * n] = name, n
    for tick in sorted(at):
        name, n = at[tick]
        if name in weights:
            while tick in at:
                tick += 1
            at[tick] = weights[name], n
    return [at[tick] for tick in sorted(at)]


def _closed_up(placement: Placement, orders: list[list[Instance]], limits: list[int]) -> list[list[Instance]]:
    """Return orders with less idle time at both ends, in which no device holds more than its limit.

    In every tick each device runs the first block of its order that can run, and that may pass those before
    it without raising the peak. Once a device has no forward block left, weight halves wait for input halves.
    """
    waiting = [list(order) for order in orders]
    left = [Counter(name for name, _ in order) for order in orders]
    closed_up: list[list[Instance]] = [[] for _ in orders]
    held = [0] * len(orders)
    done: set[Instance] = set()
    while any(waiting):
        chosen = [
            _choose(placement, d, waiting[d], left[d], done, limits[d] - held[d]) for d in range(len(orders))
        ]
        for d, index in enumerate(chosen):
            if index is not None:
                name, n = waiting[d].pop(index)
                held[d] += placement.by_name[name].memory_on(d)
                left[d] -= Counter([name])
                closed_up[d].append((name, n))
                done.add((name, n))
    return closed_up


def _choose(
    placement: Placement,
    device: int,
    order: list[Instance],
    left: Mapping[str, int],
    done: set[Instance],
    room: int,
) -> int | None:
    """Return the index of the block that a device runs next; None where it waits.

    Args:
        placement: What runs where.
        device: Which one.
        order: What the device has yet to run.
        left: How often each block of it.
        done: What has ended on all devices.
        room: Units that the device may still take.
    """
    is_cooldown = all(placement.by_name[name].kind is not Kind.F for name in left)
    weight: int | None = None
    seen: set[str] = set()
    taken = most_taken = 0
    for i, (name, n) in enumerate(order):
        block = placement.by_name[name]
        can_run = name not in seen and all((before, n) in done for before in block.after)
        if can_run and (i == 0 or most_taken + max(block.memory_on(device), 0) <= room):
            if not (is_cooldown and block.kind is Kind.W):
                return i
            weight = i if weight is None else weight
        seen.add(name)
        if len(seen) == len(left):
            break
        taken += block.memory_on(device)
        most_taken = max(most_taken, taken)
    return weight
