"""What a model reads: slices of a text as bytes, the same on every device without any communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from runtime.models.core.options import ModelError, ModelOptions
from runtime.transport.shards import share_of

BUNDLED_TEXT = Path(__file__).with_name("text.txt")
"""Twelve of Shakespeare's sonnets, plain ASCII."""


MASK_STRIDE = 4
"""Every so many bytes of a sample one is hidden from a model that has to restore it."""


class Tokens:
    """One micro-batch: what the model reads, and the byte that follows each.

    It is cut out of the text when somebody looks at it for the first time: most blocks read nothing.

    Args:
        read: Returns inputs, targets and context.
    """

    def __init__(self, read: Callable[[], tuple[Tensor, Tensor, Tensor]]) -> None:
        """Read nothing yet."""
        self._read = read

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._read()

    @property
    def inputs(self) -> Tensor:
        """Byte values; shape ``(micro_batch_size, sequence_length)``."""
        return self._parts[0]

    @property
    def targets(self) -> Tensor:
        """Each input's successor; same shape."""
        return self._parts[1]

    @property
    def context(self) -> Tensor:
        """The bytes of the text before the inputs; same shape."""
        return self._parts[2]

    def at_hand(self) -> Tokens:
        """Return them cut out of the text, as a compiler can handle them."""
        return TokensAtHand(*self._parts)

    def share(self, index: int, count: int) -> Tokens:
        """Return one of several equal shares of the samples."""
        if count == 1:
            return self

        def shares() -> tuple[Tensor, Tensor, Tensor]:
            inputs, targets, context = (share_of(values, index, count) for values in self._parts)
            return inputs, targets, context

        return Tokens(shares)

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


class TokensAtHand(Tokens):
    """One micro-batch that is cut out of its text already.

    Args:
        inputs: See `Tokens`.
        targets: Likewise.
        context: Likewise.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, context: Tensor) -> None:
        """Take them."""
        self._read_parts = inputs, targets, context

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._read_parts


class Text:
    """A text of which every micro-batch of every iteration is a fixed slice.

    Samples follow each other through the text and begin again near its end, so micro-batches differ as
    long as the text is long enough.

    Args:
        options: Say which text, and how long and how many the samples of a micro-batch are.
        num_micro_batches: Of one iteration.
        device: Where the slices are put.

    Raises:
        ModelError: The file cannot be read or is shorter than one sample.
    """

    def __init__(
        self, options: ModelOptions, num_micro_batches: int, device: torch.device | str = "cpu"
    ) -> None:
        """Read the text."""
        path = BUNDLED_TEXT if options.text is None else Path(options.text)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{path} cannot be read ({error.strerror}); give a file", "text") from None
        self._length = options.sequence_length
        self._rows = options.micro_batch_size
        self._num_micro_batches = num_micro_batches
        if len(content) < self._length + 2:
            raise ModelError(
                f"{path} has {len(content)} bytes; give at least sequence_length + 2 = {self._length + 2}",
                "text",
            )
        self._bytes = torch.frombuffer(bytearray(content), dtype=torch.uint8).long().to(device)

    def micro_batch(self, iteration: int, micro_batch: int) -> Tokens:
        """Return a micro-batch's slice of the text, the same for every source and sink of the model."""
        first = (iteration * self._num_micro_batches + micro_batch) * self._rows
        return Tokens(lambda: self._read(first))

    def _read(self, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is read from a sample on, each sample in a row of its own."""
        last_start = len(self._bytes) - self._length - 1
        starts = [((first + row) * self._length) % last_start for row in range(self._rows)]
        samples = self._slices(starts, self._length + 1)
        context = self._slices([(start - self._length) % last_start for start in starts], self._length)
        return samples[:, :-1].contiguous(), samples[:, 1:].contiguous(), context

    def _slices(self, starts: Sequence[int], length: int) -> Tensor:
        return torch.stack([self._bytes[start : start + length] for start in starts])
