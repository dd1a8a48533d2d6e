"""Mixed precision: the type in which blocks compute, and the factor of an fp16 loss.

Parameters stay in float32, and so do their gradients' sums and the optimizer's state. Blocks compute under
PyTorch's autocast, and hand each other tensors of the lower type. Float16 has no numbers below 6e-8, so there
the loss is scaled up before the backward pass and the gradients down again after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

_COMPUTE_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def compute_type(precision: str | None, dtype: str) -> torch.dtype:
    """Return the type of tensors between blocks: the parameters' own without mixed precision."""
    stored: torch.dtype = getattr(torch, dtype)
    return stored if precision is None else _COMPUTE_TYPES[precision]


def autocast(precision: str | None, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a block computes."""
    if precision is None:
        return nullcontext()
    return torch.autocast(device.type, _COMPUTE_TYPES[precision])


@dataclass
class LossScale:
    """Factor of a loss: doubled after many updates in a row, halved by one that overflows.

    The rule and its numbers are those of PyTorch's `torch.amp.GradScaler`; powers of two, so that scaling up
    and down again changes no bit of a gradient that stays in range.

    Attributes:
        value: The scale.
        growth_interval: Updates in a row without overflow after which it is doubled.
        good_updates: Updates in a row without overflow so far.

    >>> scale = LossScale(8.0, growth_interval=2)
    >>> [scale.update(overflows=found) or scale.value for found in (False, False, True, False)]
    [8.0, 16.0, 8.0, 8.0]
    """

    value: float = 65536.0
    growth_interval: int = 2000
    good_updates: int = 0

    def update(self, *, overflows: bool) -> None:
        """Take note of an update that was made, or skipped because a gradient was not finite."""
        self.good_updates = 0 if overflows else self.good_updates + 1
        if overflows:
            self.value /= 2
        elif self.good_updates == self.growth_interval:
            self.value, self.good_updates = self.value * 2, 0

    def unscale(self, weights: Iterable[Tensor], any_device: Callable[[bool], bool]) -> bool:
        """Scale gradients down, or forget all where one is not finite; the scale follows.

        An optimizer leaves parameters without gradients alone, so an update that overflowed is skipped.

        Args:
            weights: The parameters of this device.
            any_device: Tells whether a thing is so on any device, given whether it is here; so all decide
                alike.

        Returns:
            Whether the gradients are good.
        """
        have = [(weight, weight.grad) for weight in weights if weight.grad is not None]
        overflows = any_device(not are_finite(gradient for _, gradient in have))
        for weight, gradient in have:
            if overflows:
                weight.grad = None
            else:
                gradient.mul_(1 / self.value)
        self.update(overflows=overflows)
        return not overflows


def are_finite(gradients: Iterable[Tensor]) -> bool:
    """Tell whether no element is infinite or not a number; a GPU is asked once."""
    checks = [torch.isfinite(gradient.to_dense()).all() for gradient in gradients]
    return bool(torch.stack(checks).all()) if checks else True
