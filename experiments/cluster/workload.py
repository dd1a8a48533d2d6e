"""Inputs of the options: throughputs and types of jobs, the jobs of a trace, and how they are simulated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.cluster.options import (
    ClusterCommandOptions,
    FileTraceOptions,
    GeneratedTraceOptions,
)
from experiments.config.options import OptionError, read_fields, require, require_known, require_path
from schedsearch.cluster.generator import generated
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.inputs.throughput_file import read_job_types, read_throughputs
from schedsearch.cluster.inputs.trace_file import read_trace
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_entry
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.throughputs import Throughputs

THROUGHPUTS, JOB_TYPES = "simulation_throughputs.json", "job_types.csv"
"""Files of a folder of data."""

_WANTED = f"a folder with {THROUGHPUTS} and {JOB_TYPES}, or a file of throughputs"

GAVEL, IN_TURN, ONE_QUEUE = "gavel", "in_turn", "one_queue"
"""How GPUs are given in rounds: as in Gavel's simulator, where one GPU type after another chooses its jobs,
those that would idle run jobs without a share there, and an idle cluster waits for the next arrival; so but
without that wait; or as in Gavel's text, by priority in one queue."""


@dataclass(frozen=True)
class JobTypeData:
    """Throughputs and sizes of types of jobs.

    Attributes:
        throughputs: By type, scale factor and GPU type.
        types: Whether each type may run on more than one GPU, in the order in which jobs are drawn.
    """

    throughputs: Throughputs
    types: Mapping[str, bool]


@dataclass(frozen=True)
class Work:
    """The jobs of one simulation.

    Attributes:
        jobs: In the order of their arrival; without end where they are generated for a window.
        skipped: How many were left out, by type and scale factor.
        skipped_in_words: The same on one line, with what else was left out; empty where nothing was.
    """

    jobs: Iterable[Job]
    skipped: Mapping[tuple[str, int], int]
    skipped_in_words: str = ""


Trace = GeneratedTraceOptions | FileTraceOptions


def read_data(given: str | None, *, unconsolidated: bool = False) -> JobTypeData:
    """Return the throughputs and types of a folder, or of a file and the job types beside it.

    Args:
        given: Path of the folder or file.
        unconsolidated: Whether to read what jobs get on several servers too.

    Raises:
        OptionError: Neither is there.
        ClusterError: A file is wrong.
    """
    require(given is not None, "data", given, "a path", f"give {_WANTED}, as in data=FOLDER")
    path = Path(require_path("data", given))
    file = path / THROUGHPUTS if path.is_dir() else path
    require(
        file.exists(), "data", given, "there" if file == path else f"a folder with {THROUGHPUTS}", _WANTED
    )
    throughputs = read_throughputs(file, unconsolidated=unconsolidated)
    types = file.parent / JOB_TYPES
    if types.exists():
        return JobTypeData(throughputs, read_job_types(types))
    names = dict.fromkeys(name for name, _ in throughputs.alone)
    several = {name for name, gpus in throughputs.alone if gpus > 1}
    return JobTypeData(throughputs, {name: name in several for name in names})


def trace_options(given: Mapping[str, Any]) -> Trace:
    """Return the `trace` group as a record."""
    require_known("trace.kind", given.get("kind"), ("generated", "file"))
    if given["kind"] == "file":
        return read_fields(given, FileTraceOptions, "trace")
    return read_fields(given, GeneratedTraceOptions, "trace")


def window_of(options: ClusterCommandOptions) -> tuple[int, int] | None:
    """Return the first job that is measured, and the one after the last.

    Raises:
        OptionError: They are not two numbers of jobs.
    """
    if options.window is None:
        return None
    match options.window:
        case [int(first), int(last)] if 0 <= first < last:
            return first, last
    raise OptionError(f"window: {[*options.window]} is not [FIRST, LAST + 1]; write as in window=[4000,5000]")


def work_of(trace: Trace, data: JobTypeData, cluster: GpuCluster, options: ClusterCommandOptions) -> Work:
    """Return the jobs of a trace.

    Raises:
        OptionError: An option is wrong.
        ClusterError: The trace is wrong.
    """
    if isinstance(trace, FileTraceOptions):
        found = read_trace(trace.path, data.throughputs, seed=options.seed or 0, cluster=cluster)
        left = f"{found.skipped_text()}; see data"
        require(bool(found.jobs), "trace", trace.path, "a trace with jobs that have throughputs", left)
        _check_window(window_of(options), len(found.jobs))
        return Work(found.jobs, found.skipped, found.skipped_text())
    window = window_of(options)
    number = trace.num_jobs if trace.num_jobs is not None else window[1] if window is not None else None
    require(number is not None, "trace.num_jobs", None, "a number of jobs", "give one, or a window of them")
    assert number is not None
    _check_window(window, number)
    types = _types(trace, data)
    return Work(generated(types, data.throughputs, trace), {})


def _check_window(window: tuple[int, int] | None, num_jobs: int) -> None:
    where = [*window] if window is not None else []
    is_within = window is None or window[1] <= num_jobs
    require(is_within, "window", where, f"within the trace, which has {num_jobs} jobs", "end it there")


def _types(trace: GeneratedTraceOptions, data: JobTypeData) -> dict[str, bool]:
    """Return the types that are drawn from."""
    if trace.types is None:
        return dict(data.types)
    wanted = [str(name) for name in trace.types]
    for name in wanted:
        require_known("trace.types", name, [*data.types, *(_model_of(each) for each in data.types)])
    return {name: several for name, several in data.types.items() if {name, _model_of(name)} & {*wanted}}


def _model_of(job_type: str) -> str:
    """Return the name of a type without the brackets behind it, which hold its batch size."""
    return job_type.partition(" (")[0]


def simulation_options(options: ClusterCommandOptions, trace: Trace, policy: str) -> SimulationOptions:
    """Return how a trace is simulated.

    Args:
        options: Options of the command.
        trace: Options of the trace; its seed is the simulator's, where that has none of its own.
        policy: Its name; it says how GPUs are given where the options do not.

    Raises:
        OptionError: The window is wrong.
        ClusterError: A number is out of its range.
    """
    seed = trace.seed if isinstance(trace, GeneratedTraceOptions) else 0
    return SimulationOptions(
        round_s=options.round_s,
        reset_s=options.recompute_s,
        seed=seed if options.seed is None else options.seed,
        types_in_turn=rounds_of(options, policy) != ONE_QUEUE,
        skips_to_arrivals=options.rounds == GAVEL,
        window=window_of(options),
        stop_at_s=math.inf if options.stop_at_h is None else 3600 * options.stop_at_h,
        checkpoint_s=options.checkpoint_s,
        restart_s=options.restart_s,
    )


def rounds_of(options: ClusterCommandOptions, policy: str) -> str:
    """Return how GPUs are given under a policy; see `GAVEL`."""
    if options.rounds is None:
        return ONE_QUEUE if policy_entry(policy).idles_on_purpose else IN_TURN
    return options.rounds


def at_load(trace: Trace, jobs_per_hour: float | None, seed: int | None) -> Trace:
    """Return a trace at another load and with another seed; None for its own.

    Raises:
        OptionError: It is of a file.
    """
    if jobs_per_hour is None and seed is None:
        return trace
    if isinstance(trace, FileTraceOptions):
        name = "loads" if seed is None else "seeds"
        raise OptionError(f"{name}: are of generated traces, not of {trace.path}; leave them out")
    trace = trace if jobs_per_hour is None else replace(trace, lam_s=3600 / jobs_per_hour)
    return trace if seed is None else replace(trace, seed=seed)
