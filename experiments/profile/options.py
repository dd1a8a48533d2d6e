"""Options of measuring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Command
from experiments.run.options import RuntimeOptions
from experiments.search.options import PRESETS, SearchCommandOptions
from placements.meaning import REQUIRED, group, option


@dataclass(frozen=True)
class ProfilingOptions:
    """The `profiling` group, of `experiments.profile` alone; see `runtime.profiling.profiler.Sweep`."""

    iterations: int = option(3, "minimum iterations at each clock", min=1)
    min_ms: float = option(0, "minimum time of all runs of a block at each clock, in ms", min=0)
    rises: int = option(
        5, "the sweep ends when every block's energy has risen this many times in a row", min=1
    )
    blocking_clocks: int = option(
        1, "number of clocks at which the power of waiting is measured: the highest, the lowest ...", min=1
    )
    in_pipeline: bool = option(
        False, "true: measured inside the schedule; false: one micro-batch after another"
    )
    trace: str | None = option(
        None, "trace of a run, or folder of traces, to measure from; nothing is run then"
    )
    pattern: str | None = option(
        None, "pattern of the trace's labels; null: those of torch's pipelines and of our own traces"
    )


@dataclass(frozen=True, kw_only=True)
class ProfileCommandOptions(SearchCommandOptions):
    """The config of `experiments.profile`."""

    profiling: ProfilingOptions = group()
    runtime: RuntimeOptions = group()


@dataclass(frozen=True, kw_only=True)
class RatesCommandOptions:
    """The config of ``schedsearch profile_rates``."""

    model: str = option(REQUIRED, "model whose operators are measured, such as llama3_8b, or a config.json")
    gpu: str = option(REQUIRED, "GPU of this machine, by whose peaks shares are told, such as b200")
    device: str = option("cuda", "cuda | cpu, to try it out")
    tensor_parallel: list[Any] = option([1, 2, 4, 8], "degrees whose shapes are measured")
    micro_batch: int = option(1, "samples of a micro-batch", min=1)
    sequence_length: int | None = option(None, "tokens of a sample; null: the model's", min=1)
    repeats: int = option(10, "times that each operator runs; the median counts", min=1)


COMMANDS = (
    Command(
        "profile",
        "Measure on this machine what the blocks cost.",
        ProfileCommandOptions,
        task="experiments.profile.task",
        presets=PRESETS,
        needs_torch=True,
    ),
    Command(
        "profile_rates",
        "Measure by shape what share of its peak this GPU reaches.",
        RatesCommandOptions,
        task="experiments.profile.rates_task",
        needs_torch=True,
    ),
)
