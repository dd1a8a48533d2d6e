"""Figures of a schedule: bubble rate, memory, latency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placements.spec import Kind
from schedsearch.schedule import Instance, Schedule, earliest_starts, waits_in_order


def bubble_rate(schedule: Schedule) -> float:
    """Return the idle share of makespan times devices, warmup and cooldown included.

    Tessel's Table II gives the share of the repetend alone; see `schedsearch.repetend.Repetend`.
    """
    placement = schedule.placement
    busy = sum(
        placement.by_name[name].time * len(placement.by_name[name].devices) for _, _, name in schedule.blocks
    )
    return 1 - busy / (placement.num_devices * schedule.makespan)


def memory_over_time(schedule: Schedule, device: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when a device's memory changes, and what it holds from then on, static memory included.

    Memory is allocated and released at a block's start (Tessel, Sec. III-A, Eq. 1, constraint 2). What blocks
    need only while they run is not in it, but is in `peak_memory`.

    Returns:
        Ticks, ascending, and units of `Block.memory`; both of shape ``(num_blocks_on_device,)``.
    """
    placement = schedule.placement
    order = schedule.order(device)
    starts = np.array([schedule.start_of[instance] for instance in order], dtype=np.int64)
    held = np.cumsum([placement.by_name[name].memory_on(device) for name, _ in order], dtype=np.int64)
    return starts, held + placement.static[device]


def peak_memory(schedule: Schedule) -> NDArray[np.int64]:
    """Return the most memory each device holds at any one time.

    A device runs one block at a time, so only the order of its blocks matters: memory released at a
    block's start, as in Tessel (Sec. III-A, Eq. 1, constraint 2), or at its end, makes the same peak.

    Args:
        schedule: A valid schedule; see `validate`.

    Returns:
        Units of `Block.memory`; shape ``(num_devices,)``.
    """
    placement = schedule.placement
    peaks = []
    for device in range(placement.num_devices):
        transient = [placement.by_name[name].transient for name, _ in schedule.order(device)]
        held = memory_over_time(schedule, device)[1] + np.array(transient, dtype=np.int64)
        peaks.append(max(held, default=placement.static[device]))
    return np.array(peaks, dtype=np.int64)


def in_flight(schedule: Schedule) -> NDArray[np.int64]:
    """Return how many micro-batches each device has begun and not ended at most; shape ``(num_devices,)``."""
    most = np.zeros(schedule.placement.num_devices, dtype=np.int64)
    for device in range(len(most)):
        order = schedule.order(device)
        own = [number for name, number in order if schedule.placement.by_name[name].kind is not Kind.O]
        last = {number: place for place, number in enumerate(own)}
        held: set[int] = set()
        for place, number in enumerate(own):
            held.add(number)
            most[device] = max(most[device], len(held))
            held -= {number} if last[number] == place else set()
    return most


def latency(schedule: Schedule) -> NDArray[np.int64]:
    """Return the ticks from first start to last end of each micro-batch; shape ``(num_micro_batches,)``."""
    by_name = schedule.placement.by_name
    first = np.full(schedule.num_micro_batches, np.iinfo(np.int64).max, dtype=np.int64)
    last = np.zeros(schedule.num_micro_batches, dtype=np.int64)
    for start, micro_batch, name in schedule.per_micro_batch.blocks:
        first[micro_batch] = min(first[micro_batch], start)
        last[micro_batch] = max(last[micro_batch], start + by_name[name].time)
    return np.subtract(last, first)


def steady_period(schedule: Schedule) -> float | None:
    """Return the ticks per micro-batch after which the middle of a schedule repeats; None where it does not.

    Every block then starts so much later for a micro-batch than for the one before, or for one that is up to
    half of all before, and so it is twice in a row.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import gpipe, one_f_one_b
    >>> steady_period(one_f_one_b(v_shape(4), 16)), steady_period(gpipe(v_shape(4), 16))
    (4.0, None)
    """
    starts, number = schedule.start_of, schedule.num_micro_batches
    names = [block.name for block in schedule.placement.per_micro_batch.blocks]
    for several in range(1, number // 2 + 1):
        first = (number - several) // 2
        firsts = range(max(first - 1, 0), min(first + 1, number - several))
        steps = {starts[name, n + several] - starts[name, n] for name in names for n in firsts}
        if len(steps) == 1 and len(firsts) == 2:
            return steps.pop() / several
    return None


def total_slack(schedule: Schedule) -> int:
    """Return the ticks by which blocks could start later, last ones first, summed over blocks and devices.

    Later than they do, but in the same order on every device and with the same makespan: what lower clocks
    can use (Perseus, Sec. 2.2).
    """
    placement = schedule.placement
    time = {block.name: block.time for block in placement.blocks}
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    waits = waits_in_order(placement, schedule.num_micro_batches, orders)
    backwards: dict[Instance, list[tuple[Instance, int]]] = {instance: [] for instance in waits}
    for later, before in waits.items():
        for earlier, ticks in before:
            backwards[earlier].append((later, ticks - time[earlier[0]] + time[later[0]]))
    rest = earliest_starts(backwards)
    return sum(
        (schedule.makespan - rest[name, n] - time[name] - start) * len(placement.by_name[name].devices)
        for start, n, name in schedule.blocks
    )
