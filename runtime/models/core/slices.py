"""Slices of a sequence: blocks that keep keys and values for the slices after them, with gradients through.

The blocks of all slices of a stage share the stage's keys and values, and its parameters. A slice's keys and
values are cut off from the graph that made them. The backward of a later slice adds to their gradients; the
backward of their own slice, which comes after, begins with the sums. Only attention knows other slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from runtime.models.core.attention import Attention, with_output
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.options import ModelError, ModelOptions


class SliceAttention(Attention):
    """Add self-attention of a slice to its input, over the slices before and its own."""

    def attend(self, hidden: Tensor, past: Sequence[Sequence[Tensor]]) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the input plus the attention's output, and the slice's own key and value.

        Args:
            hidden: Hidden values of the slice.
            past: Key and value of each slice before.
        """
        query, *new = self.heads(hidden)
        before = sum(pair[0].shape[2] for pair in past)
        parts = [[*(pair[j] for pair in past), new[j]] for j in (0, 1)]
        key, value = (torch.cat(part, dim=2) for part in parts)
        seen = query.new_ones(query.shape[2], before + query.shape[2], dtype=torch.bool).tril(before)
        with _not_saved_twice([(key, parts[0]), (value, parts[1])]):
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return with_output(self, hidden, mixed), new


def _not_saved_twice(joined: Sequence[tuple[Tensor, Sequence[Tensor]]]) -> saved_tensors_hooks:
    """Let the backward join tensors anew from their parts, which are kept anyway, rather than keep a copy."""
    parts_of = {whole.data_ptr(): [part.detach() for part in parts] for whole, parts in joined}
    shape = joined[0][0].shape

    def pack(saved: Tensor) -> Any:
        parts = parts_of.get(saved.data_ptr())
        return saved if parts is None or saved.shape != shape else parts

    def unpack(kept: Any) -> Tensor:
        return torch.cat(kept, dim=2) if isinstance(kept, list) else kept

    return saved_tensors_hooks(pack, unpack)


class KeysAndValues(dict[int, dict[int, list[Tensor]]]):
    """Keys and values of a stage's slices: micro-batch -> slice -> a key and a value of each layer."""

    def before(self, micro_batch: int, index: int) -> list[list[Tensor]]:
        """Return the keys and values of the slices before one.

        Raises:
            ModelError: One of them did not run.
        """
        left = self.get(micro_batch, {})
        if missing := [i for i in range(index) if i not in left]:
            raise ModelError(
                f"slice {index} of micro-batch {micro_batch} runs before slice {missing[0]}, whose keys and "
                "values it needs; let its forward block be after that one"
            )
        return [left[i] for i in range(index)]


class SlicedBlock(LayeredBlock):
    """Layers over one slice of each sequence, `length` tokens; a stage's slices share the keys and values."""

    def __init__(
        self, options: ModelOptions, index: int, is_last: bool, length: int, kept: KeysAndValues
    ) -> None:
        super().__init__(options)
        self.returns = [(options.micro_batch_size, length, options.hidden_size)]
        self.index, self.is_last = index, is_last
        self._past = kept
        self._micro_batch, self._trains = 0, False

    def begin(self, micro_batch: int, trains: bool) -> None:
        """Say of which micro-batch the next call is, and whether a backward follows."""
        self._micro_batch, self._trains = micro_batch, trains

    def past(self, micro_batch: int) -> list[Tensor]:
        """Return the keys and values that its forward read."""
        return [tensor for left in self._past.before(micro_batch, self.index) for tensor in left]

    def forget(self, micro_batch: int) -> None:
        """Forget its keys and values, after its backward; all slices', after the last forward without one."""
        left = self._past.get(micro_batch, {})
        for i in [self.index] if self._trains else list(left):
            left.pop(i, None)
        if not left:
            self._past.pop(micro_batch, None)

    def clear(self) -> None:
        """Forget the keys and values of all slices of the stage."""
        self._past.clear()

    def forward(self, *given: Tensor) -> Any:
        """Return the hidden values after the last layer, or the slice's part of the loss."""
        hidden, truth = self.started(given)
        past = self._past.before(self._micro_batch, self.index)
        made: list[Tensor] = []
        for layer in self.layers:
            if isinstance(layer, SliceAttention):
                of_layer = [left[len(made) : len(made) + 2] for left in past]
                hidden, new = layer.attend(hidden, of_layer)
                made += new
            else:
                hidden = layer(hidden)
        result = hidden if self.output is None else self.output(hidden, truth)
        left = self._past.setdefault(self._micro_batch, {})
        if self.index not in left:  # the second time, for its backward, they stay
            left[self.index] = [tensor.detach().requires_grad_(self._trains) for tensor in made]
        return _WithGradients.apply(left[self.index], result, *made)  # type: ignore[no-untyped-call]


class _WithGradients(torch.autograd.Function):
    """Hand on an output whose backward also begins at keys and values, with gradients of later slices."""

    @staticmethod
    def forward(context: Any, left: Sequence[Tensor], output: Tensor, *made: Tensor) -> Tensor:
        context.left = left
        return output.view_as(output)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return None, *gradients, *(tensor.grad for tensor in context.left)  # None where no slice read them


def cannot_be_cut(model: str) -> ModelError:
    """Return the error of a model whose blocks cannot be slices."""
    return ModelError(
        f"{model} cannot run slices of a sequence: that needs causal attention which keeps keys and values; "
        "use the model 'gpt', or a placement of whole sequences",
        "name",
    )


def slice_spans(options: ModelOptions, num_slices: int) -> list[slice]:
    """Return the tokens of each slice: of the lengths given, or even ones, the first get the extra.

    Raises:
        ModelError: The lengths do not add up to the sequence, or a slice has no token.
    """
    length, lengths = options.sequence_length, options.slice_lengths
    if lengths is None:
        small, larger = divmod(length, num_slices)
        lengths = [small + (i < larger) for i in range(num_slices)]
    if len(lengths) != num_slices or sum(lengths) != length or min(lengths) < 1:
        raise ModelError(
            f"{list(lengths)} are not {num_slices} slices of one token or more, of {length} tokens together; "
            "change either",
            "slice_lengths" if options.slice_lengths is not None else "sequence_length",
        )
    return [slice(end - length, end) for end, length in zip(accumulate(lengths), lengths, strict=True)]
