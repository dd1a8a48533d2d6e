"""Layers at the ends of a model and between its parts: vocabulary, projections, the user's own layers.

Layers known by measurements, not by their shape, are here too; their times are the profile owner's to know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from placements.block import PlacementError
from placements.models.layers import Layer
from placements.models.operators import LOGITS, Kernel, Product, Work


@dataclass(frozen=True, kw_only=True)
class VocabularyLayer(Layer):
    """A layer with a table of the vocabulary, whose rows GPUs share; the last one may have fewer of them.

    Attributes:
        hidden_size: Width, h.
        vocab_size: Rows, v; classes of an image.
        sequence_length: Tokens of a sample that it is computed for, s.
        tied: The table is the first embedding's, which the same GPUs hold.
    """

    hidden_size: int
    vocab_size: int
    sequence_length: int
    tied: bool = False

    @property
    def owns_parameters(self) -> bool:
        """False if the layer shares the embedding's table."""
        return not self.tied

    @property
    def apart(self) -> Self:
        """The layer with its own copy of the table, as on other GPUs than the first embedding's."""
        return replace(self, tied=False)


@dataclass(frozen=True, kw_only=True)
class EmbeddingLayer(VocabularyLayer):
    """The embedding of tokens and positions; GPUs that share its table sum up the rows they look up.

    Its gradient goes to the rows that were looked up, so that its backward needs no weights.

    Attributes:
        num_positions: Learned positions, on each GPU; 0 for none.
        cross_length: Tokens of an encoder's output that pass on with its own; 0 for none.
    """

    num_positions: int = 0
    cross_length: int = 0
    may_be_zero = ("num_positions", "cross_length")
    reads_weights_backward = False

    def fill(self, work: Work) -> None:
        """Add the rows read, written and masked outside a GPU's share, and the dense 32-bit gradient."""
        rows, h = math.ceil(self.vocab_size / work.t), self.hidden_size
        numbers = self.sequence_length * h
        work.outputs = numbers + self.cross_length * h
        work.parameters = (rows + self.num_positions) * h
        work.kernels.append(Kernel("rows", 3 * numbers, 0, launches=(1, 0)))
        work.reduces.append((numbers, 0))
        work.gradient_bytes = 8 * rows * h


@dataclass(frozen=True, kw_only=True)
class OutputLayer(VocabularyLayer):
    """The output layer with the loss."""

    def fill(self, work: Work) -> None:
        """Add one product and the loss: logits and their 32-bit softmax are kept.

        Logits are written and read again, their 32-bit softmax is written and read, and their gradient
        written. Each GPU adds its rows' part to the gradient of the input. The output is the loss.
        """
        s, h, n = self.sequence_length, self.hidden_size, work.number_bytes
        rows = math.ceil(self.vocab_size / work.t)
        logits = s * rows
        work.inputs, work.outputs, work.parameters = s * h, 1, rows * h
        work.products.append(Product("logits", h, rows, s, "outputs"))
        work.kernels.append(Kernel("loss", (2 + 4 / n) * logits, (1 + 4 / n) * logits, kind="loss"))
        work.keep("input of the final norm", s * h, is_whole=True)
        work.keep("input of the output layer", s * h, is_whole=True)
        work.keep(LOGITS, logits, n + 4)
        work.reduces.append((0, s * h))


@dataclass(frozen=True, kw_only=True)
class ProjectionLayer(Layer):
    """A matrix product of tokens or patches, which each tensor-parallel GPU computes whole.

    It embeds the pixels of an image's patches (ViT), merges four patches to one (Swin), or changes the width.

    Attributes:
        input_size: Numbers of a token, of which it makes `hidden_size`.
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

    def fill(self, work: Work) -> None:
        """Add one product; kept tensors are its input, and the norm's input."""
        s, width, h = self.sequence_length, self.input_size, self.hidden_size
        work.inputs, work.outputs = s * width, s * h
        work.parameters = (width + self.num_positions) * h + (2 * width if self.normed else h)
        work.other_flops = 2 * s * width * h
        if self.normed:
            work.keep("input of the norm", s * width, is_whole=True)
        work.keep("input of the projection", s * width, is_whole=True)


@dataclass(frozen=True, kw_only=True)
class CustomLayer(Layer):
    """A layer with costs given by the user, for one sample on one GPU; no GPUs share the layer.

    Attributes:
        flops: Floating-point operations of the forward.
        kept_bytes: Kept from the forward to the backward, the input included.
        output_numbers: Numbers of its output; None for as many as of its input.
    """

    num_weights: int
    flops: int
    kept_bytes: int
    input_numbers: int
    output_numbers: int | None = None
    may_be_zero = ("num_weights", "flops", "kept_bytes")

    def check(self, t: int, experts: int) -> None:
        """Ensure that no GPUs share the layer."""
        super().check(t, experts)
        if t > 1:
            fault = f"{t} GPUs cannot share {self.name!r}, whose matrices are not known"
            raise PlacementError(f"tensor_parallel: {fault}; use 1")

    def fill(self, work: Work) -> None:
        """Add the operations and tensors that the user gives."""
        work.inputs, work.outputs = self.input_numbers, self.output_numbers or self.input_numbers
        work.parameters, work.other_flops = self.num_weights, self.flops
        work.keep("input and other tensors", self.kept_bytes, 1)


Role = Literal["embedding", "block", "head"]
"""Place of a layer in its model: the first one, one of those between, or the last one with the loss."""


@dataclass(frozen=True, kw_only=True)
class ProfiledLayer(Layer):
    """A layer of a profile.

    Attributes:
        number: Number of the profile's entry with its figures, from 0; equal layers have one number.
        kept_bytes: Kept by one sample from the forward to the backward, on one GPU.
        input_numbers: Numbers of its input; 0 for what is not kept, as tokens.
    """

    role: Role
    number: int
    num_weights: int
    kept_bytes: int
    input_numbers: int
    output_numbers: int
    may_be_zero = ("number", "num_weights", "kept_bytes", "input_numbers", "output_numbers")

    def fill(self, work: Work) -> None:
        """Add equal shares of the measured weights and kept bytes; operations are unknown."""
        work.inputs, work.outputs = self.input_numbers, self.output_numbers
        work.parameters = self.num_weights / work.t
        work.keep("all tensors, as measured", self.kept_bytes / work.t, 1)
