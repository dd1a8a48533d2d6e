"""Figures of a schedule: bubble rate, energy, memory, latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placements.block import COMPUTE
from placements.hardware import Gpu
from schedsearch.schedule import Schedule


def bubble_rate(schedule: Schedule) -> float:
    """Return the idle share of makespan times devices, warmup and cooldown included.

    Tessel's Table II gives the share of the repetend alone; see `schedsearch.repetend.Repetend`. Of devices
    with several streams it is that of `compute`.
    """
    return 1 - int(computing_ticks(schedule).sum()) / (schedule.placement.num_devices * schedule.makespan)


def computing_ticks(schedule: Schedule) -> NDArray[np.int64]:
    """Return the ticks in which each device runs blocks of the stream `compute`; shape ``(num_devices,)``."""
    ticks = [0] * schedule.placement.num_devices
    for _, number, name in schedule.blocks:
        block = schedule.block(name, number)
        for device in block.devices if block.stream == COMPUTE else ():
            ticks[device] += block.time
    return np.array(ticks, dtype=np.int64)


def modelled_energy_mj(schedule: Schedule, gpus: Sequence[Mapping[Gpu, int]], iteration_ms: float) -> float:
    """Return the energy of an iteration by the power models of its GPUs, all at their highest clocks.

    A GPU takes its computing power while a block runs on it, exchanges inside the block included, and its
    blocking power in the rest of the iteration, which may end after the schedule.

    Args:
        schedule: Valid.
        gpus: Number of GPUs of each kind, by device.
        iteration_ms: Time of the iteration.
    """
    busy_ms = map(schedule.placement.ms, computing_ticks(schedule).tolist())
    return sum(
        number * (busy * gpu.operating_points(1.0)[-1].energy_mj + waiting * gpu.blocking_power_w)
        for kinds, busy in zip(gpus, busy_ms, strict=True)
        for waiting in [max(iteration_ms - busy, 0.0)]
        for gpu, number in kinds.items()
    )


def memory_over_time(
    schedule: Schedule, device: int, *, on_host: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the memory of a device, or of its host, over time, with the static memory of a device.

    Memory is allocated and released at a block's start (Tessel, Sec. III-A, Eq. 1, constraint 2). Memory that
    blocks need only while they run is not in it, but is in `peak_memory`.

    Returns:
        Ticks, ascending, and units of `Block.memory`; both of shape ``(num_blocks_on_device,)``.
    """
    order = schedule.order(device)
    starts = np.array([schedule.start_of[instance] for instance in order], dtype=np.int64)
    blocks = [schedule.block(*instance) for instance in order]
    units = [block.host_memory if on_host else block.memory_on(device) for block in blocks]
    return starts, np.cumsum(units, dtype=np.int64) + (0 if on_host else schedule.placement.static[device])


def needed_over_time(schedule: Schedule, device: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the memory that a device needs over time, with the memory that blocks need only while they run.

    Returns:
        Ticks, ascending, each once, and units of `Block.memory`; both of shape ``(num_changes,)``.
    """
    changes: Counter[int] = Counter()
    for instance in schedule.order(device):
        block = schedule.block(*instance)
        changes[schedule.start_of[instance]] += block.memory_on(device) + block.transient
        changes[schedule.end_of[instance]] -= block.transient
    ticks = sorted(changes)
    held = np.cumsum([changes[tick] for tick in ticks], dtype=np.int64)
    return np.array(ticks, dtype=np.int64), held + schedule.placement.static[device]


def peak_memory(schedule: Schedule) -> NDArray[np.int64]:
    """Return the most memory each device of a valid schedule holds, in units of `Block.memory`.

    A device runs one block at a time, so only the order of its blocks matters: memory released at a
    block's start, as in Tessel (Sec. III-A, Eq. 1, constraint 2), or at its end, makes the same peak. The
    shape is ``(num_devices,)``.
    """
    static = schedule.placement.static
    peaks = [needed_over_time(schedule, d)[1].max(initial=units) for d, units in enumerate(static)]
    return np.array(peaks, dtype=np.int64)


def peak_host_memory(schedule: Schedule) -> NDArray[np.int64]:
    """Return the peak memory of each device's host, in the same units; shape ``(num_devices,)``."""
    devices = range(schedule.placement.num_devices)
    peaks = [memory_over_time(schedule, d, on_host=True)[1].max(initial=0) for d in devices]
    return np.array(peaks, dtype=np.int64)


def latency(schedule: Schedule) -> NDArray[np.int64]:
    """Return the ticks from first start to last end of each micro-batch; shape ``(num_micro_batches,)``."""
    first = np.full(schedule.num_micro_batches, np.iinfo(np.int64).max, dtype=np.int64)
    last = np.zeros(schedule.num_micro_batches, dtype=np.int64)
    for start, micro_batch, name in schedule.per_micro_batch.blocks:
        first[micro_batch] = min(first[micro_batch], start)
        last[micro_batch] = max(last[micro_batch], schedule.end_of[name, micro_batch])
    return np.subtract(last, first)


def steady_period(schedule: Schedule) -> float | None:
    """Return the period of a schedule's middle, in ticks per micro-batch; None if it does not repeat.

    In the middle, every block starts the same number of ticks after its start for an earlier micro-batch:
    the one before, or one up to half of all micro-batches before. This must hold twice in a row.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import gpipe, one_f_one_b
    >>> steady_period(one_f_one_b(v_shape(4), 16)), steady_period(gpipe(v_shape(4), 16))
    (4.0, None)
    """
    starts, number = schedule.start_of, schedule.num_micro_batches
    names = [block.name for block in schedule.placement.per_micro_batch.blocks]
    if len(set(schedule.chosen)) > 1:
        return None
    names = [name for name in names if (name, 0) in starts]
    for several in range(1, number // 2 + 1):
        first = (number - several) // 2
        firsts = range(max(first - 1, 0), min(first + 1, number - several))
        steps = {starts[name, n + several] - starts[name, n] for name in names for n in firsts}
        if len(steps) == 1 and len(firsts) == 2:
            return steps.pop() / several
    return None
