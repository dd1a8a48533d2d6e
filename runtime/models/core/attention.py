"""Self-attention, cut by heads as in Megatron-LM, and attention over an encoder's output.

Parameters keep a dimension of their own for the heads, so that shards hold whole heads: the inputs'
weights are cut by columns, the output's by rows, and one sum over the shards ends the layer.
"""

from __future__ import annotations

import torch.nn.functional as functional
from torch import Tensor

from runtime.models.core.layers import Normed
from runtime.models.core.options import ModelOptions
from runtime.models.core.parameters import parameter
from runtime.transport.shards import copy_to_shards, sum_over_shards


class Attention(Normed):
    """Add self-attention to its input; if it is causal, a position sees only itself and earlier ones."""

    def __init__(self, name: str, options: ModelOptions, causal: bool = True) -> None:
        super().__init__(name, options)
        self.causal = causal
        hidden, heads, width = _sizes(options)
        self.into = parameter(f"{name}.in.weight", (hidden, heads, 3 * width), split=1)
        self.into_bias = parameter(f"{name}.in.bias", (heads, 3 * width), split=0)
        self.out = parameter(f"{name}.out.weight", (heads, width, hidden), split=0)
        self.out_bias = parameter(f"{name}.out.bias", (hidden,))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the input plus the attention's output."""
        query, key, value = self.heads(hidden)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return with_output(self, hidden, mixed)

    def heads(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Return query, key and value, each ``(rows, heads, length, width)``."""
        joint = _by_head(self.normal(hidden), self.into)
        return (joint + self.into_bias.unsqueeze(1)).chunk(3, dim=-1)


class CrossAttention(Normed):
    """Add attention over an encoder's output to the decoder's hidden values."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__(name, options)
        hidden, heads, width = _sizes(options)
        self.query = parameter(f"{name}.query.weight", (hidden, heads, width), split=1)
        self.memory = parameter(f"{name}.memory.weight", (hidden, heads, 2 * width), split=1)
        self.out = parameter(f"{name}.out.weight", (heads, width, hidden), split=0)
        self.out_bias = parameter(f"{name}.out.bias", (hidden,))

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        """Return the decoder's hidden values with the attention added; ``memory`` is the encoder's output."""
        query = _by_head(self.normal(hidden), self.query)
        seen = copy_to_shards(memory, self.shards)
        key, value = _by_head(seen, self.memory).chunk(2, dim=-1)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return with_output(self, hidden, mixed)


def _sizes(options: ModelOptions) -> tuple[int, int, int]:
    """Return the hidden size, the number of heads and the width of one."""
    return options.hidden_size, options.num_heads, options.hidden_size // options.num_heads


def _by_head(hidden: Tensor, weight: Tensor) -> Tensor:
    """Return ``(rows, heads, length, width)`` from ``(rows, length, hidden)``."""
    rows, length, _ = hidden.shape
    _, heads, width = weight.shape
    return (hidden @ weight.flatten(1)).view(rows, length, heads, width).transpose(1, 2)


def with_output(layer: Attention | CrossAttention, hidden: Tensor, mixed: Tensor) -> Tensor:
    """Add the heads' outputs, ``(rows, heads, length, width)``, to ``(rows, length, hidden)``."""
    part = mixed.transpose(1, 2).flatten(2) @ layer.out.flatten(0, 1)
    return hidden + (sum_over_shards(part, layer.shards) + layer.out_bias)
