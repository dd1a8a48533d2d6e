"""Data of our models: slices of a text as bytes, the same on every device without any communication."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from runtime.models.core.options import ModelError, ModelOptions

_BUNDLED_TEXT = Path(__file__).with_name("text.txt")
"""Twelve of Shakespeare's sonnets, plain ASCII."""

MASK_STRIDE = 4
"""Distance in bytes between those of a sample that are hidden from a model that has to restore them."""


class Tokens(NamedTuple):
    """One micro-batch: byte values, each of shape ``(micro_batch_size, sequence_length)``.

    Attributes:
        inputs: The bytes that the model reads.
        targets: Each input's successor.
        context: The bytes of the text before the inputs.
    """

    inputs: Tensor
    targets: Tensor
    context: Tensor

    def first(self, length: int) -> Tokens:
        """Return the first bytes of each sample."""
        return Tokens(*(part[:, :length].contiguous() for part in self))

    @property
    def masked(self) -> Tensor:
        """The inputs with zero for every byte that is hidden."""
        masked = self.inputs.clone()
        masked[:, ::MASK_STRIDE] = 0
        return masked

    @property
    def hidden(self) -> Tensor:
        """The hidden bytes; shape ``(micro_batch_size, ceil(sequence_length / MASK_STRIDE))``."""
        return self.inputs[:, ::MASK_STRIDE]


class Text:
    """A text of which every micro-batch of every iteration is a fixed slice.

    Samples follow each other through the text and begin again near its end, so micro-batches differ as
    long as the text is long enough.

    Args:
        options: Give the text, and the length and number of a micro-batch's samples.
        num_micro_batches: Number of micro-batches of one iteration.
        device: Where the slices are put.

    Raises:
        ModelError: The file cannot be read or is shorter than one sample.
    """

    def __init__(
        self, options: ModelOptions, num_micro_batches: int, device: torch.device | str = "cpu"
    ) -> None:
        path = _BUNDLED_TEXT if options.text is None else Path(options.text)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{path} cannot be read ({error.strerror}); give a file", "text") from None
        self._length, self._rows = options.sequence_length, options.micro_batch_size
        self._num_micro_batches = num_micro_batches
        if len(content) < self._length + 2:
            raise ModelError(
                f"{path} has {len(content)} bytes; give at least sequence_length + 2 = {self._length + 2}",
                "text",
            )
        self._bytes = torch.frombuffer(bytearray(content), dtype=torch.uint8).long().to(device)

    def micro_batch(self, iteration: int, micro_batch: int) -> Tokens:
        """Return a micro-batch's slice of the text, each sample in a row of its own."""
        first = (iteration * self._num_micro_batches + micro_batch) * self._rows
        last_start = len(self._bytes) - self._length - 1
        starts = [((first + row) * self._length) % last_start for row in range(self._rows)]
        inputs, targets, context = (
            torch.stack([self._bytes[start : start + self._length] for start in shifted])
            for shifted in (
                starts,
                [start + 1 for start in starts],
                [(start - self._length) % last_start for start in starts],
            )
        )
        return Tokens(inputs, targets, context)
