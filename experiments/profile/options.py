"""Options of measuring."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from experiments.run.options import RuntimeOptions
from experiments.search.options import PRESETS, SearchCommandOptions, read_options
from placements.forms.meaning import Verbatim, group, option


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
    trace: Verbatim | None = option(
        None, "trace of a run, or folder of traces, to measure from; nothing is run then"
    )
    length_table: Verbatim | None = option(
        None,
        "CSV of tokens,block,time_ms and perhaps memory_mib, of three lengths or more, to fit rules of the "
        "length to; nothing is run then",
    )
    pattern: Verbatim | None = option(
        None, "pattern of the trace's labels; null: those of torch's pipelines and of our own traces"
    )


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
    needs_torch=True,
)
