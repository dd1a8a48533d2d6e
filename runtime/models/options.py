"""What a model is asked to be: the literal dictionary of a script, parsed once into a typed record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

DTYPES = ("float64", "float32", "bfloat16")
"""Element types a model can have; only float64 can be compared with the reference to 1e-12."""

NUM_BYTES = 256
"""Values of a byte: the smallest vocabulary of a byte-level model."""


class ModelError(ValueError):
    """A model is wrong, or does not fit its placement; the message names the field and the remedy."""


@dataclass(frozen=True)
class ModelOptions:
    """The shape, data and training of a model.

    Attributes:
        name: ``gpt`` (a transformer cut into the stages of a chain) or ``synthetic`` (any graph of blocks).
        hidden_size: Width of the residual stream.
        sequence_length: Tokens of one sample.
        micro_batch_size: Samples of one micro-batch.
        num_layers: Transformer layers over all stages; ``gpt`` only.
        num_heads: Attention heads, a divisor of `hidden_size`; ``gpt`` only.
        vocab_size: Rows of the embedding; at least 256, the values of a byte.
        dtype: Of parameters, activations and gradients; one of `DTYPES`.
        seed: Of the initial parameters.
        learning_rate: Of plain stochastic gradient descent.
        text: Path of the file trained on, read as bytes; None for the text of the package.

    Raises:
        ModelError: A field is out of its range.
    """

    name: str
    hidden_size: int
    sequence_length: int
    micro_batch_size: int
    num_layers: int = 1
    num_heads: int = 1
    vocab_size: int = NUM_BYTES
    dtype: str = "float64"
    seed: int = 0
    learning_rate: float = 0.1
    text: str | None = None

    def __post_init__(self) -> None:
        """Check the type and range of every field."""
        for name in ("hidden_size", "sequence_length", "micro_batch_size", "num_layers", "num_heads"):
            _check_integer(name, getattr(self, name), 1)
        _check_integer("vocab_size", self.vocab_size, NUM_BYTES)
        _check_integer("seed", self.seed, 0)
        if self.dtype not in DTYPES:
            raise ModelError(f"model.dtype: {self.dtype!r} is not known; use {', '.join(DTYPES)}")
        if isinstance(self.learning_rate, bool) or not isinstance(self.learning_rate, (int, float)):
            raise ModelError(f"model.learning_rate: {self.learning_rate!r} is not a number")
        if not (math.isfinite(self.learning_rate) and self.learning_rate >= 0):
            raise ModelError(f"model.learning_rate: {self.learning_rate} is not a number of at least 0")
        if self.text is not None and not isinstance(self.text, str):
            raise ModelError(f"model.text: {self.text!r} is not the path of a file")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelOptions:
        """Read the options from plain data.

        Raises:
            ModelError: A field is missing, unknown or out of its range.
        """
        known = [field.name for field in fields(cls)]
        for key in data:
            if key not in known:
                raise ModelError(f"model: has an unknown field {key!r}; the fields are {', '.join(known)}")
        for key in ("name", "hidden_size", "sequence_length", "micro_batch_size"):
            if key not in data:
                raise ModelError(f"model: lacks the field {key!r}; add it")
        return cls(**data)


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModelError(f"model.{name}: {value!r} is not a whole number of at least {least}")
