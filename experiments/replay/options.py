"""Options of the replay of measured jobs."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option


@dataclass(frozen=True, kw_only=True)
class ReplayCommandOptions:
    """The config of `experiments.replay`."""

    data: Verbatim = option(
        REQUIRED,
        "trace or folder of traces: torch's profiler, Nsight Systems, Primus, Megatron-LM's log",
    )
    pattern: Verbatim | None = option(
        None, "labels of blocks, with groups stage, kind and micro_batch; null: torch's and Megatron-LM's own"
    )
    tensor_parallel: int = option(
        1, "ranks that run each block together, where the trace does not say it", min=1
    )
    profile: Verbatim | None = option(
        None, "profile.csv with the energies of the blocks, for the columns of energy; null: none"
    )
    blocking_power_w: float | None = option(
        None, "with profile: power of a GPU that waits; has no default", "W", min=0
    )
    tokens: int | None = option(None, "with profile: tokens of a micro-batch, for tokens per kWh", min=1)
    work_limit: float = option(
        12.0, "limit of counted work for all searches together, a unit is about 1 s of one core", above=0
    )
    seed: int = option(0, "seed of the random choices", min=0)


COMMAND = Command(
    "replay",
    ReplayCommandOptions,
    task="experiments.replay.task",
    first="data pattern work_limit seed",
    objective="reordered_ms",
)
