"""Options of planning: the question to all planners, and the kinds of planners with their own options.

A planner is a file, and a line in `PLANNERS` with the record of its options.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from omegaconf import DictConfig

from experiments.config.declaring import Command, own_options
from experiments.config.options import OptionError, OptionField, read_record
from placements.forms.meaning import REQUIRED, Verbatim, group, inherited, option
from placements.models.memory import FRAMEWORKS


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """The options that all planners have."""

    model: Verbatim | None = option(
        None,
        "such as llama2_13b or bert_huge_32 (model=all lists them), a config.json of Hugging Face, your own "
        "as mine.yaml:NAME, or one of the profile",
    )
    cluster: str = option(
        REQUIRED, "GPU and number, as a100_32, a100_16+v100_16 or your own, mine.csv:GPU_16; or a JSON file"
    )
    batch: int | tuple[int, ...] = option(
        REQUIRED,
        "samples of an iteration; of a list, as [256, 512], the one with the most samples per second is "
        "taken",
        min=1,
    )
    profiles: Verbatim | None = option(
        None, "folder of measured layers and links, in Sailor's or Galvatron's form; pipedream: CSV of nodes"
    )
    num_layers: int | None = option(None, "transformer layers; null: the model's own, as for the next two")
    sequence_length: int | None = option(None, "tokens of a sample")
    vocab_size: int | None = option(None, "entries of the vocabulary")
    imbalance: float | None = option(
        None, "tokens of the busiest GPU's experts, as a multiple of an equal share; null: 1", min=1
    )
    precision: str | None = option(
        None, "half, bf16, single, tf32, fp8, fp8_blockwise, mxfp8 or nvfp4; null: the model's, half as bf16"
    )
    gpus_per_node: int | None = option(None, "GPUs of a node; null: 8, or all where there are fewer")
    node_bandwidth_gb_s: float | None = option(
        None, "bandwidth from a node to all others, in GB/s in one direction; null: the usual machine's"
    )
    link_bandwidth_gb_s: float | None = option(
        None, "bandwidth between two GPUs of a node, in GB/s; null: the GPU's own"
    )
    memory_gib: float | None = option(None, "memory of each GPU; null: its own", "GiB", above=0, max=4096)
    reserve_gib: float = option(4.0, "memory of each GPU that neither states nor activations use", "GiB")
    framework: str = option(
        "megatron", "framework, for its memory besides states and activations", choices=tuple(FRAMEWORKS)
    )
    machine: Verbatim | None = option(
        None, "file of measured rates of the GPU, JSON or CSV; null: the project's, where it has the GPU's"
    )
    calibrate: Verbatim | None = option(
        None, "CSV of runs on the GPU, as for predict, that fix one or two factors of times; null: none"
    )
    model_flops_utilisation: float | None = option(
        None, "share of the GPU's peak that layers reach; null: as measured by shape, or else 0.5"
    )
    output_layer_utilisation: float = option(0.65, "share of the peak that the output layer reaches")
    memory_efficiency: float = option(0.85, "share of the memory bandwidth that is reached")
    overlap_slowdown: float = option(1.3, "factor on computing and transfers while both run")
    overlap_tensor_parallel: bool = option(
        False, "tensor-parallel GPUs gather and scatter tokens beside the products around it"
    )
    sends_tokens_once: bool = option(
        False, "a token goes once to each GPU that has any of its experts, as with DeepEP"
    )


class Planner(Protocol):
    """A planner's options, and the module whose ``task(question, planner)`` plans and returns figures."""

    module: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class StrategyOptions:
    """Options of planners that search how GPUs share each layer; see `placements.planners.hybrid`."""

    module: ClassVar[str] = "experiments.plan.strategies"
    kind: str = option("default", "set by planner=")
    paradigms: tuple[str, ...] = option(
        ("dp", "zero1", "sdp", "tp"),
        "how GPUs may share a layer: dp, zero1, zero2, sdp (ZeRO-3), tp, ulysses, cp",
        choices=("dp", "zero1", "zero2", "sdp", "tp", "ulysses", "cp"),
    )
    recompute: tuple[str, ...] = option(
        ("none", "full"),
        "activations that a backward may compute again: none, selective, full",
        choices=("none", "selective", "full"),
    )
    sequence_parallel: bool = option(
        True, "true: tensor-parallel GPUs share norms and dropout too (Megatron); false: without layouts"
    )
    max_tensor_parallel: int | None = option(None, "largest degree of tp and ulysses; null: no limit", min=1)
    expert_parallel: tuple[int, ...] = option(
        (1,), "degrees of expert parallelism to try; [1]: the degrees of the best layouts", min=1
    )
    num_stages: tuple[int, ...] | None = option(
        None, "numbers of stages to try; null: all, as for the next two", min=1
    )
    gpus_per_stage: tuple[int, ...] | None = option(
        None, "GPUs of each stage: a part of a node, or whole nodes", min=1
    )
    num_micro_batches: tuple[int, ...] | None = option(
        None,
        "micro-batches of an iteration, as a list to try; numbers that do not divide the batch are left out",
        min=1,
    )
    num_plans: int = option(5, "plans to keep; they differ in stages, GPUs per stage or micro-batches", min=1)
    time_limit_s: float = option(
        120, "time limit of the whole command, in s: half to plan, the rest for the schedules"
    )
    workers: int = option(1, "processes that time layouts, and search schedules, side by side", min=1)
    rank: str = option(
        "schedule",
        "rank plans by their searched schedule | by a schedule made by hand (simulation)",
        choices=("schedule", "simulation"),
    )


@dataclass(frozen=True, kw_only=True)
class DefaultPlanner(StrategyOptions):
    """All layouts of training frameworks, and strategies of each layer where these may be faster."""

    uniform: bool = option(False, "true: layouts alone, in which the GPUs share all layers in the same way")
    micro_batch_sizes: tuple[int, ...] = option(
        (1, 2, 4), "of layouts: samples of a micro-batch to try", min=1
    )
    max_chunks: int = option(24, "of layouts: most chunks of a stage", min=1)
    shapes: tuple[str, ...] = option(
        ("v_shape",),
        "placements to compare: v_shape; m_shape and nn_shape, with the vocabulary on all GPUs",
        choices=("v_shape", "m_shape", "nn_shape"),
    )


@dataclass(frozen=True, kw_only=True)
class BmwPlanner(StrategyOptions):
    """Galvatron-BMW's search; its own algorithms, or exact ones in their places."""

    kind: str = inherited(StrategyOptions, "kind", "bmw")
    paradigms: tuple[str, ...] = inherited(StrategyOptions, "paradigms", ("dp", "sdp", "tp"))
    method: str = option(
        "bmw", "bmw, base, memory: Galvatron-BMW's | exact", choices=("exact", "bmw", "base", "memory")
    )
    stage_method: str = option(
        "paper",
        "strategies inside a stage: paper (Galvatron-BMW's programme) | exact",
        choices=("exact", "paper"),
    )
    pipeline: str = option("1f1b", "activations held: 1f1b | gpipe", choices=("1f1b", "gpipe"))


@dataclass(frozen=True, kw_only=True)
class PipeDreamPlanner:
    """PipeDream's planner; see `placements.planners.pipedream.planner`."""

    module: ClassVar[str] = "experiments.plan.pipedream"
    kind: str = option("pipedream", "set by planner=")


@dataclass(frozen=True, kw_only=True)
class TwoBwPlanner:
    """PipeDream-2BW's planner; see `placements.planners.pipedream.two_bw`."""

    module: ClassVar[str] = "experiments.plan.two_bw"
    kind: str = option("pipedream_2bw", "set by planner=")
    micro_batch_sizes: tuple[int, ...] = option((1, 2, 4), "samples of a micro-batch to try", min=1)


PLANNERS: dict[str, type[Planner]] = {
    "default": DefaultPlanner,
    "bmw": BmwPlanner,
    "pipedream": PipeDreamPlanner,
    "pipedream_2bw": TwoBwPlanner,
}
"""All planners by name."""


def read_planner(data: Any) -> Planner:
    """Return the planner of a group of options.

    Raises:
        OptionError: It says no kind, or one that is not known; or an option is wrong.
    """
    given = OptionField(data, "planner", OptionError)
    return given.record(PLANNERS[given["kind"].choice(list(PLANNERS))])


@dataclass(frozen=True, kw_only=True)
class PlanCommandOptions(PlanQuestion):
    """The config of `experiments.plan`."""

    planner: Planner = group(
        "default", {name: own_options(kind) for name, kind in PLANNERS.items()}, read_planner, "The planner"
    )


def _read(config: DictConfig, record: type[PlanCommandOptions]) -> PlanCommandOptions:
    """Return the options, once the names of model and cluster are known to be right."""
    options = read_record(config, record)
    given = vars(options) | {f"planner.{name}": value for name, value in vars(options.planner).items()}
    if empty := [name for name, value in given.items() if value == ()]:
        raise OptionError(f"{empty[0]}: is empty; give at least one entry")
    if options.profiles is None:
        from placements.cluster import read_cluster  # which help does not wait for
        from placements.models.zoo import read_model

        read_cluster(options.cluster, gpus_per_node=options.gpus_per_node)
        if options.model is not None and not Path(options.model).exists():
            read_model(options.model)
    return options


COMMAND = Command(
    "plan",
    PlanCommandOptions,
    task="experiments.plan.task",
    read=_read,
    first="model cluster batch planner sequence_length precision memory_gib planner.uniform",
    headlines={
        "profiles": "The model",
        "gpus_per_node": "The cluster",
        "framework": "Costs of layers",
        "model_flops_utilisation": "Shares of peaks",
    },
)
