"""Strategies: how the GPUs of a stage share one layer. It does not know what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

METHODS = ("galvatron", "dp+tp", "dp+pp")
"""The rows of the paper's tables that are reproduced: all strategies, or two kinds of parallelism."""


@dataclass(frozen=True)
class GalvatronStrategy:
    """How all GPUs share the layers: stages, and within a stage tensor and data parallelism.

    Attributes:
        num_stages: Pipeline stages, P.
        tensor_parallel: GPUs that share a layer's weights, t.
        data_parallel: Groups of such GPUs that share the samples, d.
        sharded: The groups share parameters, gradients and optimizer states too (ZeRO-3, SDP in the paper).
        tensor_consecutive: Whether GPUs with consecutive ranks are the tensor-parallel ones, and not the
            data-parallel ones; None where there are not both kinds.
    """

    num_stages: int
    tensor_parallel: int
    data_parallel: int
    sharded: bool = False
    tensor_consecutive: bool | None = None

    @property
    def degrees(self) -> tuple[int, int, int]:
        """P, t and d."""
        return self.num_stages, self.tensor_parallel, self.data_parallel


def all_strategies(num_gpus: int) -> tuple[GalvatronStrategy, ...]:
    """Return the leaves of the decision trees (Galvatron-BMW, Sec. III-B) in the original's order.

    Args:
        num_gpus: Number of GPUs of all stages together, a power of two.

    >>> [len(all_strategies(num_gpus)) for num_gpus in (8, 16)]
    [22, 37]
    """
    return tuple(
        strategy
        for num_stages in _powers_of_two(num_gpus)
        for tensor in _powers_of_two(num_gpus // num_stages)
        for strategy in _sharings(num_stages, tensor, num_gpus // num_stages // tensor)
    )


def of_method(strategies: tuple[GalvatronStrategy, ...], method: str) -> tuple[GalvatronStrategy, ...]:
    """Return those of a row of the tables, in the same order.

    Args:
        strategies: All of them.
        method: One of `METHODS`.
    """
    if method == "dp+tp":
        return tuple(each for each in strategies if each.num_stages == 1 and not each.sharded)
    if method == "dp+pp":
        return tuple(each for each in strategies if each.tensor_parallel == 1 and not each.sharded)
    return strategies


def _powers_of_two(most: int) -> Iterator[int]:
    power = 1
    while power <= most:
        yield power
        power *= 2


def _sharings(num_stages: int, tensor: int, data: int) -> Iterator[GalvatronStrategy]:
    for sharded in (False, True) if data > 1 else (False,):
        for consecutive in (False, True) if tensor > 1 and data > 1 else (None,):
            yield GalvatronStrategy(num_stages, tensor, data, sharded, consecutive)
