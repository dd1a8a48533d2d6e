"""Into how many micro-batches a batch is cut: rules that the original has for each model, set by hand."""

from __future__ import annotations

import math

from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy


def num_micro_batches(family: str, num_gpus: int, strategy: GalvatronStrategy, samples: float) -> float:
    """Return the number that the cost model counts with, which may have a fraction on 8 GPUs.

    Args:
        family: Family of the model.
        num_gpus: 8 or 16.
        strategy: Strategy of a layer.
        samples: Samples of a data-parallel group.
    """
    if num_gpus == 8 and family == "bert" and strategy.degrees in ((2, 4, 1), (4, 2, 1)):
        return samples / 4
    return _without_exceptions(family, num_gpus, strategy, samples)


def written_micro_batches(family: str, num_gpus: int, strategy: GalvatronStrategy, samples: int) -> int:
    """Return the number that stands in the plan.

    Defect: the exception for BERT compares lists of different lengths here, and never holds.
    """
    return int(_without_exceptions(family, num_gpus, strategy, samples))


def _without_exceptions(family: str, num_gpus: int, strategy: GalvatronStrategy, samples: float) -> float:
    if num_gpus == 16:
        largest = 4 if family in ("bert", "t5") else 32 if strategy.num_stages == 16 else 16
        return max(1, math.ceil(samples // strategy.tensor_parallel / largest))
    if family == "bert":
        if strategy.num_stages == 1:
            return 1
        return samples / 2 if samples < 6 else samples / 8 + 2
    if family == "vit":
        return 1 if samples == 8 else 2
    if family == "t5":
        return 1 if samples == 2 else 3 if strategy.num_stages == 8 else 2
    return 1 if samples <= 8 else 2 if samples < 32 else 3 if samples <= 96 else 4
