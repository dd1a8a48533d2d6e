"""A module called with given tensors as its parameters and buffers; their places are found once.

It does as `torch.func.functional_call`, which at every call walks over all modules, checks the names, and
puts the module's own tensors back; for a small module that takes longer than the module itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Call = Callable[[nn.Module, tuple[Any, ...]], Any]
"""Calls a module with arguments."""


def call(module: nn.Module, arguments: tuple[Any, ...]) -> Any:
    """Return what a module returns."""
    return module(*arguments)


class CalledModule:
    """A module whose tensors are always given; its own parameters are not put back, its buffers are.

    Args:
        module: Called in no other way.
    """

    def __init__(self, module: nn.Module) -> None:
        """Find where the module has its tensors; one that it has at several places is given once."""
        first_name: dict[int, str] = {}
        self._module = module
        self._parameters: list[tuple[dict[str, Any], str, str]] = []
        self._buffers: list[tuple[dict[str, Any], str, str, Tensor]] = []
        for prefix, inner in module.named_modules():
            before = f"{prefix}." if prefix else ""
            for name, value in inner._parameters.items():
                if value is not None:
                    full = first_name.setdefault(id(value), before + name)
                    self._parameters.append((inner._parameters, name, full))
            for name, buffer in inner._buffers.items():
                if buffer is not None:
                    full = first_name.setdefault(id(buffer), before + name)
                    self._buffers.append((inner._buffers, name, full, buffer))

    def __call__(self, given: dict[str, Tensor], arguments: tuple[Any, ...], how: Call = call) -> Any:
        """Return what the module returns.

        Args:
            given: The tensor of each parameter and buffer by its full name; a buffer in whose place the
                module puts another one is replaced by that.
            arguments: Arguments of the module.
            how: Calls it.
        """
        for tensors, name, full in self._parameters:
            tensors[name] = given[full]
        for tensors, name, full, _ in self._buffers:
            tensors[name] = given[full]
        try:
            return how(self._module, arguments)
        finally:
            for tensors, name, full, own in self._buffers:
                given[full], tensors[name] = tensors[name], own
