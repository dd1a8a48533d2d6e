"""Several tensors of one type as one, because a block hands over one tensor to another.

Where all have as many samples, which are dimension 0, so has the one: it can be cut into shares of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of the tensors that a block hands over."""


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """Return a single tensor as it is, and several ones beside each other, sample by sample, or flat."""
    if len(tensors) == 1:
        return tensors[0]
    if not have_samples(tuple(tuple(tensor.shape) for tensor in tensors)):
        return torch.cat([tensor.flatten() for tensor in tensors])
    return torch.cat([tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) for tensor in tensors], 1)


def packed_shape(shapes: Shapes) -> tuple[int, ...]:
    """Return the shape of what `packed` returns for tensors of these shapes."""
    if len(shapes) == 1:
        return shapes[0]
    if not have_samples(shapes):
        return (sum(math.prod(shape) for shape in shapes),)
    return shapes[0][0], sum(math.prod(shape[1:]) for shape in shapes)


def unpacked(value: Tensor, shapes: Shapes) -> list[Tensor]:
    """Return the tensors again that `packed` made one of.

    Args:
        value: Of all samples, or of a share of them.
        shapes: Of the tensors for all samples.

    >>> [part.tolist() for part in unpacked(packed([torch.ones(1, 2), torch.zeros(3)]), ((1, 2), (3,)))]
    [[[1.0, 1.0]], [0.0, 0.0, 0.0]]
    >>> [part.tolist() for part in unpacked(packed([torch.ones(2, 1), torch.zeros(2)])[:1], ((2, 1), (2,)))]
    [[[1.0]], [0.0]]
    """
    if len(shapes) == 1:
        return [value]
    if not have_samples(shapes):
        parts = torch.split(value, [math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    parts = torch.split(value, [math.prod(shape[1:]) for shape in shapes], 1)
    return [part.reshape(len(value), *shape[1:]) for part, shape in zip(parts, shapes, strict=True)]


def have_samples(shapes: Shapes) -> bool:
    """Tell whether tensors of these shapes have as many samples each: dimension 0."""
    return all(shape and shape[0] == shapes[0][0] for shape in shapes)
