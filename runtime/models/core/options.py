"""What a model is asked to be: plain data, as in ``job.json``, parsed once into a typed record."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from typing import Any

from runtime.models.core.precision import COMPUTE_TYPES
from runtime.models.core.torch_optimizers import (
    OF_WHOLE_PARAMETERS,
    PLAIN,
    TorchOptionError,
    check_optimizer,
    group_of,
    optimizer_class,
)
from runtime.options.model import UserModelOptions
from schedsearch.semantics.versions import WeightMode

DTYPES = ("float64", "float32", "bfloat16")
"""Element types a model can have; only float64 can be compared with the reference to 1e-12."""

COMPILERS = ("inductor", "aot_eager", "eager")
"""Backends of `torch.compile` for blocks; the last two compile nothing and show what can be compiled."""

NUM_BYTES = 256
"""Values of a byte: the smallest vocabulary of a byte-level model."""

USER_MODEL = "module"
"""The name of a model that a Python file of the user's makes."""

GIVEN_MODEL = "given"
"""The name of a model whose modules a script of the user's own gives to `runtime.Pipeline`."""

SGD_RATE = 0.1
"""Learning rate of plain gradient descent where none is given, as in PyTorch's ImageNet example."""

_OF_USER = (USER_MODEL, GIVEN_MODEL)
"""The models whose sizes only the user's modules know."""

OF_BRANCHES = ("synthetic", "flava")
"""The models whose micro-batches may leave out blocks."""

_NOT_OF_LAYERS = ("synthetic", *_OF_USER)
"""The models whose blocks hold no number of transformer layers."""

LAYERED = ("gpt", "mt5", "flava")
"""The models whose blocks are layers one after the other, so that segments of them can be computed again."""

_OF_LAYERS = (
    "hidden_size",
    "sequence_length",
    "sequence_lengths",
    "micro_batch_size",
    "num_layers",
    "layers_per_block",
    "num_heads",
    "vocab_size",
    "text",
)


_ALWAYS_WRITTEN = (
    *("name", "hidden_size", "sequence_length", "micro_batch_size", "num_layers", "num_heads", "vocab_size"),
    *("dtype", "seed", "learning_rate", "text", "path", "optimizer", "weight_decay"),
    *("layers_per_block", "handed_over"),
)
"""Options that plain data has even where they are as by default; any newer one only where it is not."""


class ModelError(ValueError):
    """A model is wrong, or does not fit its placement; the message names the field and the remedy.

    Attributes:
        reason: What is wrong, and the remedy.
        field: The field of `ModelOptions` at fault; None where it is none of them. The message names it.
    """

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(reason if field is None else f"model.{field}: {reason}")
        self.reason, self.field = reason, field


@dataclass(frozen=True)
class ModelOptions(UserModelOptions):
    """The shape, data and training of a model, nothing left open; code has smaller defaults than commands.

    Sizes are without effect on a ``module``; layers and heads also on ``synthetic``.

    Attributes:
        name: ``gpt``, ``moe``, ``mt5``, ``flava``, ``synthetic`` (any graph of blocks), ``module`` (the
            user's own) or ``given`` (what a script of the user's gives to `runtime.Pipeline`).
        num_layers: None for as many as `layers_per_block` gives, or 1.
        handed_over: What each forward block of a ``module`` hands over, as `runtime.models.body.traced` found
            it; None where every process finds it anew, and so builds all modules.

    Raises:
        ModelError: A field is out of its range.
    """

    name: str
    _: KW_ONLY
    handed_over: Mapping[str, Any] | None = field(default=None, hash=False)
    hidden_size: int = 1
    sequence_length: int = 1
    micro_batch_size: int = 1
    num_heads: int = 1
    learning_rate: float = SGD_RATE
    optimizer: str = "sgd"
    layers_per_block: Mapping[str, int] | None = field(default=None, hash=False)
    optimizer_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    parameter_groups: Sequence[Mapping[str, Any]] = field(default=(), hash=False)
    lr_schedule_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the type and range of every field."""
        if self.num_layers is None and self.layers_per_block is None:
            object.__setattr__(self, "num_layers", 1)
        for name in ("hidden_size", "sequence_length", "micro_batch_size", "num_layers", "num_heads"):
            if getattr(self, name) is not None or name != "num_layers":
                _check_integer(name, getattr(self, name), 1)
        _check_integer("num_experts", self.num_experts, 1)
        _check_integer("experts_per_token", self.experts_per_token, 1)
        if self.experts_per_token > self.num_experts:
            raise ModelError(
                f"{self.experts_per_token} is more than the {self.num_experts} experts; use fewer",
                "experts_per_token",
            )
        if self.layers_per_block is not None:
            _check_counts(self.name, self.layers_per_block)
        if self.slice_lengths is not None and not (
            isinstance(self.slice_lengths, (list, tuple)) and all(type(n) is int for n in self.slice_lengths)
        ):
            raise ModelError(f"{self.slice_lengths!r} is not a list of whole numbers", "slice_lengths")
        _check_integer("vocab_size", self.vocab_size, NUM_BYTES)
        _check_integer("seed", self.seed, 0)
        if self.dtype not in DTYPES:
            raise ModelError(f"{self.dtype!r} is not known; use {', '.join(DTYPES)}", "dtype")
        _check_rate("learning_rate", self.learning_rate)
        _check_rate("weight_decay", self.weight_decay)
        _check_rate("momentum", self.momentum)
        _check_integer("micro_batches_per_update", self.micro_batches_per_update, 1)
        if self.weight_versions not in list(WeightMode):
            raise ModelError(
                f"{self.weight_versions!r} is not known; use {', '.join(WeightMode)}", "weight_versions"
            )
        self._check_lengths()
        self._check_training()
        if self.text is not None and not isinstance(self.text, str):
            raise ModelError(f"{self.text!r} is not the path of a file", "text")
        if self.name == USER_MODEL and not isinstance(self.path, str):
            raise ModelError("a module needs the path of its Python file; give one", "path")
        if self.name != USER_MODEL and self.path is not None:
            raise ModelError(f"{self.name} reads no file; use the model {USER_MODEL!r}", "path")
        if self.name != USER_MODEL and self.handed_over is not None:
            raise ModelError(f"{self.name} is no {USER_MODEL}; leave it out", "handed_over")

    def tokens_of(self, iteration: int, micro_batch: int, num_micro_batches: int) -> int:
        """Return how many tokens the samples of a micro-batch have."""
        if self.sequence_lengths is None:
            return self.sequence_length
        return int(
            self.sequence_lengths[(iteration * num_micro_batches + micro_batch) % len(self.sequence_lengths)]
        )

    def check_num_micro_batches(self, number: int) -> None:
        """Ensure that lengths are given for each micro-batch of one iteration, or of several.

        Raises:
            ModelError: They are not.
        """
        if self.sequence_lengths is not None and len(self.sequence_lengths) % number:
            raise ModelError(
                f"has {len(self.sequence_lengths)} lengths for {number} micro-batches; give one for each, of "
                "one iteration or of several",
                "sequence_lengths",
            )

    def _check_lengths(self) -> None:
        """Check the numbers of tokens of micro-batches that differ.

        Raises:
            ModelError: One is no length, or the model cannot have several.
        """
        lengths = self.sequence_lengths
        if lengths is None:
            return
        if self.name in _OF_USER:
            raise ModelError(
                f"{self.name} reads samples of its own; leave it out (a loop of your own may give other "
                "lengths to each step)",
                "sequence_lengths",
            )
        if isinstance(lengths, str) or not isinstance(lengths, Sequence) or not lengths:
            raise ModelError(
                f"{lengths!r} is not a list of whole numbers; write as in [64,16,32]", "sequence_lengths"
            )
        for i, length in enumerate(lengths):
            if type(length) is not int or not 1 <= length <= self.sequence_length:
                raise ModelError(
                    f"{length!r} is not a whole number from 1 to sequence_length, {self.sequence_length}; "
                    "give another, or a greater sequence_length",
                    f"sequence_lengths[{i}]",
                )
        object.__setattr__(self, "sequence_lengths", tuple(lengths))

    @property
    def uses_torch_optimizer(self) -> bool:
        """Whether a class of `torch.optim` moves the parameters, rather than functions that load faster."""
        plain = self.optimizer in PLAIN and self.lr_schedule is None
        return not plain or bool(self.optimizer_options) or bool(self.parameter_groups)

    @property
    def torch_options(self) -> dict[str, Any]:
        """The options of the optimizer's class in `torch.optim`."""
        given = {"weight_decay": self.weight_decay, "momentum": self.momentum}
        always = {"adamw": "weight_decay"}.get(self.optimizer)
        chosen = {name: value for name, value in given.items() if value or name == always}
        return {"lr": self.learning_rate, **chosen, **self.optimizer_options}

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions of the parameter groups."""
        return tuple(group["match"] for group in self.parameter_groups)

    @property
    def group_options(self) -> list[Mapping[str, Any]]:
        """The options of each group of parameters; the last group are those that match nothing."""
        return [*(group.get("options", {}) for group in self.parameter_groups), {}]

    def check_parameters(self, names: Sequence[str], cut: Sequence[str]) -> None:
        """Ensure that the optimizer's options are for the parameters that there are.

        Args:
            names: Of all parameters of the model.
            cut: Of those that are cut into shards.

        Raises:
            ModelError: A group matches no parameter, or the optimizer cannot move a part of a parameter.
        """
        used = {group_of(name, self.patterns) for name in names}
        for index, pattern in enumerate(self.patterns):
            if index not in used:
                raise ModelError(
                    f"{pattern!r} is the first to match no parameter; they are "
                    f"named as {', '.join(names[:4])}",
                    "parameter_groups",
                )
        if cut and self.optimizer in OF_WHOLE_PARAMETERS:
            raise ModelError(
                f"{self.optimizer} needs whole parameters, and {cut[0]} is cut over several "
                "devices; use an optimizer that works element by element, as adamw",
                "optimizer",
            )

    def _check_training(self) -> None:
        """Check what says how gradients move parameters.

        Raises:
            ModelError: It cannot be done.
        """
        try:
            optimizer_class(self.optimizer)
        except TorchOptionError as error:
            raise ModelError(error.reason, error.field) from None
        object.__setattr__(self, "parameter_groups", _groups(self.parameter_groups))
        for name in ("optimizer_options", "lr_schedule_options"):
            _check_options(name, getattr(self, name))
        if self.momentum and self.optimizer == "adamw":
            raise ModelError(f"{self.momentum} is of sgd, not of adamw; use optimizer=sgd", "momentum")
        if "lr" in self.optimizer_options:
            raise ModelError("has an 'lr'; give it as learning_rate", "optimizer_options")
        if self.lr_schedule_options and self.lr_schedule is None:
            raise ModelError("are of no use without a schedule; give lr_schedule", "lr_schedule_options")
        if self.uses_torch_optimizer:
            try:
                check_optimizer(
                    self.optimizer,
                    self.torch_options,
                    self.group_options,
                    self.lr_schedule,
                    self.lr_schedule_options,
                )
            except TorchOptionError as error:
                raise ModelError(error.reason, error.field) from None
        if self.clip_grad_norm is not None:
            _check_rate("clip_grad_norm", self.clip_grad_norm)
            if self.clip_grad_norm == 0:
                raise ModelError("0 leaves nothing to move; give a greater norm, or null", "clip_grad_norm")
        if self.precision is not None and self.precision not in COMPUTE_TYPES:
            raise ModelError(
                f"{self.precision!r} is not known; use {', '.join(COMPUTE_TYPES)} or null", "precision"
            )
        if self.precision is not None and self.dtype != "float32":
            raise ModelError(
                f"{self.precision} keeps parameters in float32, not {self.dtype}; use dtype=float32",
                "precision",
            )
        if self.zero not in (0, 1, 3) or isinstance(self.zero, bool):
            raise ModelError(f"{self.zero!r} is not known; use 0, 1 or 3", "zero")
        if self.zero == 3 and (self.compile is not None or self.name == "moe"):
            what = (
                "compiled blocks"
                if self.compile is not None
                else "experts, of which each group may use others"
            )
            raise ModelError(f"3 cannot be run with {what}; use 1, or 0", "zero")
        if self.sharded_blocks and self.zero != 3:
            raise ModelError("are those of zero=3; leave them out, or use it", "sharded_blocks")
        if self.checkpoints is not None:
            self._check_checkpoints()
        if self.compile is not None and self.compile not in COMPILERS:
            raise ModelError(f"{self.compile!r} is not known; use {', '.join(COMPILERS)} or null", "compile")
        self._check_with_versions()

    def _check_checkpoints(self) -> None:
        number = self.checkpoints
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ModelError(
                f"{number!r} is not a whole number of at least 1; give one, or null", "checkpoints"
            )
        if self.compile is not None or self.name not in LAYERED:
            other = f"model {self.name!r}" if self.name not in LAYERED else "compile"
            raise ModelError(
                f"{number} segments are for layers of {', '.join(LAYERED)} that are not compiled, not for "
                f"{other}; leave one of them out",
                "checkpoints",
            )

    def _check_with_versions(self) -> None:
        """Refuse what is decided for all blocks at once where each block is updated by itself."""
        if self.weight_versions == WeightMode.FLUSH:
            return
        fp16 = self.precision if self.precision == "fp16" else None
        for name, value in (
            ("clip_grad_norm", self.clip_grad_norm),
            ("lr_schedule", self.lr_schedule),
            ("precision", fp16),
            ("zero", self.zero or None),
        ):
            if value is not None:
                raise ModelError(
                    f"{value} needs all gradients of an update at once, and "
                    f"{self.weight_versions} updates every block by itself; use weight_versions="
                    f"{WeightMode.FLUSH}",
                    name,
                )

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
        sizes = () if data.get("name") in _OF_USER else ("hidden_size", "sequence_length", "micro_batch_size")
        for key in ("name", *sizes):
            if key not in data:
                raise ModelError(f"model: lacks the field {key!r}; add it")
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that have an effect, as plain data that `from_dict` reads."""
        without = _OF_LAYERS if self.name in _OF_USER else ()
        names = ("name", *(each.name for each in fields(self) if each.name != "name"))
        given = {name: getattr(self, name) for name in names if name not in without}
        given = {name: value for name, value in given.items() if name not in RARE or value != RARE[name]}
        return {name: value for name, value in given.items() if value is not None}


RARE: Mapping[str, Any] = {
    each.name: each.default if each.default_factory is MISSING else each.default_factory()
    for each in fields(ModelOptions)
    if each.name not in _ALWAYS_WRITTEN
}
"""Options that plain data has only where they are not as by default, with their defaults."""


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModelError(f"{value!r} is not a whole number of at least {least}", name)


def _check_counts(model: str, value: object) -> None:
    if model in _NOT_OF_LAYERS:
        raise ModelError(
            f"{model} has no transformer layers to share; leave it out (null)", "layers_per_block"
        )
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and type(count) is int and count >= 1 for name, count in value.items()
    ):
        raise ModelError(
            f"{value!r} does not give names of forward blocks whole numbers of at "
            "least 1; do so as in {F0: 3, F1: 1}",
            "layers_per_block",
        )


def _check_rate(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelError(f"{value!r} is not a number", name)
    if not (math.isfinite(value) and value >= 0):
        raise ModelError(f"{value} is not a number of at least 0", name)


def _check_options(name: str, value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ModelError(f"{value!r} does not give options values; do so as in {{eps: 1e-6}}", name)


def _groups(value: object) -> tuple[Mapping[str, Any], ...]:
    """Return the groups of parameters.

    Raises:
        ModelError: One is not what it should be.
    """
    if not isinstance(value, (list, tuple)):
        raise ModelError(f"{value!r} is not a list of groups; use [] for none", "parameter_groups")
    for index, group in enumerate(value):
        where = f"parameter_groups[{index}]"
        if not isinstance(group, Mapping) or not {"match"} <= group.keys() <= {"match", "options"}:
            raise ModelError(
                f"{group!r} is not a mapping of 'match' and 'options'; write as in "
                "{match: 'norm|bias', options: {weight_decay: 0}}",
                where,
            )
        _check_options(f"{where}.options", group.get("options", {}))
        try:
            re.compile(group["match"])
        except (re.error, TypeError) as error:
            raise ModelError(
                f"{group['match']!r} is no regular expression: {error}", f"{where}.match"
            ) from None
    return tuple(dict(group) for group in value)
