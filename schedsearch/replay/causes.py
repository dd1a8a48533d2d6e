"""The time of an iteration by cause: its ideal, and the time that each cause adds.

An iteration is simulated with each set of causes removed. A block's time is a product: the mean over all
stages, times the stage's share, the device's speed beside the same stage of other replicas, the micro-batch's
length, and jitter; a factor of 1 removes a cause. Its start is the later of the end before it on its device
and the arrival of its input, plus what it waited beyond. With nothing removed this gives the measured time.

What a cause adds is its Shapley value: the mean of its gain over all orders in which causes can be removed.
With all of them removed, all stages are alike and nothing is late: what that takes beyond the load of a
device is the bubble of the order. So parts add up to the measured time exactly, and none counts twice. Knows
no search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
from numpy.typing import NDArray

from schedsearch.replay.job import Job, ReplicaIteration, chain_inputs
from schedsearch.replay.pipeline import JobPipeline, medians_of_delays, stage_shares, waits_of

BUBBLE = "bubble of the order"
CAUSES = {
    "imbalance": "imbalance of stages",
    "device": "slow devices",
    "micro-batch": "unequal micro-batches",
    "jitter": "jitter of blocks",
    "message": "messages",
    "late": "late receives",
    "gap": "gaps between blocks",
}
"""Causes within the pipeline but the bubble, by the names that the code uses."""

AROUND = {"data": "data", "collective": "collectives", "message": "other messages", "optimizer": "optimizer"}
"""Causes before the first and after the last block, by the kinds of operations."""

_BIT = {cause: 1 << number for number, cause in enumerate(CAUSES)}
_SUBSETS = np.arange(1 << len(CAUSES))
"""All sets of causes, as sums of their bits."""


@dataclass(frozen=True)
class CauseRow:
    """The part of an iteration that a cause adds, a mean over iterations.

    Attributes:
        job: Name of the job.
        cause: The cause; or `ideal` and `not labelled`, the other parts; or `iteration`, the sum.
        time_ms: Its part of the iteration.
        alone_ms: Time by which the iteration is shorter if this cause alone is removed; None for other parts.
    """

    job: str
    cause: str
    time_ms: float
    alone_ms: float | None


def causes_of(job: Job, pipeline: JobPipeline) -> list[CauseRow]:
    """Return the parts of a job's iteration, means over its iterations, and at last the iteration itself."""
    parts: dict[str, list[float]] = {}
    alone: dict[str, list[float]] = {}
    usual_ms = medians_of_delays(job).message_ms
    for step in job.steps.values():
        runs = [_simulated(job, pipeline, usual_ms, replica, run) for replica, run in enumerate(step)]
        values, load = np.max([time for time, _ in runs], axis=0), np.max([load for _, load in runs], axis=0)
        removed, gains = _shapley(values)
        slowest = max(step, key=lambda run: run.whole_ms)
        around = {AROUND[kind]: slowest.around_ms.get(kind, 0.0) for kind in AROUND}
        ideal = float(load[-1])
        removed[BUBBLE], gains[BUBBLE] = float(values[-1]) - ideal, float(values[0] - load[0])
        rest = slowest.whole_ms - float(values[0]) - sum(around.values())
        causes = {"ideal": ideal} | removed | around | {"not labelled": rest, "iteration": slowest.whole_ms}
        for name, ms in causes.items():
            parts.setdefault(name, []).append(ms)
        for name, ms in {**gains, **around}.items():
            alone.setdefault(name, []).append(ms)
    return [
        CauseRow(job.name, name, round(fmean(ms), 6), round(fmean(alone[name]), 6) if name in alone else None)
        for name, ms in parts.items()
    ]


def _simulated(
    job: Job, pipeline: JobPipeline, usual_ms: Mapping[str, float], replica: int, run: ReplicaIteration
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a replica's time and its busiest device's load with each set of causes removed, in ms."""
    kept = {cause: (_SUBSETS & bit) == 0 for cause, bit in _BIT.items()}
    inputs = chain_inputs(job.device)
    stage = stage_shares(pipeline.time_ms)
    length = _lengths(pipeline, replica, run)
    end: dict[tuple[str, int], NDArray[np.float64]] = {}
    load = np.zeros((job.num_devices, len(_SUBSETS)))
    idle: dict[int, NDArray[np.float64]] = {}
    origin = min(block.start_ms for block in run.blocks.values())
    for wait in waits_of(job, run):
        (name, number), device = wait.instance, job.device[wait.instance[0]]
        expected = pipeline.time_ms[name] / stage[name]
        time_ms = np.full(len(_SUBSETS), expected)
        for cause, factor in (
            ("imbalance", stage[name]),
            ("device", pipeline.speeds[replica][name]),
            ("micro-batch", length[number]),
        ):
            time_ms *= np.where(kept[cause], factor, 1.0)
            expected *= factor
        time_ms *= np.where(kept["jitter"], run.blocks[wait.instance].time_ms / expected, 1.0)
        is_late = wait.sent_ms > wait.idle_ms
        message_ms = usual_ms.get(name, 0.0)
        due = max(wait.idle_ms, wait.sent_ms + message_ms)
        start = idle.get(device, np.zeros(len(_SUBSETS)))
        if math.isfinite(wait.sent_ms):
            arrives = end[inputs[name], number] + np.where(kept["message"], message_ms, 0.0)
            start = np.maximum(start, arrives) if device in idle else arrives
        beyond = wait.start_ms - (due if math.isfinite(due) else origin)
        start = start + np.where(kept["late" if is_late else "gap"], beyond, 0.0)
        end[wait.instance] = idle[device] = start + time_ms
        load[device] += time_ms + (0.0 if is_late else np.where(kept["gap"], beyond, 0.0))
    return np.max(list(end.values()), axis=0), load.max(axis=0)


def _lengths(pipeline: JobPipeline, replica: int, run: ReplicaIteration) -> dict[int, float]:
    """Return the time of each micro-batch as a multiple of the usual, as far as its blocks agree on it.

    The mean over a micro-batch's blocks also has a share of their jitter. It is shrunk towards 1 by the share
    of the variance of these means that jitter explains (James and Stein).
    """
    ratios: dict[int, list[float]] = {}
    for (name, number), block in run.blocks.items():
        usual = pipeline.time_ms[name] * pipeline.speeds[replica][name]
        ratios.setdefault(number, []).append(block.time_ms / usual)
    means = {number: fmean(samples) for number, samples in ratios.items()}
    if len(means) < 3:
        return means
    by_chance = fmean(variance(samples) / len(samples) for samples in ratios.values())
    between = variance(means.values())
    certain = max(0.0, 1 - by_chance / between) if between else 0.0
    middle = fmean(means.values())
    return {number: middle + certain * (mean - middle) for number, mean in means.items()}


def _shapley(values: NDArray[np.float64]) -> tuple[dict[str, float], dict[str, float]]:
    """Return by cause its Shapley value, and its gain if it alone is removed; `values` by the sum of bits."""
    number = len(CAUSES)
    subsets = np.arange(len(values))
    sizes = np.array([int(subset).bit_count() for subset in subsets])
    weights = np.array(
        [1 / (number * math.comb(number - 1, size)) if size < number else 0.0 for size in sizes]
    )
    shares, alone = {}, {}
    for cause, bit in _BIT.items():
        without = subsets[(subsets & bit) == 0]
        shares[CAUSES[cause]] = float(np.sum(weights[without] * (values[without] - values[without | bit])))
        alone[CAUSES[cause]] = float(values[0] - values[bit])
    return shares, alone
