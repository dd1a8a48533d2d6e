"""Inputs of a simulation: GPUs, throughputs and types of jobs, jobs of a trace, and rules of rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.cluster.gpu_numbers import gpu_cluster
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

_WANTED = f"give a folder with {THROUGHPUTS} and {JOB_TYPES}, or a file of throughputs"

GAVEL, IN_TURN, ONE_QUEUE = "gavel", "in_turn", "one_queue"
"""How GPUs are given in rounds: as in Gavel's simulator, where one GPU type after another chooses its jobs,
those that would idle run jobs without a share there, and an idle cluster waits for the next arrival; so but
without that wait; or as in Gavel's text, by priority in one queue."""


@dataclass(frozen=True)
class Workload:
    """Inputs of a simulation.

    Attributes:
        cluster: The GPUs.
        throughputs: Throughputs of all jobs.
        jobs: In the order of their arrival; without end where they are generated for a window.
        rules: How the jobs are simulated.
        trace_seed: Seed of a generated trace; None for a file.
        skipped: How many jobs were left out, by type and scale factor.
        skipped_in_words: The same on one line, with what else was left out; empty where nothing was.
    """

    cluster: GpuCluster
    throughputs: Throughputs
    jobs: Iterable[Job]
    rules: SimulationOptions
    trace_seed: int | None = None
    skipped: Mapping[tuple[str, int], int] = field(default_factory=dict)
    skipped_in_words: str = ""


Trace = GeneratedTraceOptions | FileTraceOptions


def read_data(given: str | None, *, unconsolidated: bool = False) -> tuple[Throughputs, dict[str, bool]]:
    """Return the throughputs and job types of a folder, or of a file and the types beside it.

    Args:
        given: Path of the folder or file.
        unconsolidated: Whether to read what jobs get on several servers too.

    Returns:
        The throughputs; and whether each type may run on more than one GPU, in the order in which jobs are
        drawn.

    Raises:
        OptionError: Neither is there.
        ClusterError: A file is wrong.
    """
    require(given is not None, "data", given, "a path", f"{_WANTED}, as in data=FOLDER")
    path = Path(require_path("data", given))
    file = path / THROUGHPUTS if path.is_dir() else path
    require(
        file.exists(), "data", given, "there" if file == path else f"a folder with {THROUGHPUTS}", _WANTED
    )
    throughputs = read_throughputs(file, unconsolidated=unconsolidated)
    types = file.parent / JOB_TYPES
    if types.exists():
        return throughputs, read_job_types(types)
    names = dict.fromkeys(name for name, _ in throughputs.alone)
    several = {name for name, gpus in throughputs.alone if gpus > 1}
    return throughputs, {name: name in several for name in names}


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


def read_workload(options: ClusterCommandOptions) -> Workload:
    """Return the inputs of the simulation that the options ask for.

    Raises:
        OptionError: An option is wrong.
        ClusterError: A number of GPUs, the throughputs or the trace are wrong.
    """
    trace, cluster, window = trace_options(options.trace), gpu_cluster(options.cluster), window_of(options)
    throughputs, types = read_data(options.data, unconsolidated=options.placement_sensitive)
    if options.placement_sensitive:
        servers = options.cluster.gpus_per_server
        require(servers is not None, "cluster.gpus_per_server", None, "known", "give it, as in 4:4:8")
    rules = simulation_options(options, trace)
    if isinstance(trace, FileTraceOptions):
        found = read_trace(trace.path, throughputs, seed=options.seed or 0, cluster=cluster)
        left_out = found.skipped_text()
        wanted = "a trace with jobs that have throughputs"
        require(bool(found.jobs), "trace", trace.path, wanted, f"{left_out}; see data")
        _check_window(window, len(found.jobs))
        return Workload(cluster, throughputs, found.jobs, rules, None, found.skipped, left_out)
    number = trace.num_jobs if trace.num_jobs is not None else window[1] if window is not None else None
    if number is None:
        raise OptionError("trace.num_jobs: None is not a number of jobs; give one, or a window of them")
    _check_window(window, number)
    jobs = generated(_types_of(trace, types), throughputs, trace)
    return Workload(cluster, throughputs, jobs, rules, trace.seed)


def _check_window(window: tuple[int, int] | None, num_jobs: int) -> None:
    where = [*window] if window is not None else []
    is_within = window is None or window[1] <= num_jobs
    require(is_within, "window", where, f"within the trace, which has {num_jobs} jobs", "end it there")


def _types_of(trace: GeneratedTraceOptions, known: Mapping[str, bool]) -> dict[str, bool]:
    """Return the types that are drawn from."""
    if trace.types is None:
        return dict(known)
    wanted = [str(name) for name in trace.types]
    for name in wanted:
        require_known("trace.types", name, [*known, *map(_model_of, known)])
    return {name: several for name, several in known.items() if {name, _model_of(name)} & {*wanted}}


def _model_of(job_type: str) -> str:
    """Return the name of a type without the brackets behind it, which hold its batch size."""
    return job_type.partition(" (")[0]


def simulation_options(options: ClusterCommandOptions, trace: Trace) -> SimulationOptions:
    """Return how a trace is simulated; its seed is the simulator's, where that has none of its own.

    Raises:
        OptionError: The window is wrong.
        ClusterError: A number is out of its range.
    """
    seed = trace.seed if isinstance(trace, GeneratedTraceOptions) else 0
    return SimulationOptions(
        round_s=options.round_s,
        reset_s=options.recompute_s,
        seed=seed if options.seed is None else options.seed,
        types_in_turn=rounds_of(options) != ONE_QUEUE,
        skips_to_arrivals=options.rounds == GAVEL,
        window=window_of(options),
        stop_at_s=math.inf if options.stop_at_h is None else 3600 * options.stop_at_h,
        checkpoint_s=options.checkpoint_s,
        restart_s=options.restart_s,
    )


def rounds_of(options: ClusterCommandOptions) -> str:
    """Return how GPUs are given under the policy; see `GAVEL`."""
    if options.rounds is None:
        return ONE_QUEUE if policy_entry(options.policy).idles_on_purpose else IN_TURN
    return options.rounds
