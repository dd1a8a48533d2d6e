"""Attention: over what a layer has itself, cut by heads as in Megatron-LM, and over what an encoder left.

Parameters keep a dimension of their own for the heads, so that shards hold whole heads: the inputs'
weights are cut by columns, the output's by rows, and one sum over the shards ends the layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from runtime.models.core.layers import Parameter, Weights, norm_parameters, normal_copy, with_residual
from runtime.models.core.options import ModelOptions
from runtime.models.core.tokens import Tokens
from runtime.transport.shards import Shards, copy_to_shards


@dataclass(frozen=True)
class Attention:
    """Add self-attention to its input.

    Attributes:
        name: Prefix of the parameters.
        options: Give the width, and the heads: at least one for each shard.
        causal: Whether a position sees only itself and those before it.
    """

    name: str
    options: ModelOptions
    causal: bool = True

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the normalization, of query, key and value together, and of the output."""
        hidden, heads, width = _sizes(self.options)
        return (
            *norm_parameters(f"{self.name}.norm", self.options),
            Parameter(f"{self.name}.in.weight", (hidden, heads, 3 * width), split=1),
            Parameter(f"{self.name}.in.bias", (heads, 3 * width), split=0),
            *_output_parameters(self.name, self.options),
        )

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return the input plus the attention's output."""
        assert hidden is not None, "attention has an input"
        normal = normal_copy(hidden, self.name, weights, shards)
        joint = _heads(normal, weights[f"{self.name}.in.weight"])
        query, key, value = (joint + weights[f"{self.name}.in.bias"].unsqueeze(1)).chunk(3, dim=-1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return _with_output(hidden, mixed, self.name, weights, shards)


@dataclass(frozen=True)
class CrossAttention:
    """Add attention over an encoder's output to the decoder's hidden values.

    Attributes:
        name: Prefix of the parameters.
        options: Give the width, and the heads: at least one for each shard.
    """

    name: str
    options: ModelOptions

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the normalization, of query, of key and value together, of the output."""
        hidden, heads, width = _sizes(self.options)
        return (
            *norm_parameters(f"{self.name}.norm", self.options),
            Parameter(f"{self.name}.query.weight", (hidden, heads, width), split=1),
            Parameter(f"{self.name}.memory.weight", (hidden, heads, 2 * width), split=1),
            *_output_parameters(self.name, self.options),
        )

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return both again, the decoder's with the attention added.

        Args:
            hidden: Encoder's output and decoder's hidden values; shape ``(rows, 2, length, hidden_size)``.
            tokens: Not read.
            weights: The layer's parameters.
            shards: Of the block.
        """
        assert hidden is not None, "attention over an encoder has an input"
        memory, own = hidden.unbind(1)
        normal, seen = normal_copy(own, self.name, weights, shards), copy_to_shards(memory, shards)
        query = _heads(normal, weights[f"{self.name}.query.weight"])
        key, value = _heads(seen, weights[f"{self.name}.memory.weight"]).chunk(2, dim=-1)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return torch.stack([memory, _with_output(own, mixed, self.name, weights, shards)], 1)


def _sizes(options: ModelOptions) -> tuple[int, int, int]:
    """Return the hidden size, the number of heads and the width of one."""
    return options.hidden_size, options.num_heads, options.hidden_size // options.num_heads


def _output_parameters(name: str, options: ModelOptions) -> tuple[Parameter, Parameter]:
    hidden, heads, width = _sizes(options)
    weight = Parameter(f"{name}.out.weight", (heads, width, hidden), split=0)
    return weight, Parameter(f"{name}.out.bias", (hidden,))


def _heads(hidden: Tensor, weight: Tensor) -> Tensor:
    """Return ``(rows, heads, length, width)`` from ``(rows, length, hidden)``."""
    rows, length, _ = hidden.shape
    _, heads, width = weight.shape
    return (hidden @ weight.flatten(1)).view(rows, length, heads, width).transpose(1, 2)


def _with_output(hidden: Tensor, mixed: Tensor, name: str, weights: Weights, shards: Shards) -> Tensor:
    """Add what the heads found, ``(rows, heads, length, width)``, to ``(rows, length, hidden)``."""
    part = mixed.transpose(1, 2).flatten(2) @ weights[f"{name}.out.weight"].flatten(0, 1)
    return with_residual(hidden, part, weights[f"{name}.out.bias"], shards)
