"""A measured job as a placement: its blocks, the messages between them, and the speed of each replica.

Knows no search.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, median_low, stdev
from typing import NamedTuple

from placements import Block, Kind, Placement
from schedsearch.replay.job import Job, MeasuredBlock, ReplicaIteration, chain_inputs
from schedsearch.schedule import Instance

TICK_MS = 0.001
"""Ticks in which measured times are counted."""

_MIN_SAMPLES = 8
"""Least number of times from which a block's speed or delay is estimated; with fewer, it may be chance."""

_CERTAIN = 3.0
"""Standard errors from which on a replica counts as faster or slower in a block than the others."""


Orders = Sequence[Sequence[Instance]]
"""The order of blocks on each device."""


class Wait(NamedTuple):
    """The wait of a device before a block.

    Attributes:
        instance: The block.
        idle_ms: When the device's block before ended; minus infinity for its first block.
        sent_ms: When its input's block on another device ended; minus infinity if there is none.
        start_ms: When the block began.
    """

    instance: Instance
    idle_ms: float
    sent_ms: float
    start_ms: float


class Delays(NamedTuple):
    """Usual delays of blocks: a block begins at the later of its device's being free and its input's arrival.

    Attributes:
        message_ms: From the end of a block's input on another device until it is there.
        gap_ms: From the end of the block before until the device is free.
    """

    message_ms: Mapping[str, float]
    gap_ms: Mapping[str, float]

    def times(self, run: ReplicaIteration) -> dict[Instance, float]:
        """Return the measured time of each block in ms, with the gap before it."""
        return {
            instance: max(block.time_ms + self.gap_ms.get(instance[0], 0.0), TICK_MS)
            for instance, block in run.blocks.items()
        }

    def beyond_ms(self, name: str) -> float:
        """Return the part of a message's time that the gap before its block does not cover."""
        return max(0.0, self.message_ms.get(name, 0.0) - self.gap_ms.get(name, 0.0))


class JobPipeline(NamedTuple):
    """The pipeline that a job's iterations share, with the speed of each replica.

    Attributes:
        placement: Placement of one replica, with mean times; the memory is the most micro-batches that
            each device held at once.
        time_ms: Mean time of each block on a replica of the usual speed.
        delays: Usual delays of blocks.
        speeds: Time of each block on each replica, as a multiple of the usual.
        positions: Time of a block of the n-th micro-batch as a multiple of its mean, where it is not 1.
    """

    placement: Placement
    time_ms: Mapping[str, float]
    delays: Delays
    speeds: tuple[Mapping[str, float], ...]
    positions: Mapping[Instance, float]


def job_pipeline(job: Job, delays: Delays | None = None) -> JobPipeline:
    """Return a job's pipeline as a placement, with the speed of each replica.

    A block's time is its mean with the gap before it, of which a message's time is then a part. A block's
    memory is 1 from its forward to the end of its backward.

    Args:
        job: The job.
        delays: Usual delays of blocks; None for those of the trace.
    """
    inputs, held = chain_inputs(job.device), [1] * job.num_devices
    for run in job.runs:
        for device, order in enumerate(measured_orders(run, job.device)):
            now = 0
            for name, _ in order:
                now += memory_of(name, job.device)
                held[device] = max(held[device], now)
    speeds = _speeds(job)
    usual: dict[str, list[float]] = defaultdict(list)
    for step in job.steps.values():
        for speed, run in zip(speeds, step, strict=True):
            for (name, _), block in run.blocks.items():
                usual[name].append(block.time_ms / speed[name])
    time_ms = {name: fmean(usual[name]) for name in job.device}
    delays = delays or usual_delays(job)
    blocks = []
    for name, device in job.device.items():
        after = (inputs[name],) if name in inputs else ()
        time = max(1, round((time_ms[name] + delays.gap_ms.get(name, 0.0)) / TICK_MS))
        blocks.append(Block(name, Kind(name[0]), (device,), time, memory_of(name, job.device), after=after))
    beyond = {name: round(delays.beyond_ms(name) / TICK_MS) for name in delays.message_ms}
    transfer = tuple((inputs[name], name, ticks) for name, ticks in beyond.items() if ticks)
    placement = Placement(job.name, job.num_devices, tuple(blocks), TICK_MS, transfer, tuple(held))
    return JobPipeline(placement, time_ms, delays, speeds, _positions(job, time_ms))


def usual_delays(job: Job) -> Delays:
    """Return the usual delays of a job's blocks: medians, or means where these simulate the job closer.

    Medians are of messages and of gaps apart. Where delays vary more than their size, a job takes the mean of
    all of them, which is one gap for each block.
    """
    delays: dict[str, list[float]] = defaultdict(list)
    for (name, _), idle_ms, sent_ms, start_ms in (wait for run in job.runs for wait in waits_of(job, run)):
        if math.isfinite(max(idle_ms, sent_ms)):
            delays[name].append(start_ms - max(idle_ms, sent_ms))
    means = Delays({}, {name: max(0.0, fmean(ms)) for name, ms in delays.items()})
    measured_ms = sum(run.measured_ms for run in job.runs)

    def error_ms(usual: Delays) -> float:
        ends = (ends_ms(usual.times(run), usual, job, measured_orders(run, job.device)) for run in job.runs)
        return abs(sum(max(times.values()) for times in ends) - measured_ms)

    return min(medians_of_delays(job), means, key=error_ms)


def medians_of_delays(job: Job) -> Delays:
    """Return medians: of messages over blocks whose input came last, of gaps over the others.

    A block with few of them takes the median over all blocks of its kind.
    """
    messages, gaps = (defaultdict[str, list[float]](list) for _ in range(2))
    for (name, _), idle_ms, sent_ms, start_ms in (wait for run in job.runs for wait in waits_of(job, run)):
        if math.isfinite(later_ms := max(idle_ms, sent_ms)):
            delays = messages if sent_ms > idle_ms else gaps
            delays[name].append(start_ms - later_ms)
            delays[name[0]].append(start_ms - later_ms)

    def usual(delays: Mapping[str, Sequence[float]]) -> dict[str, float]:
        known = {name: ms if len(ms) >= _MIN_SAMPLES else delays[name[0]] for name, ms in delays.items()}
        return {name: max(0.0, median(ms)) for name, ms in known.items() if name in job.device}

    return Delays(usual(messages), usual(gaps))


def ends_ms(
    times: Mapping[Instance, float], delays: Delays, job: Job, orders: Orders
) -> dict[Instance, float]:
    """Return the end of each block of a replica's iteration in given orders, each as soon as possible.

    Args:
        times: Time of each block with the gap before it, in ms.
        delays: Usual delays of blocks.
        job: The job, which says what blocks wait for.
        orders: Order of each device; they keep all waits.
    """
    inputs, end = chain_inputs(job.device), dict[Instance, float]()
    idle, done = [0.0] * len(orders), [0] * len(orders)
    while len(end) < len(times):
        before = len(end)
        for device, order in enumerate(orders):
            for name, number in order[done[device] :]:
                start_ms, source = idle[device], inputs.get(name, "")
                if source:
                    if (source, number) not in end:
                        break
                    sent_ms = 0.0 if job.device[source] == device else delays.beyond_ms(name)
                    start_ms = max(start_ms, end[source, number] + sent_ms)
                idle[device] = end[name, number] = start_ms + times[name, number]
                done[device] += 1
        assert len(end) > before, "orders of a valid schedule do not wait for each other"
    return end


def order_bound_ms(times: Mapping[Instance, float], delays: Delays, job: Job) -> float:
    """Return the least time of a replica's iteration in any order: the largest of a bound for each device.

    A device computes its load after the least time to the start of one of its blocks, and before the least
    time from the end of one.
    """
    inputs, names = chain_inputs(job.device), [*job.device]
    sent = {
        name: delays.beyond_ms(name)
        for name, source in inputs.items()
        if job.device[source] != job.device[name]
    }
    head: dict[Instance, float] = {}
    tail: dict[Instance, float] = defaultdict(float)
    for number in {number for _, number in times}:
        for name in names:
            source = inputs.get(name, "")
            begin_ms = head[source, number] + times[source, number] if source else 0.0
            head[name, number] = begin_ms + sent.get(name, 0.0)
        for name in (name for name in reversed(names) if name in inputs):
            after_ms = sent.get(name, 0.0) + times[name, number] + tail[name, number]
            tail[inputs[name], number] = max(tail[inputs[name], number], after_ms)
    bound_ms = 0.0
    for device in range(job.num_devices):
        here = [instance for instance in times if job.device[instance[0]] == device]
        load_ms = sum(times[instance] for instance in here)
        ends_ms = min(head[instance] for instance in here) + min(tail[instance] for instance in here)
        bound_ms = max(bound_ms, load_ms + ends_ms)
    return bound_ms


Variant = tuple[Job, JobPipeline]
"""A job with some of its blocks changed, and its pipeline."""


def with_halves(job: Job, pipeline: JobPipeline) -> Variant | None:
    """Return a job with backwards in two halves of equal time; None if they are split, or on one device."""
    if job.num_devices == 1 or any(name[0] == "W" for name in job.device):
        return None

    def names(name: str) -> tuple[str, ...]:
        return (name,) if name[0] == "F" else (f"I{name[1:]}", f"W{name[1:]}")

    def halves(run: ReplicaIteration) -> ReplicaIteration:
        blocks = {}
        for (name, number), block in run.blocks.items():
            part_ms = block.time_ms / len(names(name))
            for place, part in enumerate(names(name)):
                blocks[part, number] = MeasuredBlock(block.start_ms + place * part_ms, part_ms)
        return run._replace(blocks=blocks)

    device = {part: number for name, number in job.device.items() for part in names(name)}
    delays = Delays(*({names(name)[0]: ms for name, ms in usual.items()} for usual in pipeline.delays))
    return _changed(job._replace(device=device), halves, delays)


def with_equal_stages(job: Job, pipeline: JobPipeline) -> Variant:
    """Return a job whose stages take equally long: each block's time is scaled to the mean of its kind."""
    share = stage_shares(pipeline.time_ms)

    def scaled(run: ReplicaIteration) -> ReplicaIteration:
        blocks = run.blocks.items()
        return run._replace(blocks={n: b._replace(time_ms=b.time_ms / share[n[0]]) for n, b in blocks})

    return _changed(job, scaled, pipeline.delays)


def _changed(job: Job, change: Callable[[ReplicaIteration], ReplicaIteration], delays: Delays) -> Variant:
    changed = job._replace(steps={number: tuple(map(change, step)) for number, step in job.steps.items()})
    return changed, job_pipeline(changed, delays)


def stage_shares(time_ms: Mapping[str, float]) -> dict[str, float]:
    """Return the time of each block as a multiple of the mean of its kind."""
    kinds = {name[0] for name in time_ms}
    mean = {kind: fmean(ms for name, ms in time_ms.items() if name[0] == kind) for kind in kinds}
    return {name: ms / mean[name[0]] for name, ms in time_ms.items()}


def memory_of(name: str, blocks: Mapping[str, object]) -> int:
    """Return the micro-batches that a block allocates: 1 in the forward, -1 where its backward ends."""
    return 1 if name[0] == "F" else 0 if f"W{name[1:]}" in blocks and name[0] != "W" else -1


def block_times(job: Job) -> dict[str, list[float]]:
    """Return all times of each block in ms, for scenarios."""
    times: dict[str, list[float]] = defaultdict(list)
    for run in job.runs:
        for (name, _), measured in run.blocks.items():
            times[name].append(round(measured.time_ms, 3))
    return times


def measured_orders(run: ReplicaIteration, device: Mapping[str, int]) -> tuple[tuple[Instance, ...], ...]:
    """Return the order in which each device ran its blocks."""
    ran = sorted(run.blocks, key=lambda i: (run.blocks[i].start_ms, run.blocks[i].end_ms))
    devices = range(1 + max(device.values()))
    return tuple(tuple(instance for instance in ran if device[instance[0]] == number) for number in devices)


def waits_of(job: Job, run: ReplicaIteration) -> list[Wait]:
    """Return the wait before each block of an iteration, by the begins of the blocks."""
    device, inputs, waits = job.device, chain_inputs(job.device), list[Wait]()
    for order in measured_orders(run, device):
        idle_ms = -math.inf
        for name, number in order:
            block, source = run.blocks[name, number], inputs.get(name, "")
            is_sent = source and device[source] != device[name]
            sent_ms = run.blocks[source, number].end_ms if is_sent else -math.inf
            waits.append(Wait((name, number), idle_ms, sent_ms, block.start_ms))
            idle_ms = block.end_ms
    return sorted(waits, key=lambda wait: wait.start_ms)


def _speeds(job: Job) -> tuple[dict[str, float], ...]:
    """Return the time of each block on each replica as a multiple of the usual: the faster half's slowest.

    It is 1 if the difference may be chance: its samples are all micro-batches.
    """
    logs: dict[tuple[int, str], list[float]] = defaultdict(list)
    replicas = range(len(next(iter(job.steps.values()))))
    for step in job.steps.values():
        for name in job.device:
            samples = [
                [math.log(max(block.time_ms, TICK_MS)) for (of, _), block in run.blocks.items() if of == name]
                for run in step
            ]
            usual = median_low([fmean(sample) for sample in samples])
            for replica in replicas:
                logs[replica, name] += [log - usual for log in samples[replica]]
    return tuple({name: _certain_factor(logs[replica, name]) for name in job.device} for replica in replicas)


def _positions(job: Job, time_ms: Mapping[str, float]) -> dict[Instance, float]:
    """Return the times of blocks of the n-th micro-batch as multiples of their mean, where surely not 1.

    What comes back at one place of each iteration is of the place, not of the data: the first micro-batch
    waits for parameters, or its kernels are loaded.
    """
    offs: dict[Instance, list[float]] = defaultdict(list)
    for run in job.runs:
        for (name, number), (_, ms) in run.blocks.items():
            offs[name, number].append(math.log(max(ms, TICK_MS) / max(time_ms[name], TICK_MS)))
    factors = {instance: _certain_factor(logs) for instance, logs in offs.items()}
    return {instance: factor for instance, factor in factors.items() if factor != 1.0}


def _certain_factor(logs: Sequence[float]) -> float:
    """Return the factor whose logarithm is the mean of some; 1 if the difference from 1 may be chance."""
    if len(logs) < _MIN_SAMPLES:
        return 1.0
    off = fmean(logs)
    return math.exp(off) if abs(off) > _CERTAIN * stdev(logs) / math.sqrt(len(logs)) else 1.0
