"""The parameters of a process, and the forward pass of each block."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.autodiff import computes_loss
from runtime.models import gpt, synthetic
from runtime.models.layers import Layer, Parameter
from runtime.models.options import ModelError, ModelOptions
from runtime.models.shards import Shards, split
from runtime.models.tokens import Tokens

_LAYERS = {"gpt": gpt.layers, "synthetic": synthetic.layers}


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, tuple[Layer, ...]]:
    """Return the layers of each forward block.

    Raises:
        ModelError: There is no such model, or it does not fit the placement or its own options.
    """
    if options.name not in _LAYERS:
        raise ModelError(f"model.name: {options.name!r} is not a model; use {' or '.join(_LAYERS)}")
    for block in placement.blocks:
        if block.kind is Kind.F and len(block.devices) > options.vocab_size:
            raise ModelError(
                f"model.vocab_size: {options.vocab_size} rows cannot be cut over {len(block.devices)} devices"
            )
    return _LAYERS[options.name](placement, options)


def fits(placement: Placement, name: str) -> bool:
    """Tell whether a model can run a placement, given enough layers."""
    if name == "gpt":
        try:
            gpt.forward_chain(placement)
        except ModelError:
            return False
    return name in _LAYERS


def suitable_model(placement: Placement) -> str:
    """Return ``gpt`` for the chains that it can be cut into, else ``synthetic``.

    >>> from placements.shapes import k_shape, m_shape
    >>> suitable_model(m_shape()), suitable_model(k_shape())
    ('gpt', 'synthetic')
    """
    return "gpt" if fits(placement, "gpt") else "synthetic"


class ParameterShard(NamedTuple):
    """Which part of which parameter a tensor is.

    Attributes:
        name: The parameter's.
        shard: Index of the shard; 0 for a parameter that is not cut.
        num_shards: Of the parameter; 1 if it is not cut.
        dim: The dimension that is cut.
    """

    name: str
    shard: int
    num_shards: int
    dim: int

    def of(self, full: Tensor) -> Tensor:
        """Return this part of a full tensor."""
        return torch.tensor_split(full, self.num_shards, self.dim)[self.shard]


class Model:
    """The parameters that a process holds, and what its blocks compute forward.

    A parameter's initial values depend on its name and the seed alone, and are drawn for the full tensor
    before it is cut, so every set of devices builds the same weights.

    Args:
        options: Shape and seed.
        placement: What runs where.
        shards: The forward blocks that this process computes, and which of their shards.
        device: Where the parameters are put.

    Raises:
        ModelError: The model does not fit the placement.
    """

    def __init__(
        self,
        options: ModelOptions,
        placement: Placement,
        shards: Mapping[str, Shards],
        device: torch.device | str = "cpu",
    ) -> None:
        """Build the parameters of the blocks."""
        self.options = options
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self.device = torch.device(device)
        self.parameters: dict[ParameterShard, Tensor] = {}
        self._placement = placement
        self._layers = layers(placement, options)
        self._shards = shards
        self._weights: dict[str, list[Tensor]] = {}
        for block, block_shards in shards.items():
            for layer in self._layers[block]:
                for parameter in layer.parameters():
                    self._add(parameter, block_shards)

    def forward(self, block: str, inputs: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return a forward block's output, or its loss if no other block reads its output.

        Args:
            block: One of the blocks that this process computes.
            inputs: The outputs of the blocks that it is after, in that order. They are added up, the second
                halved, the third divided by three: a plain sum would not notice messages mixed up.
            tokens: The micro-batch.
        """
        hidden = inputs[0] if inputs else None
        for position, other in enumerate(inputs[1:], start=2):
            assert hidden is not None
            hidden = hidden + other / position
        for layer in self._layers[block]:
            hidden = layer.forward(hidden, tokens, self._weights, self._shards[block])
        assert hidden is not None and hidden.shape == self.output_shape(block), (
            f"{block} returned a wrong shape"
        )
        return hidden

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of a forward block's output, of which its input gradients have the same."""
        if computes_loss(self._placement, block):
            return ()
        return (self.options.micro_batch_size, self.options.sequence_length, self.options.hidden_size)

    def parameters_of(self, block: str) -> list[Tensor]:
        """Return the local parameters of a block, each once."""
        names = {parameter.name: None for layer in self._layers[block] for parameter in layer.parameters()}
        return [weight for name in names for weight in self._weights[name]]

    def step(self) -> None:
        """Move every parameter against its gradient, and forget the gradients."""
        with torch.no_grad():
            for weight in self.parameters.values():
                if weight.grad is not None:
                    weight.sub_(weight.grad, alpha=self.options.learning_rate)
                    weight.grad = None

    def gradients(self) -> dict[ParameterShard, Tensor]:
        """Return the accumulated gradient of every parameter, zeros where there is none."""
        return {
            shard: torch.zeros_like(weight) if weight.grad is None else weight.grad
            for shard, weight in self.parameters.items()
        }

    def _add(self, parameter: Parameter, shards: Shards) -> None:
        if parameter.name in self._weights:
            return
        full = initial_values(parameter, self.options.seed).to(self.dtype)
        if parameter.split is None:
            named = [(ParameterShard(parameter.name, 0, 1, 0), full)]
        else:
            named = [
                (ParameterShard(parameter.name, index, shards.count, parameter.split), piece)
                for index, piece in zip(shards.local, split(full, parameter.split, shards), strict=True)
            ]
        leaves = {shard: piece.clone().to(self.device).requires_grad_() for shard, piece in named}
        self._weights[parameter.name] = list(leaves.values())
        self.parameters.update(leaves)


def initial_values(parameter: Parameter, seed: int) -> Tensor:
    """Return normally distributed values for a parameter, in float64 so that all types round the same."""
    digest = hashlib.sha256(f"{seed}:{parameter.name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return parameter.mean + parameter.spread * values
