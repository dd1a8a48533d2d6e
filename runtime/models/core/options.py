"""What a model is asked to be: the literal dictionary of a script, parsed once into a typed record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from schedsearch.semantics.versions import WeightMode

DTYPES = ("float64", "float32", "bfloat16")
"""Element types a model can have; only float64 can be compared with the reference to 1e-12."""

OPTIMIZERS = ("sgd", "adamw")
"""How gradients can move parameters."""

NUM_BYTES = 256
"""Values of a byte: the smallest vocabulary of a byte-level model."""

USER_MODEL = "module"
"""The name of a model that a Python file of the user's makes."""

_NOT_OF_LAYERS = ("synthetic", USER_MODEL)
"""The models whose blocks hold no number of transformer layers."""

_OF_LAYERS = (
    "hidden_size",
    "sequence_length",
    "micro_batch_size",
    "num_layers",
    "layers_per_block",
    "num_heads",
    "vocab_size",
    "text",
)


RARE = {"momentum": 0.0, "weight_versions": WeightMode.FLUSH, "micro_batches_per_update": 1}
"""Options that plain data has only where they are not as usual."""


class ModelError(ValueError):
    """A model is wrong, or does not fit its placement; the message names the field and the remedy."""


@dataclass(frozen=True)
class ModelOptions:
    """The shape, data and training of a model.

    Attributes:
        name: ``gpt``, ``mt5``, ``flava``, ``synthetic`` (any graph of blocks) or ``module`` (the user's own).
        hidden_size: Width of the residual stream. This and all other sizes are without effect on ``module``.
        sequence_length: Tokens of one sample.
        micro_batch_size: Samples of one micro-batch.
        num_layers: Transformer layers: of ``gpt`` over all stages, of ``mt5`` in the encoder and as many in
            the decoder, of ``flava`` in each of the two encoders; without effect on ``synthetic``. None for
            as many as `layers_per_block` gives, or 1.
        num_heads: Attention heads, a divisor of `hidden_size`; without effect on ``synthetic``.
        vocab_size: Rows of the embedding; at least 256, the values of a byte.
        dtype: Of parameters, activations and gradients; one of `DTYPES`.
        seed: Of the initial parameters, and of dropout in a ``module``.
        learning_rate: Of the optimizer.
        text: Path of the file trained on, read as bytes; None for the text of the package.
        path: Python file of the user's own model, see `runtime.models.user.user`; ``module`` only.
        optimizer: ``sgd`` (plain gradient descent) or ``adamw``.
        weight_decay: Of the optimizer.
        momentum: Of plain gradient descent.
        weight_versions: Which version of the weights a micro-batch reads, and so whether the pipeline is
            flushed before an update; one of `schedsearch.semantics.versions.WeightMode`.
        micro_batches_per_update: Micro-batches whose gradients make one update; without effect with a flush,
            after which all do.
        recompute: The forward blocks whose activations are computed again for the backward rather than
            kept, or ``all``.
        layers_per_block: Transformer layers of each forward block that holds some, at least one, by name; of
            ``gpt``, ``mt5`` and ``flava`` alone. None to share `num_layers` evenly.
        handed_over: What each forward block of a ``module`` hands over, as `runtime.models.body.traced` found
            it; None where every process finds it anew, and so builds all modules.

    Raises:
        ModelError: A field is out of its range.
    """

    name: str
    hidden_size: int = 1
    sequence_length: int = 1
    micro_batch_size: int = 1
    num_layers: int | None = None
    num_heads: int = 1
    vocab_size: int = NUM_BYTES
    dtype: str = "float64"
    seed: int = 0
    learning_rate: float = 0.1
    text: str | None = None
    path: str | None = None
    optimizer: str = "sgd"
    weight_decay: float = 0.0
    momentum: float = 0.0
    weight_versions: str = WeightMode.FLUSH.value
    micro_batches_per_update: int = 1
    recompute: Literal["all"] | tuple[str, ...] = ()
    layers_per_block: Mapping[str, int] | None = field(default=None, hash=False)
    handed_over: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Check the type and range of every field."""
        if self.num_layers is None and self.layers_per_block is None:
            object.__setattr__(self, "num_layers", 1)
        for name in ("hidden_size", "sequence_length", "micro_batch_size", "num_layers", "num_heads"):
            if getattr(self, name) is not None or name != "num_layers":
                _check_integer(name, getattr(self, name), 1)
        if self.layers_per_block is not None:
            _check_counts(self.name, self.layers_per_block)
        _check_integer("vocab_size", self.vocab_size, NUM_BYTES)
        _check_integer("seed", self.seed, 0)
        if self.dtype not in DTYPES:
            raise ModelError(f"model.dtype: {self.dtype!r} is not known; use {', '.join(DTYPES)}")
        _check_rate("learning_rate", self.learning_rate)
        _check_rate("weight_decay", self.weight_decay)
        _check_rate("momentum", self.momentum)
        _check_integer("micro_batches_per_update", self.micro_batches_per_update, 1)
        if self.weight_versions not in list(WeightMode):
            raise ModelError(
                f"model.weight_versions: {self.weight_versions!r} is not known; use {', '.join(WeightMode)}"
            )
        if self.optimizer not in OPTIMIZERS:
            raise ModelError(
                f"model.optimizer: {self.optimizer!r} is not known; use {' or '.join(OPTIMIZERS)}"
            )
        if self.recompute != "all":
            object.__setattr__(self, "recompute", _names("recompute", self.recompute))
        if self.text is not None and not isinstance(self.text, str):
            raise ModelError(f"model.text: {self.text!r} is not the path of a file")
        if self.name == USER_MODEL and not isinstance(self.path, str):
            raise ModelError("model.path: a module needs the path of its Python file; give one")
        if self.name != USER_MODEL and self.path is not None:
            raise ModelError(f"model.path: {self.name} reads no file; use model={USER_MODEL}")
        if self.name != USER_MODEL and self.handed_over is not None:
            raise ModelError(f"model.handed_over: {self.name} is no {USER_MODEL}; leave it out")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelOptions:
        """Read the options from plain data.

        Raises:
            ModelError: A field is missing, unknown or out of its range.
        """
        known = [each.name for each in fields(cls)]
        for key in data:
            if key not in known:
                raise ModelError(f"model: has an unknown field {key!r}; the fields are {', '.join(known)}")
        sizes = (
            () if data.get("name") == USER_MODEL else ("hidden_size", "sequence_length", "micro_batch_size")
        )
        for key in ("name", *sizes):
            if key not in data:
                raise ModelError(f"model: lacks the field {key!r}; add it")
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that have an effect, as plain data that `from_dict` reads."""
        without = _OF_LAYERS if self.name == USER_MODEL else ()
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in without}
        given = {name: value for name, value in given.items() if name not in RARE or value != RARE[name]}
        return {name: value for name, value in given.items() if value is not None}


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModelError(f"model.{name}: {value!r} is not a whole number of at least {least}")


def _check_counts(model: str, value: object) -> None:
    if model in _NOT_OF_LAYERS:
        raise ModelError(
            f"model.layers_per_block: {model} has no transformer layers to share; leave it out (null)"
        )
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and type(count) is int and count >= 1 for name, count in value.items()
    ):
        raise ModelError(
            f"model.layers_per_block: {value!r} does not give names of forward blocks whole numbers of at "
            "least 1; do so as in {F0: 3, F1: 1}"
        )


def _check_rate(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelError(f"model.{name}: {value!r} is not a number")
    if not (math.isfinite(value) and value >= 0):
        raise ModelError(f"model.{name}: {value} is not a number of at least 0")


def _names(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ModelError(f"model.{name}: {value!r} is not 'all' or a list of names of forward blocks")
    return tuple(value)
