"""Options of measuring."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from experiments.run.options import RuntimeOptions
from experiments.search.options import OF_ONE_PIPELINE, PRESETS, SearchCommandOptions, read_options
from placements.forms.meaning import Verbatim, group, option


@dataclass(frozen=True)
class ProfilingOptions:
    """The `profiling` group, of `experiments.profile` alone; see `runtime.profiling.profiler.Sweep`."""

    iterations: int = option(3, "minimum iterations at each clock", min=1)
    min_ms: float = option(0, "minimum time of all runs of a block at each clock, in ms", min=0)
    rises: int = option(5, "rises of every block's energy in a row that end the sweep", min=1)
    blocking_clocks: int = option(1, "clocks, highest and lowest first, to measure waiting at", min=1)
    trace: Verbatim | None = option(None, "trace of a run, or folder of them, to read; nothing is run then")
    length_table: Verbatim | None = option(
        None, "CSV of tokens,block,time_ms[,memory_mib] to fit rules of the length to; nothing is run then"
    )
    pattern: Verbatim | None = option(None, "pattern of the trace's labels; null: torch's, Megatron's, ours")


@dataclass(frozen=True, kw_only=True)
class ProfileCommandOptions(SearchCommandOptions):
    """The config of `experiments.profile`."""

    profiling: ProfilingOptions = group(headline="The measurement")
    runtime: RuntimeOptions = group(headline="The model and its run")


COMMAND = Command(
    "profile",
    ProfileCommandOptions,
    task="experiments.profile.task",
    read=read_options,
    first="placement placement.path runtime.model runtime.path profiling.iterations profiling.trace",
    presets=PRESETS,
    refused=OF_ONE_PIPELINE,
    needs_torch=True,
)
