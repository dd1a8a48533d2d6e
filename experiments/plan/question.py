"""Options of all planners: a model, a cluster, a batch, and the source of layers' costs."""

from __future__ import annotations

from dataclasses import dataclass

from placements.forms.meaning import REQUIRED, Verbatim, option
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
        None,
        "folder of measured layers and links in Sailor's or Galvatron's form; of pipedream: a CSV file of "
        "nodes",
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
    memory_gib: float | None = option(None, "memory of each GPU; null: its own", "GiB", above=0)
    reserve_gib: float = option(4.0, "memory of each GPU that neither states nor activations use", "GiB")
    framework: str = option(
        "megatron", "what holds memory besides states and activations", choices=tuple(FRAMEWORKS)
    )
    machine: Verbatim | None = option(
        None, "file of measured rates of the GPU, JSON or CSV; null: the project's, where it has the GPU's"
    )
    calibrate: Verbatim | None = option(
        None, "CSV of runs on the GPU, as for predict: one or two factors on modelled times; null: none"
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
