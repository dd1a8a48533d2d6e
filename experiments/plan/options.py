"""Options of planning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from experiments.config.declaring import Command
from experiments.config.options import read_record
from placements.meaning import REQUIRED, Verbatim, option
from placements.models.memory import FRAMEWORKS


@dataclass(frozen=True, kw_only=True)
class PlanCommandOptions:
    """The config of `experiments.plan`; see the rooms `hybrid` and `pipedream` of `placements.planners`."""

    planner: str | None = option(
        None,
        "null: the best of the next two | hybrid: each layer in the best of several kinds of parallelism | "
        "layouts: all layers alike, as frameworks are configured | pipedream: a profile as a graph | "
        "pipedream_2bw: equal pipelines",
        choices=("hybrid", "layouts", "pipedream", "pipedream_2bw"),
    )
    model: Verbatim | None = option(
        None,
        "such as llama2_13b or bert_huge_32 (model=all lists them), a config.json of Hugging Face, or one of "
        "the profile",
    )
    cluster: str = option(REQUIRED, "GPU and number, such as a100_32; of several kinds as in a100_16+v100_16")
    batch: int | list[Any] = option(
        REQUIRED,
        "samples of an iteration; of a list, as [256, 512], the one with the most samples per second is "
        "taken",
    )
    profiles: Verbatim | None = option(
        None,
        "folder of measured layers and links in Sailor's or Galvatron's form; of pipedream: a CSV file of "
        "nodes",
    )
    flat: bool = option(False, "for pipedream: all GPUs as one level, with the links between nodes")
    num_layers: int | None = option(None, "transformer layers; null: the model's own, as for the next two")
    sequence_length: int | None = option(None, "tokens of a sample")
    vocab_size: int | None = option(None, "entries of the vocabulary")
    imbalance: float | None = option(
        None, "tokens of the busiest GPU's experts, as a multiple of an equal share; null: 1", min=1
    )
    precision: str | None = option(
        None, "half, bf16, single, tf32, fp8, fp8_blockwise, mxfp8 or nvfp4; null: the model's, half as bf16"
    )
    framework: str = option(
        "megatron",
        "what holds memory besides states and activations",
        choices=tuple(FRAMEWORKS),
    )
    machine: Verbatim | None = option(
        None, "file of measured rates of the GPU, JSON or CSV; null: shares of peaks"
    )
    micro_batch_sizes: list[Any] = option(
        [1, 2, 4], "for layouts and pipedream_2bw: samples of a micro-batch to try"
    )
    max_chunks: int = option(24, "for layouts: most chunks of a stage", min=1)
    explain: dict[str, Any] | list[Any] | None = option(
        None, "for layouts: one or several to compare with the best, as {tp: 4, pp: 8}"
    )
    overlap_tensor_parallel: bool = option(
        False, "for layouts: tensor-parallel GPUs gather and scatter tokens beside the products around it"
    )
    sends_tokens_once: bool = option(
        False, "for layouts: a token goes once to each GPU that has any of its experts, as with DeepEP"
    )
    layer_times: Verbatim | None = option(None, "CSV of measured layer times, in place of modelled ones")
    gpus_per_node: int | None = option(None, "GPUs of a node; null: 8, or all where there are fewer")
    node_bandwidth_gb_s: float | None = option(
        None, "bandwidth from a node to all others, in GB/s in one direction; null: the usual machine's"
    )
    link_bandwidth_gb_s: float | None = option(
        None, "bandwidth between two GPUs of a node, in GB/s; null: the GPU's own"
    )
    memory_gib: float | None = option(None, "memory of each GPU, in GiB; null: its own")
    reserve_gib: float = option(4.0, "memory of each GPU, in GiB, that neither states nor activations use")
    paradigms: list[Any] = option(
        ["dp", "zero1", "sdp", "tp"],
        "how GPUs may share a layer: dp, zero1, zero2, sdp (ZeRO-3), tp, ulysses, cp",
        choices=("dp", "zero1", "zero2", "sdp", "tp", "ulysses", "cp"),
    )
    recompute: list[Any] = option(
        ["none", "full"],
        "activations that a backward may compute again: none, selective, full",
        choices=("none", "selective", "full"),
    )
    sequence_parallel: bool = option(
        True, "true: tensor-parallel GPUs share norms and dropout too (Megatron); false: not with layouts"
    )
    max_tensor_parallel: int | None = option(None, "largest degree of tp and ulysses; null: no limit")
    expert_parallel: list[Any] = option([1], "degrees of expert parallelism to try")
    num_stages: list[Any] | None = option(None, "numbers of stages to try; null: all, as for the next two")
    gpus_per_stage: list[Any] | None = option(None, "GPUs of each stage: a part of a node, or whole nodes")
    num_micro_batches: list[Any] | None = option(
        None,
        "micro-batches of an iteration, as a list to try; numbers that do not divide the batch are left out",
    )
    method: str = option(
        "exact", "exact | bmw, base, memory: Galvatron-BMW's", choices=("exact", "bmw", "base", "memory")
    )
    stage_method: str = option(
        "exact",
        "strategies inside a stage: exact | paper (Galvatron-BMW's programme)",
        choices=("exact", "paper"),
    )
    pipeline: str = option("1f1b", "activations held: 1f1b | gpipe", choices=("1f1b", "gpipe"))
    idle_gpus: bool = option(True, "true: a plan may leave GPUs idle")
    num_plans: int = option(5, "plans to keep; they differ in stages, GPUs per stage or micro-batches", min=1)
    time_limit_s: float = option(
        120,
        "time limit of the whole command, in s: half for the planners, what they leave for the schedules",
    )
    rank: str = option(
        "schedule",
        "plans by their searched schedule | by the planner's formula",
        choices=("schedule", "formula"),
    )
    shapes: list[Any] = option(
        ["v_shape"],
        "placements to compare: v_shape, loop_shape, wave_shape, m_shape, nn_shape",
        choices=("v_shape", "loop_shape", "wave_shape", "m_shape", "nn_shape"),
    )
    num_chunks: int = option(2, "model chunks of a device in wave and loop", min=2)
    seed: int = option(0, "seed of these searches")
    model_flops_utilisation: float = option(0.5, "share of the GPU's peak that layers reach")
    output_layer_utilisation: float = option(0.65, "share of the peak that the output layer reaches")
    memory_efficiency: float = option(0.85, "share of the memory bandwidth that is reached")
    overlap_slowdown: float = option(1.3, "factor on computing and transfers while both run")
    overlap_gradients: bool = option(
        False, "false: gradients are summed after the last backward; true: during it, not with layouts"
    )


def _read(config: DictConfig, record: type[PlanCommandOptions]) -> PlanCommandOptions:
    """Return the options, once the names of model and cluster are known to be right."""
    options = read_record(config, record)
    if options.profiles is None:
        from placements.cluster import read_cluster  # which help does not wait for
        from placements.models.zoo import read_model

        read_cluster(options.cluster, gpus_per_node=options.gpus_per_node)
        if options.model is not None and not Path(options.model).exists():
            read_model(options.model)
    return options


COMMAND = Command(
    "plan",
    "Plan a model on a cluster; rank plans by their schedules.",
    PlanCommandOptions,
    task="experiments.plan.task",
    read=_read,
    first="model cluster batch planner sequence_length precision memory_gib explain",
    headlines={
        "profiles": "The model",
        "framework": "What layers cost",
        "gpus_per_node": "The cluster",
        "paradigms": "What is tried",
        "method": "The planner",
        "rank": "Schedules of the plans",
        "model_flops_utilisation": "Shares of peaks",
    },
)
