"""A module called with given tensors as its parameters and buffers; their places are found once.

It does as `torch.func.functional_call`, which at every call walks over all modules, checks the names, and
puts the module's own tensors back; for a small module that takes longer than the module itself.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

_Place = tuple[dict[str, Any], str, str, Tensor]
"""A place of a tensor: the module's table and the name in it, the tensor's full name, and the tensor."""


class CalledModule:
    """A module that is called in no other way; its own parameters are not put back, its buffers are."""

    def __init__(self, module: nn.Module) -> None:
        names = {id(value): name for name, value in module.named_parameters()}
        names |= {id(value): name for name, value in module.named_buffers()}
        self._module = module
        parameters: list[_Place] = []
        self._buffers: list[_Place] = []
        for inner in module.modules():
            for tensors, places in ((inner._parameters, parameters), (inner._buffers, self._buffers)):
                own = ((name, value) for name, value in tensors.items() if value is not None)
                places += [(tensors, name, names[id(value)], value) for name, value in own]
        self._tensors = parameters + self._buffers

    def __call__(self, given: dict[str, Tensor], arguments: tuple[Any, ...]) -> Any:
        """Return the module's outputs.

        Args:
            given: The tensor of each parameter and buffer by its full name; a buffer in whose place the
                module puts another one is replaced by that.
            arguments: Arguments of the module.
        """
        for tensors, name, full, _ in self._tensors:
            tensors[name] = given[full]
        try:
            return self._module(*arguments)
        finally:
            for tensors, name, full, own in self._buffers:
                given[full], tensors[name] = tensors[name], own
