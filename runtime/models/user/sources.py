"""Where the modules of the blocks come from: a model of ours, a user's file, or the user's hands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runtime.models.core.options import ModelError
from runtime.models.user.packing import Forms

Batches = Callable[[int, int], tuple[Any, Any]]
"""Returns inputs and targets of (iteration, micro-batch), in the forms of `runtime.models.user.reading`."""


class ModuleSource(ABC):
    """The modules of a process, and their data; errors call it by its name."""

    name: str
    seed: int | None = None
    """Seed of all random numbers; ours draw none and make tensors on their inputs' device."""
    loss: Callable[..., Any] | None = None
    """Loss function of a block's outputs and the targets; None where the modules return it."""
    loss_weight: Callable[..., float] | None = None
    """Weight of a loss, from the targets; None if all count the same."""

    @abstractmethod
    def modules(self, names: Sequence[str]) -> Mapping[str, nn.Module]:
        """Return the modules of some forward blocks, and perhaps of others, which then take no memory.

        Raises:
            ModelError: There is none for one of them.
        """

    def forms(self, names: Sequence[str]) -> Mapping[str, Forms]:
        """Return the forms of the blocks' outputs; nothing where they are to be found by running them."""
        return {}

    @abstractmethod
    def values(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor of one of the modules, for the caller to keep."""

    def batches(self, num_micro_batches: int, device: torch.device | str) -> Batches:
        """Return a function that makes the inputs and targets of each micro-batch.

        Args:
            num_micro_batches: Micro-batches of an iteration, in all separate graphs of blocks together.
            device: Where they are read; they may be made elsewhere.

        Raises:
            ModelError: The modules are a script's, which gives data to each step.
        """
        raise ModelError("data: the modules of a script read the batch of each step")
