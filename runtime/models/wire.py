"""Several tensors of one type as one, because a block hands over one tensor to another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of the tensors that a block hands over."""


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return a single tensor as it is, and several ones after each other, flat."""
    return tensors[0] if len(tensors) == 1 else torch.cat([tensor.flatten() for tensor in tensors])


def joined_shape(shapes: Shapes) -> tuple[int, ...]:
    """Return the shape of what `joined` returns for tensors of these shapes."""
    return shapes[0] if len(shapes) == 1 else (sum(math.prod(shape) for shape in shapes),)


def parted(value: Tensor, shapes: Shapes) -> list[Tensor]:
    """Return the tensors again that `joined` made one of.

    >>> [part.tolist() for part in parted(joined([torch.ones(1, 2), torch.zeros(3)]), ((1, 2), (3,)))]
    [[[1.0, 1.0]], [0.0, 0.0, 0.0]]
    """
    if len(shapes) == 1:
        return [value]
    parts = torch.split(value, [math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
