"""Drawn times of all blocks in all iterations; for one seed, equal for every schedule of a placement."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from placements.modes import Chosen
from schedsearch.schedule import Instance, micro_batches_of
from schedsearch.simulation.conditions import Conditions, Jitter


def drawn_times(
    placement: Placement,
    num_micro_batches: int,
    conditions: Conditions,
    iterations: int,
    seed: int,
    chosen: Sequence[Chosen] = (),
) -> dict[Instance, NDArray[np.float64]]:
    """Return the ticks of each block of each micro-batch in each iteration; each of shape ``(iterations,)``.

    A block's draws follow from the seed and its place in the placement, and not from a schedule or its mode.
    `chosen` has the choices of each micro-batch; it is empty where blocks run as they are written.
    """
    generator = np.random.default_rng(seed)
    times: dict[Instance, NDArray[np.float64]] = {}
    for block in placement.blocks:
        slow = max(conditions.slow_devices.get(device, 1.0) for device in block.devices)
        for micro_batch in micro_batches_of(placement, block.name, num_micro_batches):
            name, time = block.name, block.time
            if chosen and name in placement.decision_of:
                decision = placement.decision_of[name]
                time = placement.alternatives(name)[chosen[micro_batch][decision]].time
                name = placement.run_name(name, chosen[micro_batch])
            if name in conditions.measured_ms:
                repeats = np.asarray(conditions.measured_ms[name], dtype=np.float64)
                drawn = generator.choice(repeats, iterations) / placement.tick_ms
            else:
                drawn = time * _factors(conditions, iterations, generator)
            times[block.name, micro_batch] = drawn * slow
    return times


def _factors(conditions: Conditions, iterations: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return factors of mean 1."""
    if conditions.jitter == 0:
        return np.ones(iterations)
    drawn = generator.standard_normal(iterations)
    if conditions.distribution == Jitter.NORMAL:
        return np.maximum(1 + conditions.jitter * drawn, 0.0)
    variance = math.log1p(conditions.jitter**2)
    factors: NDArray[np.float64] = np.exp(math.sqrt(variance) * drawn - variance / 2)
    return factors
