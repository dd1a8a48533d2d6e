"""Gradients of a scaled loss scaled down again, or given up on all devices where one of them overflowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from runtime.models.core.precision import LossScale


def unscale(weights: Iterable[Tensor], scale: LossScale, any_device: Callable[[bool], bool]) -> bool:
    """Scale gradients down, or forget all where one is not finite; the scale follows.

    An optimizer leaves parameters without gradients alone, so an update that overflowed is skipped.

    Args:
        weights: The parameters of this device.
        scale: Factor of the losses.
        any_device: Tells whether a thing is so on any device, given whether it is here; so all decide alike.

    Returns:
        Whether the gradients are good.
    """
    have = [(weight, weight.grad) for weight in weights if weight.grad is not None]
    overflows = any_device(not are_finite(gradient for _, gradient in have))
    for weight, gradient in have:
        if overflows:
            weight.grad = None
        else:
            gradient.mul_(1 / scale.value)
    scale.update(overflows=overflows)
    return not overflows


def are_finite(gradients: Iterable[Tensor]) -> bool:
    """Tell whether no element is infinite or not a number; a GPU is asked once."""
    found = [torch.isfinite(gradient.to_dense()).all() for gradient in gradients]
    return bool(torch.stack(found).all()) if found else True
