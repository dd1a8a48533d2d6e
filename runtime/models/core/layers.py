"""The layers that blocks are made of: torch modules, each whole or cut into shards.

A layer that is cut has the full parameters where it is built, and is called with its device's shards of them.
Which shard that is, and how it reaches the others, are its `shards`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from runtime.models.core.options import ModelOptions
from runtime.models.core.parameters import parameter
from runtime.transport.shards import WHOLE, Shards, copy_to_shards, sum_over_shards

WHOLE_SEQUENCE = slice(None)
"""All positions of a sequence."""


class ShardedLayer(nn.Module):
    """A module that can be cut over several devices.

    Its `shards` are its block's, and the one that this device computes; they are set before it is called.
    """

    shards: Shards = WHOLE


class Normed(ShardedLayer):
    """A layer that begins by normalizing every position; the normalization is never cut.

    The name is the prefix of its parameters. Those of the normalization come first: checkpoints number them.
    """

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__()
        self.norm_weight = parameter(f"{name}.norm.weight", (options.hidden_size,), mean=1.0)
        self.norm_bias = parameter(f"{name}.norm.bias", (options.hidden_size,))

    def normal(self, hidden: Tensor) -> Tensor:
        """Return the layer normalization of the last dimension, as this shard's copy."""
        return copy_to_shards(self.normalized(hidden), self.shards)

    def normalized(self, hidden: Tensor) -> Tensor:
        """Return the layer normalization of the last dimension."""
        return functional.layer_norm(hidden, (hidden.shape[-1],), self.norm_weight, self.norm_bias)


class Normalization(Normed):
    """Normalize every position, and nothing else; every shard does all."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the normalized input."""
        return self.normalized(hidden)


class Embedding(ShardedLayer):
    """Look up bytes and positions; the vocabulary is cut into shards, the positions are not.

    Args:
        tokens: Name of the table of the vocabulary.
        positions: Name of the table of the positions.
        options: Give the sizes of both.
        reads: Name of the part of `runtime.models.core.tokens.Tokens` that it looks up.
        span: The positions of a sequence that it looks up.
    """

    def __init__(
        self,
        tokens: str,
        positions: str,
        options: ModelOptions,
        reads: str = "inputs",
        span: slice = WHOLE_SEQUENCE,
    ) -> None:
        super().__init__()
        self.reads, self._span = reads, span
        self.vocab_size = options.vocab_size
        self.tokens = parameter(tokens, (options.vocab_size, options.hidden_size), split=0)
        self.positions = parameter(positions, (options.sequence_length, options.hidden_size))

    def forward(self, values: Tensor) -> Tensor:
        """Return the sum of both look-ups; a shard contributes zeros for the bytes of the others."""
        values = values[:, self._span]
        positions = self.positions[self._span][: values.shape[1]]
        if self.shards.count == 1:
            return functional.embedding(values, self.tokens) + positions
        rows, mine = _local_rows(values, self.vocab_size, self.shards)
        part = functional.embedding(rows, self.tokens) * mine.unsqueeze(-1).to(self.tokens.dtype)
        return sum_over_shards(part, self.shards) + positions


class Output(Normed):
    """Normalize, score every byte of the vocabulary, and return the mean cross entropy of the true bytes.

    Args:
        name: Prefix of the normalization's parameters.
        tokens: Name of the table of the vocabulary, the embedding's where they are tied.
        options: Give the sizes.
        truth: Name of the part of `runtime.models.core.tokens.Tokens` that has the true bytes.
        span: The positions of a sequence that it gets; the loss is then their part of the sequence's.
    """

    def __init__(
        self,
        name: str,
        tokens: str,
        options: ModelOptions,
        truth: str = "targets",
        span: slice = WHOLE_SEQUENCE,
    ) -> None:
        super().__init__(name, options)
        self.truth, self._span = truth, span
        self.vocab_size = options.vocab_size
        self.tokens = parameter(tokens, (options.vocab_size, options.hidden_size), split=0)

    def forward(self, hidden: Tensor, truth: Tensor) -> Tensor:
        """Return the loss: a scalar."""
        part = truth[:, self._span]
        logits = self.normal(hidden) @ self.tokens.T
        if self.shards.count == 1:
            loss = functional.cross_entropy(logits.flatten(0, 1), part.flatten())
        else:
            loss = _sharded_cross_entropy(logits, part, self.vocab_size, self.shards)
        return loss if part.shape == truth.shape else loss * (part.shape[1] / truth.shape[1])


class FeedForward(Normed):
    """Add a two-layer perceptron to its input, four times as wide in the middle.

    The first layer is cut by columns, the second by rows; weights are (in, out).
    """

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__(name, options)
        hidden, middle = options.hidden_size, 4 * options.hidden_size
        self.up = parameter(f"{name}.up.weight", (hidden, middle), split=1)
        self.up_bias = parameter(f"{name}.up.bias", (middle,), split=0)
        self.down = parameter(f"{name}.down.weight", (middle, hidden), split=0)
        self.down_bias = parameter(f"{name}.down.bias", (hidden,))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the input plus the perceptron's output."""
        part = functional.gelu(self.normal(hidden) @ self.up + self.up_bias) @ self.down
        return hidden + (sum_over_shards(part, self.shards) + self.down_bias)


def _local_rows(values: Tensor, vocab_size: int, shards: Shards) -> tuple[Tensor, Tensor]:
    """Return each value's row in a shard, 0 where it is another shard's, and which are this shard's."""
    small, larger = divmod(vocab_size, shards.count)  # as `Shards.of` cuts them
    first = shards.index * small + min(shards.index, larger)
    mine = (values >= first) & (values < first + small + (shards.index < larger))
    return (values - first) * mine, mine


def _sharded_cross_entropy(logits: Tensor, targets: Tensor, vocab_size: int, shards: Shards) -> Tensor:
    """Return the mean of ``log sum exp(logits) - logits[target]`` over logits cut along the vocabulary."""
    peak = torch.stack(shards.gather(logits.detach().amax(-1))).amax(0)
    shifted = logits - peak.unsqueeze(-1)
    rows, mine = _local_rows(targets, vocab_size, shards)
    at_target = shifted.gather(-1, rows.unsqueeze(-1)).squeeze(-1) * mine.to(logits.dtype)
    total, at_target = sum_over_shards(torch.stack([shifted.exp().sum(-1), at_target]), shards).unbind(0)
    return (total.log() - at_target).mean()
