"""Memory of parameters, gradients and the optimizer's states on each GPU that shares them by ZeRO.

The module does not know what a layer takes.
"""

from __future__ import annotations

from typing import NamedTuple

from placements.block import PlacementError
from placements.models.parallel import LayerStrategy


class SharedStates(NamedTuple):
    """Bytes of a layer's parameters on one GPU that shares them with nobody.

    Attributes:
        weights: Weights that products read.
        gradients: Gradients of these weights, in all copies.
        optimizer: All else: moments, and master weights where there are some.
    """

    weights: float
    gradients: float
    optimizer: float

    def on_each(self, strategy: LayerStrategy, num_micro_batches: int) -> float:
        """Return what each data-parallel GPU holds.

        Of gradients that ZeRO-2 shares all are there while several micro-batches add to them, as in
        `placements.models.costing`.
        """
        shared = {
            0: 0.0,
            1: self.optimizer,
            2: self.optimizer + (self.gradients if num_micro_batches == 1 else 0.0),
            3: sum(self),
        }[strategy.zero]
        return sum(self) - shared + shared / strategy.data_parallel


def samples_of_each(strategy: LayerStrategy, samples: int, num_gpus: int) -> int:
    """Return the samples of one data-parallel group.

    Raises:
        PlacementError: The strategy does not divide samples and GPUs, or is of a kind that profiles lack.
    """
    if strategy.num_gpus != num_gpus:
        raise PlacementError(
            f"strategy: is of {strategy.num_gpus} GPUs, and not of the {num_gpus} of the group; use as many"
        )
    for name, value, remedy in (
        ("sequence", strategy.sequence == "ulysses", "use tp"),
        ("context_parallel", strategy.context_parallel > 1, "use 1"),
        ("expert_parallel", strategy.expert_parallel > 1, "use 1"),
        ("recompute", strategy.recompute == "selective", "use none or full"),
    ):
        if value:
            raise PlacementError(f"{name}: {getattr(strategy, name)} is not in measured profiles; {remedy}")
    if samples % strategy.data_parallel:
        raise PlacementError(
            f"data_parallel: {strategy.data_parallel} does not divide the {samples} samples of a "
            "micro-batch; use a divisor"
        )
    return samples // strategy.data_parallel


def is_laid_out_alike(before: LayerStrategy, after: LayerStrategy) -> bool:
    """Return whether the boundary between two layers lies the same way on the GPUs of a stage."""
    return _layout(before) == _layout(after)


def _layout(strategy: LayerStrategy) -> tuple[int, bool]:
    """Return what decides which GPU has what of a boundary; order only where there are two levels."""
    levels = strategy.tensor_parallel, strategy.data_parallel
    return strategy.data_parallel, strategy.tensor_innermost or 1 in levels
