"""Options of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Command
from experiments.frontier.options import FrontierCommandOptions
from experiments.search.options import PRESETS
from placements.meaning import group, option


@dataclass(frozen=True)
class RuntimeOptions:
    """The `runtime` group; see `runtime.models` and `runtime.launch`."""

    model: str = option(
        "auto",
        "gpt | mt5 | flava | synthetic | auto: the first that fits | module: your own | given: to "
        "runtime.Pipeline",
    )
    num_layers: int | None = option(
        None,
        "transformer layers; null: those of layers_per_block or of the plan, else 8, or one a stage if "
        "there are more stages",
    )
    layers_per_block: dict[Any, Any] | None = option(
        None, "of gpt, mt5 and flava, as in {F0: 3, F1: 1}; null: the plan's, or evenly"
    )
    hidden_size: int = option(64, "hidden size of the model")
    num_heads: int = option(4, "attention heads")
    sequence_length: int = option(64, "tokens of a sample")
    micro_batch_size: int = option(None, "samples of a micro-batch; null: those of the plan, else 2")
    vocab_size: int = option(256, "entries of the vocabulary: bytes")
    dtype: str = option(
        "float64", "type of parameters, activations and gradients: float64 | float32 | bfloat16"
    )
    learning_rate: float | None = option(
        None, "learning rate of the optimizer; null: by the size of the model; of sgd 0.1"
    )
    seed: int = option(0, "seed of the model's parameters and data")
    text: str | None = option(None, "text file to train on; null: the one that comes with the project")
    path: str | None = option(None, "the Python file of your own model; see runtime/models/user/user_file.py")
    iterations: int = option(3, "training iterations")
    timeout_s: float = option(600, "longest time of the start or of one iteration, in s")
    simulated_gpus: bool = option(
        False, "true: the scripts also run in virtual time, at the clocks of the plan"
    )
    clocks: bool = option(
        True, "true: the scripts have the clocks of the plan; false: they have none, for those of a server"
    )
    optimizer: str = option("adamw", "adamw | sgd | a class of torch.optim, as Adam")
    weight_decay: float = option(0.0, "weight decay of the optimizer")
    momentum: float = option(0.0, "momentum of sgd")
    weight_versions: str = option(
        "flush", "flush | weight_stashing | vertical_sync | double_buffering: updates without a flush"
    )
    micro_batches_per_update: int = option(
        1, "micro-batches whose gradients make one update; with a flush, all"
    )
    recompute: str | list[Any] = option(
        None, "forward blocks that are computed again, as in [F0,F1]; or all; null: the plan's"
    )
    launcher: str = option(
        "torchrun",
        "torchrun | fork (CPU only) | in_process: threads that take turns | none: only write the job",
    )
    device: str | None = option(
        None, "cpu | cuda; null: under torchrun GPUs if there is one for each device, else the CPU"
    )
    blocking: bool = option(False, "true: every transfer waits for its other end")
    num_micro_batches: int | None = option(
        None,
        "micro-batches to run, where they differ from search.num_micro_batches; the scripts' loops must "
        "allow it",
    )
    receive_ahead: int | None = option(
        None,
        "number of blocks of its device by which a receive may be posted early; null: 1, with blocking 0",
    )
    receive_memory: int | None = option(None, "bytes per device of receives posted early; null: no bound")
    checkpoint_every: int = option(0, "iterations from one checkpoint to the next; 0: none")
    keep_checkpoints: int = option(3, "number of newest checkpoints to keep; 0: all")
    resume: str | None = option(None, "output directory of a run that stopped, or a folder of checkpoints")
    trace: bool = option(
        False, "true: also a trace of the last iterations beside the plan, for ui.perfetto.dev"
    )
    checkpoint_async: bool = option(
        True, "true: training goes on while a checkpoint is written; false: it waits"
    )
    verify: str | None = option(
        None, "iterations that are compared with the unpipelined model: none | first | all; null: by size"
    )
    exact: bool | None = option(
        None, "true: sums over devices are in a fixed order; null: if something is verified"
    )
    load_weights: str | None = option(None, "state dict to start from: .safetensors, or a file of torch")
    save_weights: str | None = option(None, "file for the state dict at the end, .safetensors")
    communicators: str = option(
        "auto",
        "directed: one for each direction | pair: one for both directions of two devices | auto: pair "
        "where nothing is lost",
    )
    nodes: int = option(1, "number of torchruns on this machine, each with the devices of a node")
    precision: str | None = option(
        None, "bf16 | fp16: compute in it, with parameters in float32; null: in dtype"
    )
    clip_grad_norm: float | None = option(None, "largest norm of all gradients together; null: no limit")
    optimizer_options: dict[Any, Any] | None = option(
        None, "further options of that class, as in {betas: [0.9, 0.95]}"
    )
    parameter_groups: list[Any] = option(
        [], "as in [{match: 'norm|bias', options: {weight_decay: 0}}]; match: part of a name"
    )
    lr_schedule: str | None = option(
        None, "a class of torch.optim.lr_scheduler, as CosineAnnealingLR; null: one rate"
    )
    lr_schedule_options: dict[Any, Any] | None = option(None, "options of that class, as in {T_max: 100}")
    zero: int = option(
        0, "1: ZeRO-1, each copy holds the optimizer's state of a part of the parameters; 0: off"
    )
    compile: str | None = option(
        None, "torch's compiler for each forward block: inductor | aot_eager | eager; null: not compiled"
    )


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions(FrontierCommandOptions):
    """The config of `experiments.run`."""

    runtime: RuntimeOptions = group()


COMMANDS = (
    Command(
        "run",
        "All of it: search, clocks, scripts, a run and a report.",
        RunCommandOptions,
        task="experiments.run.task",
        presets=PRESETS,
        objective="energy_j",
        needs_torch=True,
    ),
)
