"""Modules that a script of the user's own gives, of this process's blocks alone, as a body of blocks.

Nothing foreign is built or run. The processes tell each other what they must know of the blocks of others:
the names of parameters once at the start, the shapes of outputs once when the first batch is there. This
module does not know how they tell each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from placements import Kind, Placement
from runtime.models.body import Body
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.parameters import Parameter
from runtime.models.user.packing import Forms, packed_shape
from runtime.models.user.reading import ReadNames, Sample
from runtime.models.user.seeds import seeded
from runtime.models.user.sources import ModuleSource
from runtime.models.user.tracing import try_block
from runtime.program.tensor_flow import forward_inputs

Modules = (
    Mapping[str, nn.Module] | nn.ModuleDict | Sequence[nn.Module] | nn.ModuleList | Callable[[str], nn.Module]
)
"""A module for each forward block: by name, in the order of a chain, or made for a name."""

Loss = Callable[..., Any]
"""Returns the scalar loss of a last block's outputs and the targets."""

Description = tuple[Mapping[str, Mapping[str, Parameter]], ReadNames]
"""Parameters of each block, and the names of the inputs and targets that blocks read."""

LossWeight = Callable[..., float]
"""Returns a loss's weight, as the number of tokens that are no padding, from the targets."""


def own_modules(modules: Modules, placement: Placement, names: Sequence[str]) -> dict[str, nn.Module]:
    """Return the modules that this process can see: its own blocks', and others if they are there.

    A function is called for the own blocks only.

    Raises:
        ModelError: One of the own blocks has no module, or a list is not for a chain of as many blocks.
    """
    forward = [block.name for block in placement.topological_order if block.kind is Kind.F]
    by_block: dict[str, Any]
    if isinstance(modules, (Mapping, nn.ModuleDict)):
        by_block = dict(modules.items())
    elif is_list(modules):
        modules = list(modules)
        if len(modules) != len(forward) or any(len(forward_inputs(placement, name)) > 1 for name in forward):
            raise ModelError(
                f"modules: a list of {len(modules)} is not for the {len(forward)} forward blocks "
                f"{', '.join(forward)} of {placement.name}; give one for each, or a mapping by name"
            )
        by_block = dict(zip(forward, modules, strict=True))
    elif isinstance(modules, nn.Module) or not callable(modules):
        raise ModelError(
            f"modules: are one {type(modules).__name__}; give a module for each forward block "
            f"({', '.join(forward)}), as runtime.models.cut makes them of one"
        )
    else:
        by_block = {name: modules(name) for name in names}
    for name in names:
        if not isinstance(by_block.get(name), nn.Module):
            given = type(by_block[name]).__name__ if name in by_block else "nothing"
            raise ModelError(f"modules: {given} for block {name} instead of a torch module; give one")
    return by_block


def is_list(modules: object) -> TypeGuard[Sequence[nn.Module]]:
    """Tell whether modules are given in the order of a chain."""
    return isinstance(modules, (Sequence, nn.ModuleList)) and not isinstance(modules, str)


def type_of(modules: Mapping[str, nn.Module]) -> str | None:
    """Return the one type of all floating parameters, as torch names it; None if there are none.

    Raises:
        ModelError: They are of several types.
    """
    dtypes = {
        block: str(value.dtype).removeprefix("torch.")
        for block, module in modules.items()
        for value in module.parameters()
        if value.is_floating_point()
    }
    if len(set(dtypes.values())) > 1:
        raise ModelError(f"modules: have parameters of several types ({dtypes}); convert them to one")
    return next(iter(dtypes.values()), None)


@dataclass
class GivenSource(ModuleSource):
    """Modules that a script has built, of which this process sees some; they are trained where they are.

    Raises:
        ModelError: `loss` or `loss_weight` is no function.
    """

    given: Mapping[str, nn.Module]
    seed: int
    loss: Loss | None = None
    loss_weight: LossWeight | None = None
    name = "the script"

    def __post_init__(self) -> None:
        for what, function in (("loss", self.loss), ("loss_weight", self.loss_weight)):
            if function is not None and not callable(function):
                raise ModelError(f"{what}: {function!r} cannot be called; give a function of tensors")

    def modules(self, names: Sequence[str]) -> Mapping[str, nn.Module]:
        """Return all that this process can see."""
        return self.given

    def values(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself."""
        return tensor.detach()


class GivenModules(Body):
    """A body of modules that were given; blocks of other processes it knows by their descriptions.

    Args:
        options: Type and seed.
        placement: What runs where.
        source: The modules that this process can see; blocks that share a parameter over several processes
            can do so only where each of these sees both.
        own: The forward blocks of this process.
        keeps_names: Whether parameters keep their modules' names, as of a model that was cut.

    Attributes:
        reader: Data that the blocks read.

    Raises:
        ModelError: A module does not fit the placement, or has nothing to train.
    """

    reader: Any

    def __init__(
        self,
        options: ModelOptions,
        placement: Placement,
        source: GivenSource,
        local: Sequence[str],
        keeps_names: bool = False,
    ) -> None:
        super().__init__(options, placement, source, keeps_names=keeps_names)
        self.modules = {name: source.given[name] for name in self.names if name in local}
        self._parameters = {name: self._parameters[name] for name in self.modules}
        self.read_names = {name: self.read_names[name] for name in self.modules}

    @property
    def described(self) -> Description:
        """Description of the own blocks, for other processes."""
        return self._parameters, self.read_names

    @property
    def has_shapes(self) -> bool:
        """Whether the shapes between all blocks are known."""
        return len(self.forms) == len(self.names)

    def know(self, described: Sequence[Description]) -> None:
        """Take over the parameters that each process has `described`."""
        for parameters, read_names in described:
            self._parameters |= {block: dict(named) for block, named in parameters.items()}
            self.read_names |= read_names

    def tensors(self) -> dict[str, Tensor]:
        """Return the parameters of the modules themselves, by their names in the model."""
        return {
            self._parameters[block][local].name: value
            for block, module in self.modules.items()
            for local, value in module.named_parameters()
        }

    def data(self, num_micro_batches: int, device: torch.device | str) -> Any:
        """Return the blocks' data."""
        return self.reader

    def output_forms(
        self, known: Mapping[str, Forms], read: Callable[[str], Sample], device: torch.device
    ) -> dict[str, Forms]:
        """Return the forms of the outputs of these blocks, found by running them on random inputs.

        Args:
            known: Forms of outputs of earlier blocks.
            read: Returns a block's data.
            device: Device of the parameters.

        Raises:
            ModelError: A module fails, or returns tensors that cannot be handed over.
        """
        self.forms |= known
        shapes: dict[str, Forms] = {}
        for block, module in self.modules.items():
            before = forward_inputs(self.placement, block)
            if block in known or not {*before} <= {*known, *shapes}:
                continue
            # Of a copy: a block that is only tried may change its data in place.
            sample, parameters = read(block).changed(Tensor.clone), dict(module.named_parameters())
            with seeded(sample.seed, device):
                inputs = [
                    torch.randn(packed_shape(self.forms[name], self.dtype), dtype=self.dtype, device=device)
                    for name in before
                ]
                try_block(self, block, inputs, sample, parameters, self.buffers(block, device))
            shapes[block] = self.forms[block]
        return shapes

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the modules into eval mode, and each part back into the mode that it was in."""
        modes = [(part, part.training) for module in self.modules.values() for part in module.modules()]
        self.train(False)
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode

    def train(self, mode: bool) -> None:
        """Put the modules into training or eval mode."""
        for module in self.modules.values():
            module.train(mode)

    def state(self, keep_vars: bool = False) -> dict[str, Tensor]:
        """Return the own blocks' parameters and persistent buffers, by the names of `torch.nn.Module`.

        A parameter that is shared has all its names. The names are those of the model that was cut; blocks
        that are modules of their own are named before theirs. With `keep_vars` it has the tensors themselves.
        """
        return {
            name if self._keeps_names else f"{block}.{name}": value
            for block, module in self.modules.items()
            for name, value in module.state_dict(keep_vars=keep_vars).items()
        }

    def forget_buffers(self) -> None:
        """Read the modules' buffers again, which somebody has changed."""
        self._held = {}

    def hold_buffers(self, block: str, buffers: dict[str, Tensor]) -> None:
        """Let the next call of a block find these buffers, and the module have their values."""
        super().hold_buffers(block, buffers)
        for name, buffer in self.modules[block].named_buffers():
            if self._changes_buffers.get(block):
                buffer.copy_(buffers[name])
