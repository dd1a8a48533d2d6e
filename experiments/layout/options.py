"""Options of the search for a layout."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option
from schedsearch.layouts.defaults import NUM_CHUNKS, WORK_LIMIT


@dataclass(frozen=True, kw_only=True)
class LayoutCommandOptions:
    """The config of `experiments.layout`."""

    layers: Verbatim | None = option(
        None, "CSV of a model's layers, log of Megatron-LM's timers, folder of schedsearch profile, or trace"
    )
    model: Verbatim | None = option(
        None, "instead of layers: a name or config.json as in schedsearch plan, priced on cluster"
    )
    cluster: str | None = option(None, "with model: GPU and number, as h100_64; or a JSON file")
    tensor_parallel: int = option(1, "with model: GPUs that share each matrix", min=1)
    expert_parallel: int = option(1, "with model: GPUs that share the experts", min=1)
    micro_batch_size: int = option(1, "with model: samples of a micro-batch of one pipeline", min=1)
    sequence_length: int | None = option(None, "with model: tokens of a sample; null: the model's own")
    precision: str | None = option(None, "with model: as in plan; null: the model's, half as bf16")
    measured_layout: Verbatim | None = option(
        None, "parts of each block of a profile or trace, as 'Et*8|t*8L'; null: embedding, layers and loss"
    )
    num_devices: int = option(REQUIRED, "devices of the pipeline", min=1)
    num_micro_batches: int = option(REQUIRED, "micro-batches of an iteration", min=1)
    num_chunks: tuple[int, ...] = option(
        NUM_CHUNKS, "virtual stages of each device: 1 for 1F1B, more for interleaved 1F1B", min=1
    )
    memory_mib: float | None = option(
        None,
        "memory of each device for weights and activations; null: no limit, with model its GPU's",
        "MiB",
        above=0,
    )
    transfer_ms: float | None = option(
        None,
        "time from a block's end to its output on the next device; null: 0, with model its cluster's",
        "ms",
        min=0,
    )
    given: tuple[Verbatim, ...] = option(
        (), "files of Megatron-LM's or torchtitan's arguments, whose layouts stand beside the best"
    )
    work_limit: float = option(
        WORK_LIMIT,
        "limit of counted work for all numbers of chunks together, a unit is about 1 s of one core",
        above=0,
    )


COMMAND = Command(
    "layout",
    LayoutCommandOptions,
    task="experiments.layout.task",
    first="layers model cluster tensor_parallel num_devices num_micro_batches num_chunks memory_mib",
    objective="iteration_ms",
)
