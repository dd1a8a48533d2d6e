"""Options of the search for a layout."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option
from schedsearch.layouts.defaults import NUM_CHUNKS, WORK_LIMIT


@dataclass(frozen=True, kw_only=True)
class LayoutCommandOptions:
    """The config of `experiments.layout`."""

    layers: Verbatim = option(
        REQUIRED,
        "CSV of the model's layers, log of Megatron-LM's timers, folder of schedsearch profile, or trace",
    )
    measured_layout: Verbatim | None = option(
        None,
        "parts of each block in a profile or trace, as 'Et*8|t*8L'; null: the embedding, layers and the loss",
    )
    num_devices: int = option(REQUIRED, "devices of the pipeline", min=1)
    num_micro_batches: int = option(REQUIRED, "micro-batches of an iteration", min=1)
    num_chunks: tuple[int, ...] = option(
        NUM_CHUNKS, "virtual stages of each device: 1 for 1F1B, more for interleaved 1F1B", min=1
    )
    memory_mib: float | None = option(
        None, "memory of each device for weights and activations; null: no limit", "MiB", above=0
    )
    transfer_ms: float = option(
        0.0, "time from the end of a block to where its output is on the next device", "ms", min=0
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
    first="layers num_devices num_micro_batches num_chunks memory_mib given transfer_ms work_limit",
    objective="iteration_ms",
)
