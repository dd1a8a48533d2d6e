"""V-Half, V-Min and 1F1B-V: waves whose activation memory follows from one building block.

A building block is when one micro-batch's blocks run on each device; repeated every six ticks without
collision it is a schedule, and the longer its activations live, the more it holds ("Pipeline Parallelism
with Controllable Memory"). Blocks count as one tick long, whole backward blocks as two; with other times the
order is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from placements import Kind
from schedsearch.baselines.structure import WAVE, Given, Orders, by_hand, in_orders, in_slots
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Instance

_INTERVAL = 6
"""Ticks from one micro-batch to the next: a device's work for one, two chunks of F, I and W."""

_Ticks = tuple[int, int, int, int]
"""Starts of a device's forwards of chunks 0 and 1, and of its backwards (or input halves) of 1 and 0."""


@by_hand("V-Half", WAVE, split=True)
def v_half(given: Given, num_micro_batches: int) -> Orders:
    """Return V-Half: about half the activations of 1F1B, and little idle time at either end."""
    return _closed_up(given, _repeated(given, num_micro_batches, _half), num_micro_batches)


@by_hand("V-Min", WAVE, split=True)
def v_min(given: Given, num_micro_batches: int) -> Orders:
    """Return V-Min: about a third of the activations of 1F1B, and no idle time in the steady state."""
    return _closed_up(given, _repeated(given, num_micro_batches, _min), num_micro_batches)


@by_hand("1F1B-V", WAVE)
def one_f_one_b_v(given: Given, num_micro_batches: int) -> Orders:
    """Return 1F1B-V: two thirds to three quarters of the activations of 1F1B, with whole backward blocks.

    As in the authors' released code, gaps that the repeated building block leaves at the begin are filled by
    later blocks, such that no device holds more than one held before.
    """
    return in_slots(given.placement, _moved_up(given, _repeated(given, num_micro_batches, _whole)))


def _half(d: int, p: int) -> _Ticks:
    extra = 3 if p % 2 == 0 else 0  # else blocks of two micro-batches meet
    return 2 * d, 3 * p - d - 2, 3 * p + extra + 2 * d - 1, 6 * p + extra - d - 2


def _min(d: int, p: int) -> _Ticks:
    extra = 2 if p % 3 == 0 else 0
    return d, 2 * p - d - 1, 2 * p + extra + d, 4 * p + extra - d - 1


def _whole(d: int, p: int) -> _Ticks:
    """Return a device's ticks in the building block with whole backward blocks.

    Forward blocks run without a pause, down the devices and up again. Backward blocks, of two ticks each,
    follow likewise, but pause for three ticks wherever they would meet blocks of another micro-batch.
    """

    def backward(i: int) -> int:
        pauses = sum((j - p) % 3 == 1 for j in range(i))
        return 2 * p + (3 if p % 3 == 0 else 0) + 2 * i + 3 * pauses

    return d, 2 * p - 1 - d, backward(d), backward(2 * p - 1 - d)


def _repeated(
    given: Given, num_micro_batches: int, building_block: Callable[[int, int], _Ticks]
) -> dict[Instance, int]:
    """Return the tick of each block: the building block again and again, weight halves in the first gap."""
    tick_of: dict[Instance, int] = {}
    for d, (near, far) in enumerate(given.by_device.values()):
        ticks = building_block(d, len(given.by_device))
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
        tick_of |= {instance: tick for tick, instance in at.items()}
    return tick_of


def _moved_up(given: Given, tick_of: Mapping[Instance, int]) -> Mapping[Instance, int]:
    """Return the ticks of whole blocks moved into gaps.

    One after the other in the order of their ticks, each block moves to the first gap after what it waits
    for. A forward block does not pass a tick at which its device holds as much as any ever did before.
    """
    blocks, new_tick_of = given.placement.by_name, dict(tick_of)
    device_of = {name: block.devices[0] for name, block in blocks.items()}
    length = {name: 1 if block.kind is Kind.F else 2 for name, block in blocks.items()}
    num_devices, end = given.placement.num_devices, max(tick_of.values(), default=0) + 3
    held, is_taken = np.zeros((num_devices, end), int), [bytearray(end) for _ in range(num_devices)]

    def put(name: str, tick: int, number: int = 1) -> None:
        device, ticks = device_of[name], length[name]
        is_taken[device][tick : tick + ticks] = bytes([number > 0]) * ticks
        held[device, tick + ticks - 1 :] += number if ticks == 1 else -number

    for (name, _), tick in tick_of.items():
        put(name, tick)
    most = held.max()
    for (name, n), tick in sorted(tick_of.items(), key=lambda item: (item[1], device_of[item[0][0]])):
        device, ticks = device_of[name], length[name]
        waits = [new_tick_of[earlier, n] + length[earlier] for earlier in blocks[name].after]
        first = max([*waits, new_tick_of[name, n - 1] + ticks if n else 0])
        if ticks == 1:
            first += 1 + max(np.flatnonzero(held[device, first:tick] >= most).tolist(), default=-1)
        if (gap := is_taken[device].find(bytes(ticks), first, tick + ticks - 1)) >= 0:
            put(name, tick, -1)
            put(name, gap)
            new_tick_of[name, n] = gap
    return new_tick_of


def _closed_up(given: Given, tick_of: Mapping[Instance, int], num_micro_batches: int) -> Orders:
    """Return orders by ticks with less idle time at both ends, in which no device holds more.

    In every tick each device runs the first block of its order that can run, and that may pass those before
    it without raising the peak. Once a device has no forward block left, weight halves wait for input halves.
    """
    orders = in_slots(given.placement, tick_of)
    room = peak_memory(in_orders(given.placement, num_micro_batches, orders)).tolist()
    waiting = {device: list(order) for device, order in orders.items()}
    left = {device: Counter(name for name, _ in order) for device, order in orders.items()}
    closed_up: dict[int, list[Instance]] = {device: [] for device in orders}
    done: set[Instance] = set()
    while any(waiting.values()):
        chosen = {d: _next(given, d, order, left[d], done, room[d]) for d, order in waiting.items()}
        for device, place in chosen.items():
            if place is not None:
                name, n = waiting[device].pop(place)
                left[device] -= Counter([name])
                room[device] -= given.placement.by_name[name].memory_on(device)
                closed_up[device].append((name, n))
                done.add((name, n))
    return closed_up


def _next(
    given: Given, device: int, order: list[Instance], left: Counter[str], done: set[Instance], room: int
) -> int | None:
    """Return the position of a device's next block among its remaining blocks; None if the device waits."""
    by_name = given.placement.by_name
    is_cooldown = all(by_name[name].kind is not Kind.F for name in left)
    weight: int | None = None
    seen: set[str] = set()
    taken = max_taken = 0
    for i, (name, n) in enumerate(order):
        block = by_name[name]
        can_run = name not in seen and all((before, n) in done for before in block.after)
        if can_run and (i == 0 or max_taken + max(block.memory_on(device), 0) <= room):
            if not (is_cooldown and block.kind is Kind.W):
                return i
            weight = i if weight is None else weight
        seen.add(name)
        if len(seen) == len(left):
            break
        taken += block.memory_on(device)
        max_taken = max(max_taken, taken)
    return weight
