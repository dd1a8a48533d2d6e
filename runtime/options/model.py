"""Options of a run's model and of its training that a user gives, in code or in the group ``runtime``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from placements.forms.meaning import Verbatim, option
from schedsearch.semantics.versions import WeightMode

DTYPES = ("float64", "float32", "bfloat16")
"""Element types of a model; only float64 can be compared with the reference to 1e-12."""


@dataclass(frozen=True, kw_only=True)
class UserModelOptions:
    """The shape, data and training of a model, as a user gives them.

    None stands for what the plan, the placement or the size of the model decide. `num_layers` is for ``gpt``
    over all stages, for ``mt5`` in the encoder and as many in the decoder, for ``flava`` in each of the two
    encoders. `precision` is explained in `runtime.models.core`.
    """

    num_layers: int | None = option(
        None,
        "transformer layers; null: as in layers_per_block or the plan, else 8, or one a stage if "
        "there are more stages",
        min=1,
    )
    layers_per_block: Mapping[str, int] | None = option(
        None, "of gpt, mt5 and flava, as in {F0: 3, F1: 1}; null: the plan's, or evenly", hash=False, min=1
    )
    hidden_size: int = option(64, "hidden size of the model", min=1)
    num_heads: int = option(4, "attention heads", min=1)
    num_experts: int = option(4, "experts of each layer of moe", min=1)
    experts_per_token: int = option(2, "as many of them each token goes to", min=1)
    sequence_length: int = option(64, "tokens of a sample", min=1)
    sequence_lengths: Sequence[int] | None = option(
        None,
        "tokens of the samples of each micro-batch, as in [64,16,32], in turn through all "
        "iterations; null: sequence_length",
        hash=False,
        min=1,
    )
    micro_batch_size: int | None = option(
        None, "samples of a micro-batch; null: as in the plan, else 2", min=1
    )
    vocab_size: int = option(256, "entries of the vocabulary: bytes", min=256)
    dtype: str = option(
        "float64",
        "type of parameters, activations and gradients: float64 | float32 | bfloat16",
        choices=DTYPES,
    )
    learning_rate: float | None = option(
        None, "learning rate of the optimizer; null: by the size of the model; of sgd 0.1", min=0, below=inf
    )
    seed: int = option(0, "seed of the model's parameters and data", min=0)
    text: Verbatim | None = option(None, "text file to train on; null: the one that comes with the project")
    path: Verbatim | None = option(
        None, "Python file of your own model; see runtime/models/user/user_file.py"
    )
    optimizer: str = option("adamw", "adamw | sgd", choices=("adamw", "sgd"))
    weight_decay: float = option(0.0, "weight decay of the optimizer", min=0, below=inf)
    momentum: float = option(0.0, "momentum of sgd", min=0, below=inf)
    weight_versions: str = option(
        WeightMode.FLUSH.value,
        "flush | weight_stashing | vertical_sync | double_buffering: updates without a flush",
        choices=tuple(WeightMode),
    )
    micro_batches_per_update: int = option(
        1, "micro-batches whose gradients make one update; with a flush, all", min=1
    )
    precision: str | None = option(
        None,
        "bf16 | fp16: compute in it, with parameters in float32; null: in dtype",
        choices=("bf16", "fp16"),
    )
    clip_grad_norm: float | None = option(
        None, "largest norm of all gradients together; null: no limit", above=0
    )
    zero: int = option(0, "1: each copy holds the optimizer's state of a part of the parameters | 0: off")
    slice_lengths: Sequence[int] | None = option(
        None, "tokens of each slice, where sequences are cut into some; null: even ones", hash=False, min=1
    )
