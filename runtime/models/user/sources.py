"""Where the modules of a model of the user's own come from: a file, or the user's hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn


class ModuleSource(Protocol):
    """The modules of a process, and what they read.

    Attributes:
        name: To call it in errors.
        seed: Of all random numbers.
        loss: Of a block's outputs and the targets; None where the modules return it.
        loss_weight: What a loss counts, from the targets; None if all count the same.
    """

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""

    @property
    def loss(self) -> Callable[..., Any] | None:
        """The loss of a block's outputs and the targets."""

    @property
    def loss_weight(self) -> Callable[..., float] | None:
        """What a loss counts, from the targets; None if all count the same."""

    def modules(self, names: Sequence[str]) -> Mapping[str, nn.Module]:
        """Return the modules of some forward blocks, and perhaps of others, which then take no memory.

        Raises:
            ModelError: There is none for one of them.
        """

    def values(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor of one of the modules, for the caller to keep."""

    def data(self, iteration: int, micro_batch: int) -> tuple[Any, Any]:
        """Return inputs and targets of a micro-batch."""
