"""The layers that blocks are made of, each whole or cut into shards.

A layer owns no tensors: it names its parameters, and computes with its device's shards of them, or with all
of a parameter that is not cut. It knows neither the placement nor the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

from runtime.models.core.options import ModelOptions
from runtime.models.core.tokens import Tokens
from runtime.transport.shards import Shards, copy_to_shards, sum_over_shards

INITIAL_SPREAD = 0.02
"""Standard deviation of initial weights (GPT-2's)."""

Weights = Mapping[str, Tensor]
"""For each parameter this device's shard, or all of it if it is not cut."""


@dataclass(frozen=True)
class Parameter:
    """A parameter before it is cut.

    Attributes:
        name: Unique within the model; layers that name the same parameter share it.
        shape: Of the full tensor.
        split: The dimension cut into shards, or None if every shard has the full tensor.
        mean: Of the initial values.
        spread: Standard deviation of the initial values.
        trains: Whether it has a gradient; every parameter but those that a user froze.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    mean: float = 0.0
    spread: float = INITIAL_SPREAD
    trains: bool = True

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


class Layer(Protocol):
    """A step of a block's forward pass."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the layer's parameters."""

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return the layer's output.

        Args:
            hidden: What the block has computed so far, replicated over the shards; shape
                ``(micro_batch_size, any, hidden_size)``; None at a block without inputs.
            tokens: The micro-batch.
            weights: The layer's parameters.
            shards: Of the block.

        Returns:
            The hidden values after the layer, or the scalar loss; replicated over the shards.
        """


@dataclass(frozen=True)
class Embedding:
    """Look up bytes and positions; the vocabulary is cut into shards, the positions are not.

    Attributes:
        tokens: Name of the table of the vocabulary.
        positions: Name of the table of the positions.
        options: Give the sizes of both.
        reads: Which bytes of a micro-batch: the name of a part of `Tokens`.
    """

    tokens: str
    positions: str
    options: ModelOptions
    reads: str = "inputs"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return both tables."""
        sizes = self.options
        return (
            Parameter(self.tokens, (sizes.vocab_size, sizes.hidden_size), split=0),
            Parameter(self.positions, (sizes.sequence_length, sizes.hidden_size)),
        )

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return the sum of both look-ups; a shard contributes zeros for the bytes of the others."""
        assert hidden is None, "only a block without inputs embeds"
        table, positions = weights[self.tokens], weights[self.positions]
        values: Tensor = getattr(tokens, self.reads)
        if shards.count == 1:
            return functional.embedding(values, table) + positions
        rows, mine = _local_rows(values, _first_row(self.options.vocab_size, shards), len(table))
        part = functional.embedding(rows, table) * mine.unsqueeze(-1).to(table.dtype)
        return sum_over_shards(part, shards) + positions


@dataclass(frozen=True)
class Output:
    """Normalize, score every byte of the vocabulary, and return the mean cross entropy of the true bytes.

    Attributes:
        name: Prefix of the normalization's parameters.
        tokens: Name of the table of the vocabulary, the embedding's where they are tied.
        options: Give the sizes.
        truth: Which bytes of a micro-batch are true: the name of a part of `Tokens`.
        replicas: Of the model, each with micro-batches of its own; the loss is divided by so many, so that
            the sum over the replicas is their mean.
    """

    name: str
    tokens: str
    options: ModelOptions
    truth: str = "targets"
    replicas: int = 1

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the normalization's parameters and the table."""
        return (
            *norm_parameters(f"{self.name}.norm", self.options),
            Parameter(self.tokens, (self.options.vocab_size, self.options.hidden_size), split=0),
        )

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return the loss: a scalar."""
        assert hidden is not None, "an output layer has an input"
        logits = normal_copy(hidden, self.name, weights, shards) @ weights[self.tokens].T
        truth: Tensor = getattr(tokens, self.truth)
        if shards.count == 1:
            return functional.cross_entropy(logits.flatten(0, 1), truth.flatten()) / self.replicas
        first_row = _first_row(self.options.vocab_size, shards)
        return _sharded_cross_entropy(logits, truth, first_row, shards) / self.replicas


@dataclass(frozen=True)
class FeedForward:
    """Add a two-layer perceptron to its input; the first is cut by columns, the second by rows.

    Attributes:
        name: Prefix of the parameters.
        options: Give the width of input and output; the middle is four times as wide.
    """

    name: str
    options: ModelOptions

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the normalization and of both layers; weights are (in, out)."""
        hidden, middle = self.options.hidden_size, 4 * self.options.hidden_size
        return (
            *norm_parameters(f"{self.name}.norm", self.options),
            Parameter(f"{self.name}.up.weight", (hidden, middle), split=1),
            Parameter(f"{self.name}.up.bias", (middle,), split=0),
            Parameter(f"{self.name}.down.weight", (middle, hidden), split=0),
            Parameter(f"{self.name}.down.bias", (hidden,)),
        )

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return the input plus the perceptron's output."""
        assert hidden is not None, "a feed-forward layer has an input"
        normal = normal_copy(hidden, self.name, weights, shards)
        up, bias, down = (weights[f"{self.name}.{each}"] for each in ("up.weight", "up.bias", "down.weight"))
        part = functional.gelu(normal @ up + bias) @ down
        return with_residual(hidden, part, weights[f"{self.name}.down.bias"], shards)


@dataclass(frozen=True)
class Normalization:
    """Normalize every position; never cut.

    Attributes:
        name: Prefix of the parameters.
        options: Give the width of input and output.
    """

    name: str
    options: ModelOptions

    def parameters(self) -> tuple[Parameter, ...]:
        """Return both parameters."""
        return norm_parameters(self.name, self.options)

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return the normalized input."""
        assert hidden is not None, "a normalization has an input"
        return norm(hidden, self.name, weights)


def norm_parameters(name: str, options: ModelOptions) -> tuple[Parameter, Parameter]:
    """Return the two parameters of a layer normalization; never cut."""
    shape = (options.hidden_size,)
    return Parameter(f"{name}.weight", shape, mean=1.0), Parameter(f"{name}.bias", shape)


def norm(hidden: Tensor, name: str, weights: Weights) -> Tensor:
    """Return the layer normalization of the last dimension."""
    return functional.layer_norm(
        hidden, (hidden.shape[-1],), weights[f"{name}.weight"], weights[f"{name}.bias"]
    )


def normal_copy(hidden: Tensor, name: str, weights: Weights, shards: Shards) -> Tensor:
    """Return the layer normalization with which a layer of this name begins, as this shard's copy."""
    return copy_to_shards(norm(hidden, f"{name}.norm", weights), shards)


def with_residual(hidden: Tensor, part: Tensor, bias: Tensor, shards: Shards) -> Tensor:
    """Return a layer's input plus its output: the sum of the shards' parts, and a bias that is not cut."""
    return hidden + (sum_over_shards(part, shards) + bias)


def _first_row(vocab_size: int, shards: Shards) -> int:
    """Return the first vocabulary row of this shard, as `Shards.of` cuts them."""
    small, larger = divmod(vocab_size, shards.count)
    return shards.index * small + min(shards.index, larger)


def _local_rows(values: Tensor, first: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """Return each value's row in a shard, 0 where it is another shard's, and which are this shard's."""
    mine = (values >= first) & (values < first + num_rows)
    return (values - first) * mine, mine


def _sharded_cross_entropy(logits: Tensor, targets: Tensor, first_row: int, shards: Shards) -> Tensor:
    """Return the mean of ``log sum exp(logits) - logits[target]`` over logits cut along the vocabulary."""
    peak = torch.stack(shards.gather(logits.detach().amax(-1))).amax(0)
    shifted = logits - peak.unsqueeze(-1)
    rows, mine = _local_rows(targets, first_row, logits.shape[-1])
    at_target = shifted.gather(-1, rows.unsqueeze(-1)).squeeze(-1) * mine.to(logits.dtype)
    total, at_target = sum_over_shards(torch.stack([shifted.exp().sum(-1), at_target]), shards).unbind(0)
    return (total.log() - at_target).mean()
