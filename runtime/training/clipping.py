"""Gradients clipped by their global norm: over all parameters of the model, each counted once.

The norm is the root of a sum of squares in float64, one square per parameter, added in the order of the
model's parameters: forward blocks in topological order, a block's parameters in its own. A parameter that is
cut has the sum over its shards in order. So a run has the norm of the model in one piece, bit for bit where
no block is cut and the gradients have the same bits. Not exact, each square is of the norm in the gradient's
own type, which a CPU computes 27 times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.model import Model

EPSILON = 1e-6
"""Added to the norm by which gradients are divided, as PyTorch's `clip_grad_norm_` does."""

Squares = Mapping[str, Sequence[tuple[str, int, float]]]
"""For forward blocks, in the block's order: a parameter's name, its shard, and the sum of its squares."""


def squares(model: Model, *, exact: bool = True) -> dict[str, list[tuple[str, int, float]]]:
    """Return the squares of a device's gradients, by its forward blocks; shared parameters in each."""
    shards = {shard.name: shard.shard for shard in model.parameters}
    grads = {shard.name: weight.grad for shard, weight in model.parameters.items() if weight.grad is not None}
    sums = {name: _square(grad.detach().to_dense(), exact) for name, grad in grads.items()}
    values = dict(zip(sums, torch.stack(list(sums.values())).tolist(), strict=True)) if sums else {}
    return {
        block: [(name, shards[name], values[name]) for name in model.trained(block) if name in values]
        for block in model.groups
    }


def _square(gradient: Tensor, exact: bool) -> Tensor:
    if exact:
        return gradient.double().flatten().square().sum()
    norm: Tensor = torch.linalg.vector_norm(gradient)
    return norm.double().square()


def total_norm(by_device: Iterable[Squares], placement: Placement) -> float:
    """Return the norm of the gradients of some devices, each parameter's square counted once."""
    by_device = list(by_device)
    by_name: dict[str, dict[int, float]] = {}
    for block in placement.topological_order:
        if block.kind is Kind.F:
            for of_device in by_device:
                for name, shard, value in of_device.get(block.name, ()):
                    by_name.setdefault(name, {}).setdefault(shard, value)
    return math.sqrt(sum(sum(shards[shard] for shard in sorted(shards)) for shards in by_name.values()))


def scale_by_norm(weights: Iterable[Tensor], norm: float, max_norm: float) -> None:
    """Scale the gradients of some parameters down, if the norm of all is too great; not a number is, too."""
    factor = max_norm / (norm + EPSILON)
    if factor >= 1:
        return
    for weight in weights:
        if weight.grad is not None:
            weight.grad.mul_(factor)
