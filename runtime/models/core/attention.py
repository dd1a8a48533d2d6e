"""Attention: over what a layer has itself, cut by heads as in Megatron-LM, and over what an encoder left.

Parameters keep a dimension of their own for the heads, so that shards hold whole heads: the inputs'
weights are cut by columns, the output's by rows, and one sum over the shards ends the layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.models.core.layers import Parameter, Weights, norm_parameters, normal_copy, with_residual
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.tokens import Tokens
from runtime.transport.shards import Shards, copy_to_shards


def check_heads(options: ModelOptions, num_shards: int = 1) -> None:
    """Reject heads that do not share the hidden size evenly, or are too few for the shards.

    Raises:
        ModelError: They are so.
    """
    if options.hidden_size % options.num_heads:
        raise ModelError(
            f"model.num_heads: {options.num_heads} does not divide hidden_size {options.hidden_size}; "
            "use a divisor"
        )
    if options.num_heads < num_shards:
        raise ModelError(
            f"model.num_heads: {options.num_heads} cannot be cut over {num_shards} devices; "
            f"use at least {num_shards}, or model=synthetic"
        )


@dataclass(frozen=True)
class Attention:
    """Add self-attention to its input.

    Attributes:
        name: Prefix of the parameters.
        hidden_size: Width of input and output.
        num_heads: Divides `hidden_size`; at least one for each shard.
        causal: Whether a position sees only itself and those before it.
    """

    name: str
    hidden_size: int
    num_heads: int
    causal: bool = True

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the normalization, of query, key and value together, and of the output."""
        width = self.hidden_size // self.num_heads
        return (
            *norm_parameters(f"{self.name}.norm", self.hidden_size),
            Parameter(f"{self.name}.in.weight", (self.hidden_size, self.num_heads, 3 * width), split=1),
            Parameter(f"{self.name}.in.bias", (self.num_heads, 3 * width), split=0),
            Parameter(f"{self.name}.out.weight", (self.num_heads, width, self.hidden_size), split=0),
            Parameter(f"{self.name}.out.bias", (self.hidden_size,)),
        )

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return the input plus the attention's output."""
        assert hidden is not None, "attention has an input"
        normal = normal_copy(hidden, self.name, weights, shards)
        joint = _heads(normal, weights[f"{self.name}.in.weight"])
        query, key, value = (joint + weights[f"{self.name}.in.bias"].unsqueeze(1)).chunk(3, dim=-1)
        part = _joined(_attend(query, key, value, self.causal), weights[f"{self.name}.out.weight"])
        return with_residual(hidden, part, weights[f"{self.name}.out.bias"], shards)


@dataclass(frozen=True)
class CrossAttention:
    """Add attention over an encoder's output to the decoder's hidden values.

    Attributes:
        name: Prefix of the parameters.
        hidden_size: Width of input and output.
        num_heads: Divides `hidden_size`; at least one for each shard.
    """

    name: str
    hidden_size: int
    num_heads: int

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the normalization, of query, of key and value together, of the output."""
        width = self.hidden_size // self.num_heads
        return (
            *norm_parameters(f"{self.name}.norm", self.hidden_size),
            Parameter(f"{self.name}.query.weight", (self.hidden_size, self.num_heads, width), split=1),
            Parameter(f"{self.name}.memory.weight", (self.hidden_size, self.num_heads, 2 * width), split=1),
            Parameter(f"{self.name}.out.weight", (self.num_heads, width, self.hidden_size), split=0),
            Parameter(f"{self.name}.out.bias", (self.hidden_size,)),
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
        part = _joined(_attend(query, key, value, causal=False), weights[f"{self.name}.out.weight"])
        return torch.stack([memory, with_residual(own, part, weights[f"{self.name}.out.bias"], shards)], 1)


def _heads(hidden: Tensor, weight: Tensor) -> Tensor:
    """Return ``(rows, heads, length, width)`` from ``(rows, length, hidden)``."""
    rows, length, _ = hidden.shape
    _, heads, width = weight.shape
    return (hidden @ weight.flatten(1)).view(rows, length, heads, width).transpose(1, 2)


def _joined(mixed: Tensor, weight: Tensor) -> Tensor:
    """Return ``(rows, length, hidden)`` from ``(rows, heads, length, width)``."""
    return mixed.transpose(1, 2).flatten(2) @ weight.flatten(0, 1)


def _attend(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return scores.softmax(-1) @ value
