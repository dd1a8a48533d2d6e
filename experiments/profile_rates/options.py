"""Options of measuring rates."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option


@dataclass(frozen=True, kw_only=True)
class RatesCommandOptions:
    """The config of ``schedsearch profile_rates``."""

    model: Verbatim = option(REQUIRED, "model to measure the operators of, as llama3_8b, or a config.json")
    gpu: str = option(REQUIRED, "GPU of this machine, as b200; shares are of its peaks")
    device: str = option("cuda", "cuda | cpu, to try it out", choices=("cuda", "cpu"))
    tensor_parallel: tuple[int, ...] = option((1, 2, 4, 8), "degrees whose shapes are measured", min=1)
    micro_batch: int = option(1, "samples of a micro-batch", min=1)
    sequence_length: int | None = option(None, "tokens of a sample; null: the model's", min=1)
    repeats: int = option(10, "times that each operator runs; the median counts", min=1)


COMMAND = Command(
    "profile_rates",
    RatesCommandOptions,
    task="experiments.profile_rates.task",
    first="model gpu device tensor_parallel micro_batch sequence_length repeats",
    needs_torch=True,
)
