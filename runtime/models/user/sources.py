"""Where the modules of a model of the user's own come from: a file, or the user's hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from runtime.models.core.options import ModelError
from runtime.models.user.seeds import digest, seeded


class ModuleSource(Protocol):
    """The modules of a process, and what they read.

    Attributes:
        name: To call it in errors.
        seed: Of all random numbers.
        loss: Of a block's outputs and the targets; None where the modules return it.
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

    def modules(self, names: Sequence[str]) -> Mapping[str, nn.Module]:
        """Return the modules of some forward blocks, and perhaps of others, which then take no memory.

        Raises:
            ModelError: There is none for one of them.
        """

    def values(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor of one of the modules, for the caller to keep."""

    def data(self, iteration: int, micro_batch: int) -> tuple[Any, Any]:
        """Return inputs and targets of a micro-batch."""


class GivenModules:
    """Modules that a program has, and trains where they are: their parameters are moved in place.

    Args:
        modules: Of the own blocks of this process at least, by block; or what builds the module of one.
        loss: Of a block's outputs and the targets; None where the modules return it.
        seed: Of what is built, and of dropout.
        data: Returns inputs and targets of ``(iteration, micro_batch)``; None where they are handed over.
    """

    name = "modules"

    def __init__(
        self,
        modules: Mapping[str, nn.Module] | Callable[[str], nn.Module],
        loss: Callable[..., Any] | None = None,
        *,
        seed: int = 0,
        data: Callable[[int, int], tuple[Any, Any]] | None = None,
    ) -> None:
        """Take them."""
        self.loss, self.seed = loss, seed
        self._given, self._data = modules, data

    def modules(self, names: Sequence[str]) -> Mapping[str, nn.Module]:
        """Return those of some blocks.

        Raises:
            ModelError: There is none for one of them.
        """
        found: dict[str, nn.Module] = {}
        for name in names:
            if isinstance(self._given, Mapping):
                module: object = self._given.get(name)
            else:
                with seeded(digest(self.seed, name), torch.device("cpu")):
                    module = self._given(name)
            if not isinstance(module, nn.Module):
                raise ModelError(
                    f"modules: block {name} has no torch module, but {type(module).__name__}; give one"
                )
            found[name] = module
        return found

    def values(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself."""
        return tensor.detach()

    def data(self, iteration: int, micro_batch: int) -> tuple[Any, Any]:
        """Return what the program's function returns.

        Raises:
            ModelError: There is none.
        """
        if self._data is None:
            raise ModelError("modules: no data were given; give a function of (iteration, micro_batch)")
        return self._data(iteration, micro_batch)
