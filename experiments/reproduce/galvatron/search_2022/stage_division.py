"""Layers of several types divided into stages by their memory. It does not know how long layers take."""

from __future__ import annotations

import numpy as np

from experiments.reproduce.galvatron.search_2022.constants import Constants
from experiments.reproduce.galvatron.search_2022.layer_costs import layer_memory_mib, other_memory_mib
from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy


def divide(
    constants: Constants, layer_counts: tuple[int, ...], strategies: tuple[GalvatronStrategy, ...], batch: int
) -> tuple[int, ...] | None:
    """Return the number of layers of each stage; None where a stage would have none.

    From the last stage on, each takes layers from the end of the model while it is nearer to the mean
    with them; the first takes what is left. Where one would have none the original fails, or takes it for
    free; such a number of stages is left out.

    Args:
        constants: Constants of a model on 8 GPUs.
        layer_counts: Layers of each type.
        strategies: Those of the method with this number of stages; each layer counts with its least memory.
        batch: Samples of an iteration.
    """
    num_stages = strategies[0].num_stages
    least = [
        min(layer_memory_mib(constants, layer, each, batch) for each in strategies)
        for layer in constants.layer_types
    ]
    layers = np.repeat(least, layer_counts)
    (other,) = other_memory_mib(constants, GalvatronStrategy(1, 1, constants.num_gpus), batch)
    held = [other] + [0.0] * (num_stages - 1)
    mean = (layers.sum() + other) / num_stages
    counts, left = [0] * num_stages, len(layers)
    for stage in range(num_stages - 1, 0, -1):
        while left and mean - held[stage] >= 0.5 * layers[left - 1]:
            left -= 1
            held[stage] += layers[left]
            counts[stage] += 1
    counts[0] = left
    if num_stages > 1 and counts[0] == 0:
        counts[0] += 1
        counts[1] -= 1
    return tuple(counts) if min(counts) > 0 else None
