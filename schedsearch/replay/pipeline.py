"""A measured job as a placement: its blocks, the messages between them, and the speed of each replica.

Knows no search.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import NamedTuple

from placements import Block, Kind, Placement
from schedsearch.replay.trace import TICK_MS, JobTrace, ReplicaIteration
from schedsearch.schedule import Instance

_MIN_STEPS = 8
"""Least number of iterations from which a replica's speed is estimated; with fewer, it may be chance."""

_CERTAIN = 3.0
"""Standard errors from which on a replica counts as faster or slower in a block than the others."""


class JobPipeline(NamedTuple):
    """The pipeline that a trace's iterations share, with the speed of each replica.

    Attributes:
        placement: Of one replica, with the micro-batches that each device held at once as its memory.
        speeds: Time of each block on each replica, as a multiple of its time over all replicas.
    """

    placement: Placement
    speeds: tuple[Mapping[str, float], ...]


def job_pipeline(trace: JobTrace) -> JobPipeline:
    """Return a job's pipeline as a placement, with the speed of each replica.

    A message takes the median time that blocks waited for it, over blocks whose device was idle already. A
    block's memory is 1 from its forward to its backward.
    """
    stages, chain = trace.num_stages, range(trace.num_stages * trace.num_chunks)
    places = {f"F{n}": n % stages for n in chain} | {f"B{n}": n % stages for n in reversed(chain)}
    before = dict(pairwise([*places][::-1]))
    waits: dict[str, list[float]] = defaultdict(list)
    held = [1] * stages
    for run in (run for step in trace.steps.values() for run in step):
        for place, order in enumerate(orders_of(run, places, stages)):
            idle_from, now = -math.inf, 0
            for name, number in order:
                own = run.blocks[name, number]
                if name in before and places[before[name]] != place:
                    sent = run.blocks[before[name], number].end_ms
                    if sent > idle_from:
                        waits[name].append(max(0.0, own.start_ms - sent))
                idle_from = own.end_ms
                now += 1 if name.startswith("F") else -1
                held[place] = max(held[place], now)
    blocks = []
    for name, place in places.items():
        memory, inputs = 1 if name.startswith("F") else -1, (before[name],) if name in before else ()
        blocks.append(Block(name, Kind(name[0]), (place,), 1, memory, after=inputs))
    delays = {name: round(median(each) / TICK_MS) for name, each in waits.items()}
    transfer = tuple((before[name], name, ticks) for name, ticks in delays.items() if ticks)
    placement = Placement("measured job", stages, tuple(blocks), TICK_MS, transfer, tuple(held))
    replicas = range(len(next(iter(trace.steps.values()))))
    speeds = tuple({name: _speed(trace, replica, name) for name in places} for replica in replicas)
    return JobPipeline(placement, speeds)


def measured_placement(trace: JobTrace) -> tuple[Placement, dict[str, list[float]]]:
    """Return the placement with median times, and all times of each block in ms, for scenarios."""
    times: dict[str, list[float]] = defaultdict(list)
    for run in (run for step in trace.steps.values() for run in step):
        for (name, _), measured in run.blocks.items():
            times[name].append(round(measured.time_ms, 3))
    placement = job_pipeline(trace).placement
    blocks = (replace(b, time=max(1, round(median(times[b.name]) / TICK_MS))) for b in placement.blocks)
    return replace(placement, name=trace.job, blocks=tuple(blocks)), times


def orders_of(run: ReplicaIteration, device: Mapping[str, int], stages: int) -> list[list[Instance]]:
    """Return the order in which each device ran its blocks."""
    orders: list[list[Instance]] = [[] for _ in range(stages)]
    for each in sorted(run.blocks, key=lambda each: (run.blocks[each].start_ms, run.blocks[each].end_ms)):
        orders[device[each[0]]].append(each)
    return orders


def _speed(trace: JobTrace, replica: int, name: str) -> float:
    """Return a replica's time of a block relative to all replicas; 1 if the difference may be chance."""
    offs = []
    for step in trace.steps.values():
        means = [
            fmean(math.log(max(time, TICK_MS)) for (own, _), (_, time) in run.blocks.items() if own == name)
            for run in step
        ]
        offs.append(means[replica] - fmean(means))
    if len(offs) < _MIN_STEPS:
        return 1.0
    off = fmean(offs)
    return math.exp(off) if abs(off) > _CERTAIN * stdev(offs) / math.sqrt(len(offs)) else 1.0
