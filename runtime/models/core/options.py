"""Options of a model as plain data, as in ``job.json``, parsed once into a typed record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any

from placements.forms.meaning import declared_fields, inherited
from placements.forms.reading import Field
from runtime.options.model import UserModelOptions
from schedsearch.semantics.versions import WeightMode

USER_MODEL = "module"
"""The name of a model that a Python file of the user's makes."""

GIVEN_MODEL = "given"
"""The name of a model whose modules a script of the user's own gives to `runtime.Pipeline`."""

SGD_RATE = 0.1
"""Learning rate of plain gradient descent where none is given, as in PyTorch's ImageNet example."""

OF_BRANCHES = ("synthetic", "flava")
"""The models whose micro-batches may leave out blocks."""

_OF_USER = (USER_MODEL, GIVEN_MODEL)
"""The models whose sizes only the user's modules know."""

_SIZES = ("hidden_size", "sequence_length", "micro_batch_size")
"""Options that a model of ours needs."""

_OF_LAYERS = (
    *_SIZES,
    *("sequence_lengths", "num_layers", "layers_per_block", "num_heads", "vocab_size", "text"),
)
"""Options without effect on a user's model."""

_ALWAYS_WRITTEN = (
    *("name", *_SIZES, "num_layers", "num_heads", "vocab_size", "dtype", "seed", "learning_rate"),
    *("text", "path", "optimizer", "weight_decay", "layers_per_block", "handed_over"),
)
"""Options that plain data has even where they are as by default."""


class ModelError(ValueError):
    """A model cannot be made, or cannot run the placement; the message is one line, with the remedy.

    Attributes:
        reason: The mistake, and the remedy.
        field: Name of the option at fault, with which the message begins; None where it is none.
    """

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(reason if field is None else f"model.{field}: {reason}")
        self.reason, self.field = reason, field


class _Option(Field):
    """An option, whose mistakes name it."""

    def mistake(self, text: str) -> ValueError:
        return ModelError(text, self.where)


def _refuse(is_wrong: bool, name: str, reason: str) -> None:
    if is_wrong:
        raise ModelError(reason, name)


@dataclass(frozen=True)
class ModelOptions(UserModelOptions):
    """The shape, data and training of a model, nothing left open; code has smaller defaults than commands.

    Sizes are without effect on a ``module``; layers and heads also on ``synthetic``.

    Attributes:
        name: ``gpt``, ``moe``, ``mt5``, ``flava``, ``synthetic`` (any graph of blocks), ``module`` (the
            user's own) or ``given`` (modules that a script of the user's gives to `runtime.Pipeline`).
        num_layers: None for as many as `layers_per_block` gives, or 1.
        handed_over: Forms of the tensors that each forward block of a ``module`` hands over, as
            `runtime.models.traced` found them; None where every process finds them, so builds all modules.

    Raises:
        ModelError: A field is out of its range.
    """

    name: str
    _: KW_ONLY
    handed_over: Mapping[str, Any] | None = field(default=None, hash=False)
    hidden_size: int = inherited(UserModelOptions, "hidden_size", 1)
    sequence_length: int = inherited(UserModelOptions, "sequence_length", 1)
    micro_batch_size: int = inherited(UserModelOptions, "micro_batch_size", 1)
    num_heads: int = inherited(UserModelOptions, "num_heads", 1)
    learning_rate: float = inherited(UserModelOptions, "learning_rate", SGD_RATE)
    optimizer: str = inherited(UserModelOptions, "optimizer", "sgd")

    def __post_init__(self) -> None:
        """Read every field as declared; check fields that depend on each other."""
        if self.num_layers is None and self.layers_per_block is None:
            object.__setattr__(self, "num_layers", 1)
        for option in declared_fields(type(self)):  # type: ignore[arg-type]
            given = getattr(self, option.name)
            value = _Option(given, option.name, ModelError).typed(option.kind, meaning=option.meaning)
            if isinstance(value, tuple) or type(given) is float:
                object.__setattr__(self, option.name, value)
        self._check_model()
        self._check_training()

    def _check_model(self) -> None:
        """Refuse options of the model that others exclude."""
        name, lengths = self.name, self.sequence_lengths
        _refuse(
            self.experts_per_token > self.num_experts,
            "experts_per_token",
            f"{self.experts_per_token} is more than the {self.num_experts} experts; use fewer",
        )
        _refuse(
            self.layers_per_block is not None and name in ("synthetic", *_OF_USER),
            "layers_per_block",
            f"{name} has no transformer layers to share; leave it out (null)",
        )
        if lengths is not None:
            reason = "reads samples of its own; leave it out (your own loop may give lengths to each step)"
            _refuse(name in _OF_USER, "sequence_lengths", f"{name} {reason}")
            _refuse(not lengths, "sequence_lengths", "is empty; give a length for each micro-batch")
            reason = f"is more than sequence_length, {self.sequence_length}; use less, or a greater one"
            _refuse(max(lengths) > self.sequence_length, "sequence_lengths", f"{max(lengths)} {reason}")
        if name == USER_MODEL:
            _refuse(self.path is None, "path", "a module needs the path of its Python file; give one")
        else:
            remedy = f"use the model {USER_MODEL!r}"
            _refuse(self.path is not None, "path", f"{name} reads no file; {remedy}")
            _refuse(self.handed_over is not None, "handed_over", f"{name} is no {USER_MODEL}; leave it out")

    def _check_training(self) -> None:
        """Refuse options of the training that others exclude."""
        is_wrong = bool(self.momentum) and self.optimizer == "adamw"
        _refuse(is_wrong, "momentum", f"{self.momentum} is of sgd, not of adamw; use optimizer=sgd")
        _refuse(
            self.precision is not None and self.dtype != "float32",
            "precision",
            f"{self.precision} keeps parameters in float32, not {self.dtype}; use dtype=float32",
        )
        _refuse(self.zero not in (0, 1), "zero", f"{self.zero!r} is not known; use 0 or 1")
        at_once = {
            "clip_grad_norm": self.clip_grad_norm,
            "precision": self.precision if self.precision == "fp16" else None,
            "zero": self.zero or None,
        }
        for name, value in at_once.items():
            _refuse(
                value is not None and self.weight_versions != WeightMode.FLUSH,
                name,
                f"{value} needs all gradients of an update at once, and {self.weight_versions} updates every "
                f"block by itself; use weight_versions={WeightMode.FLUSH}",
            )

    def tokens_of(self, iteration: int, micro_batch: int, num_micro_batches: int) -> int:
        """Return the length of a micro-batch's samples, in tokens."""
        lengths = self.sequence_lengths or (self.sequence_length,)
        return int(lengths[(iteration * num_micro_batches + micro_batch) % len(lengths)])

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelOptions:
        """Read the options from plain data.

        Raises:
            ModelError: A field is missing, unknown or out of its range.
        """
        needed = ("name",) if data.get("name") in _OF_USER else ("name", *_SIZES)
        Field(dict(data), "model", ModelError).only(needed, [option.name for option in fields(cls)])
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that have an effect, as plain data that `from_dict` reads."""
        without = _OF_LAYERS if self.name in _OF_USER else ()
        names = ("name", *(option.name for option in fields(self) if option.name != "name"))
        given = {name: getattr(self, name) for name in names if name not in without}
        return {
            name: value
            for name, value in given.items()
            if value is not None and (name not in RARE or value != RARE[name])
        }


RARE: Mapping[str, Any] = {
    option.name: option.default for option in fields(ModelOptions) if option.name not in _ALWAYS_WRITTEN
}
"""Options that plain data has only where they are not as by default, with their defaults."""
