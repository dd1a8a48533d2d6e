"""Layers at the ends of a model and between its parts: vocabulary, projections, and layers that a user gives.

As `placements.models.layers`, the module knows shapes alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from placements.block import PlacementError
from placements.models.layers import Layer, Precision, Streams
from placements.models.operators import KeptTensor, Product

SOFTMAX = "softmax of the logits"
"""Name of the tensor whose numbers a framework may keep in fewer bytes."""


@dataclass(frozen=True, kw_only=True)
class VocabularyLayer(Layer):
    """A layer with a table of the vocabulary, whose rows are shared by tensor-parallel GPUs.

    Attributes:
        hidden_size: Width, h.
        vocab_size: Rows, v; classes of an image.
        sequence_length: Tokens of a sample that it is computed for, s.
        tied: Its table is that of the first embedding, which the same GPUs hold. Where they do not, see
            `apart`.
    """

    hidden_size: int
    vocab_size: int
    sequence_length: int
    tied: bool = False

    @property
    def owns_parameters(self) -> bool:
        """Not where it is tied."""
        return not self.tied

    @property
    def apart(self) -> Self:
        """The layer with its own copy of the table, as on other GPUs than the first embedding's."""
        return replace(self, tied=False)


@dataclass(frozen=True, kw_only=True)
class EmbeddingLayer(VocabularyLayer):
    """The embedding of tokens and positions, whose rows the GPUs that share it sum up.

    Attributes:
        num_positions: Learned positions, on each GPU; 0 for none.
        cross_length: Tokens of an encoder's output that pass on with its own; 0 for none.
    """

    num_positions: int = 0
    cross_length: int = 0
    may_be_zero = ("num_positions", "cross_length")

    @property
    def reads_weights_backward(self) -> bool:
        """Not: its gradient goes to the rows that were looked up."""
        return False

    def parameters(self, t: int) -> float:
        """Return h for each row, of which the last GPU may have fewer, and for each position."""
        return (math.ceil(self.vocab_size / t) + self.num_positions) * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All rows and positions, unless they are the first embedding's."""
        return 0 if self.tied else (self.vocab_size + self.num_positions) * self.hidden_size

    def forward_flops(self, t: int) -> float:
        """Return none: rows are copied."""
        return 0.0

    def streams(self, precision: Precision, t: int) -> Streams:
        """Return rows read, written, and masked where they are others'; a dense gradient added in 32 bits."""
        gradient = 8 * math.ceil(self.vocab_size / t) * self.hidden_size
        return Streams(3 * precision.number_bytes * self._looked_up, 0.0, gradient)

    def kept_tensors(self, precision: Precision, t: int) -> tuple[KeptTensor, ...]:
        """Return nothing: its output is the first layer's input."""
        return ()

    def input_elements(self) -> int:
        """Return none but the tokens."""
        return 0

    def output_elements(self) -> int:
        """Return s h, and an encoder's output that passes on with it."""
        return self._looked_up + self.cross_length * self.hidden_size

    def reduced_elements(self, whole_experts: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what is looked up, to which each GPU adds its rows."""
        return (self._looked_up,), ()

    @property
    def _looked_up(self) -> int:
        return self.sequence_length * self.hidden_size


@dataclass(frozen=True, kw_only=True)
class OutputLayer(VocabularyLayer):
    """The output layer with the loss."""

    @property
    def num_parameters(self) -> int:
        """All rows, unless they are the embedding's."""
        return 0 if self.tied else self.vocab_size * self.hidden_size

    def parameters(self, t: int) -> float:
        """Return h for each row."""
        return math.ceil(self.vocab_size / t) * self.hidden_size

    def forward_flops(self, t: int) -> float:
        """Return one product, 2 s h for each row."""
        return 2 * self.sequence_length * self.parameters(t)

    def streams(self, precision: Precision, t: int) -> Streams:
        """Return the logits out, in again, their 32-bit softmax out; it in again, their gradient out."""
        n, logits = precision.number_bytes, self.sequence_length * math.ceil(self.vocab_size / t)
        return Streams((2 * n + 4) * logits, (4 + n) * logits)

    def products(self, t: int, experts: int = 1) -> tuple[Product, ...]:
        """Return one product."""
        rows = math.ceil(self.vocab_size / t)
        return (Product("logits", self.hidden_size, rows, self.sequence_length, "outputs", 0, False),)

    def kept_tensors(self, precision: Precision, t: int) -> tuple[KeptTensor, ...]:
        """Return its input, and for each logit the logit or its gradient and the softmax."""
        logits = self.sequence_length * math.ceil(self.vocab_size / t)
        return (
            KeptTensor("input of the output layer", self.input_elements(), is_whole=True),
            KeptTensor("logits or their gradient", logits),
            KeptTensor(SOFTMAX, logits, number_bytes=4),
        )

    def input_elements(self) -> int:
        """Return s h."""
        return self.sequence_length * self.hidden_size

    def output_elements(self) -> int:
        """Return one: the loss."""
        return 1

    def reduced_elements(self, whole_experts: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the gradient of its input, to which each GPU adds its rows' part."""
        return (), (self.input_elements(),)


@dataclass(frozen=True, kw_only=True)
class ProjectionLayer(Layer):
    """A matrix product of tokens or patches, which each tensor-parallel GPU computes whole.

    It embeds the pixels of an image's patches (ViT), merges four patches to one (Swin), or changes the width.

    Attributes:
        input_size: Numbers of a token.
        hidden_size: Width that it makes of them.
        sequence_length: Tokens of a sample.
        num_positions: Learned positions; 0 for none.
        normed: A norm comes before the product, which then has no bias, as where patches are merged.
    """

    input_size: int
    hidden_size: int
    sequence_length: int
    num_positions: int = 0
    normed: bool = False
    may_be_zero = ("num_positions",)

    def parameters(self, t: int) -> float:
        """Return the matrix, the bias or the norm, and positions."""
        other = 2 * self.input_size if self.normed else self.hidden_size
        return (self.input_size + self.num_positions) * self.hidden_size + other

    def forward_flops(self, t: int) -> float:
        """Return one product."""
        return 2 * self.sequence_length * self.input_size * self.hidden_size

    def kept_tensors(self, precision: Precision, t: int) -> tuple[KeptTensor, ...]:
        """Return its input, and the norm's."""
        names = (
            ("input of the norm", "input of the projection") if self.normed else ("input of the projection",)
        )
        return tuple(KeptTensor(name, self.input_elements(), is_whole=True) for name in names)

    def input_elements(self) -> int:
        """Return the numbers of all tokens."""
        return self.sequence_length * self.input_size

    def output_elements(self) -> int:
        """Return h for each token."""
        return self.sequence_length * self.hidden_size


@dataclass(frozen=True, kw_only=True)
class CustomLayer(Layer):
    """A layer of which the user says what it costs, for one sample on one GPU.

    Tensor-parallel GPUs share parameters, operations and what is kept besides the input, if there is
    something that they all-reduce; otherwise they cannot share it.

    Attributes:
        num_weights: Parameters.
        flops: Floating-point operations of the forward.
        kept_bytes: Kept from the forward to the backward, the input included.
        input_numbers: Numbers of its input.
        output_numbers: Numbers of its output; None for as many.
        num_all_reduces: All-reduces of the output in the forward, and as many of the input in the backward.
    """

    num_weights: int
    flops: int
    kept_bytes: int
    input_numbers: int
    output_numbers: int | None = None
    num_all_reduces: int = 0
    may_be_zero = ("num_weights", "flops", "kept_bytes", "num_all_reduces")

    def check(self, t: int, experts: int) -> None:
        """Ensure that GPUs that share it have something to all-reduce, and no experts.

        Raises:
            PlacementError: They have not.
        """
        super().check(t, experts)
        if t > 1 and not self.num_all_reduces:
            raise PlacementError(
                f"tensor_parallel: {t} GPUs cannot share {self.name!r}, which all-reduces nothing; use 1, or "
                "give num_all_reduces"
            )

    def parameters(self, t: int) -> float:
        """Return an equal share."""
        return self.num_weights / t

    def forward_flops(self, t: int) -> float:
        """Return an equal share."""
        return self.flops / t

    def kept_tensors(self, precision: Precision, t: int) -> tuple[KeptTensor, ...]:
        """Return the input, and a share of the rest."""
        own = min(precision.number_bytes * self.input_numbers, self.kept_bytes)
        return (
            KeptTensor("input", own, is_whole=True, number_bytes=1),
            KeptTensor("other tensors", (self.kept_bytes - own) / t, number_bytes=1),
        )

    def input_elements(self) -> int:
        """Return the input's."""
        return self.input_numbers

    def output_elements(self) -> int:
        """Return the output's."""
        return self.input_numbers if self.output_numbers is None else self.output_numbers

    def reduced_elements(self, whole_experts: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return output and input as often as they are all-reduced."""
        return (self.output_elements(),) * self.num_all_reduces, (self.input_numbers,) * self.num_all_reduces
