"""Inputs of a simulation: policy, GPUs, throughputs and types of jobs, jobs of a trace, rules of rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.cluster.options import (
    ClusterCommandOptions,
    FileTraceOptions,
    GeneratedTraceOptions,
    GpuClusterOptions,
    PolicyOptions,
)
from experiments.config.options import OptionError, require, require_known, require_path
from schedsearch.cluster.generator import generated
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.inputs.throughput_file import read_job_types, read_throughputs
from schedsearch.cluster.inputs.trace_file import read_trace
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_entry, policy_of
from schedsearch.cluster.policies.water_filling import Entity
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
        skipped_in_words: The same on one line, with all else that was left out; empty where nothing was.
    """

    cluster: GpuCluster
    throughputs: Throughputs
    jobs: Iterable[Job]
    rules: SimulationOptions
    trace_seed: int | None = None
    skipped: Mapping[tuple[str, int], int] = field(default_factory=dict)
    skipped_in_words: str = ""


TYPES = ("v100", "p100", "k80")
"""GPU types of numbers with colons between: Gavel's types, in its order."""

_EXAMPLES = {
    "workers": "36:36:36",
    "dollars_per_hour": "0.74:0.43:0.135",
    "gpus_per_server": "4:4:8",
    "idle_power_w": "40:30:25",
}
"""Numbers of the GPUs of each type, by the names of the options."""


def chosen_policy(name: str, options: PolicyOptions) -> Policy:
    """Return a new policy with the options that are given; null stands for the policy's default.

    Raises:
        OptionError: An option has a wrong form.
        ClusterError: The policy is not known, or has no such option.
    """
    given = {key: value for key, value in asdict(options).items() if value is not None}
    entities = {}
    for entity, value in given.get("entities", {}).items():
        where = f"policy_options.entities.{entity}"
        entry = value if isinstance(value, dict) else {"weight": value}
        require({*entry} <= {"weight", "policy"}, where, value, "a weight", "write {weight: 2, policy: fifo}")
        weight = entry.get("weight", 1.0)
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        require(is_number, f"{where}.weight", weight, "a number", "give one")
        entities[str(entity)] = Entity(float(weight), entry.get("policy", "fairness"))
    return policy_of(name, **given | ({"entities": entities} if "entities" in given else {}))


def gpu_cluster(options: GpuClusterOptions) -> GpuCluster:
    """Return the cluster; prices with colons between are left out for types that it does not have.

    Raises:
        OptionError: A number is none.
        ClusterError: A number is out of its range, or of a type that the cluster has not.
    """
    numbers = {name: _by_type(name, getattr(options, name)) for name in _EXAMPLES}
    for name in ("workers", "gpus_per_server"):
        for gpu_type, count in numbers[name].items():
            require(count == int(count), f"cluster.{name}.{gpu_type}", count, "a whole number", "give one")
        numbers[name] = {gpu_type: int(count) for gpu_type, count in numbers[name].items()}
    workers, prices, sizes, idle_w = numbers.values()
    if isinstance(options.dollars_per_hour, str):
        prices = {gpu_type: price for gpu_type, price in prices.items() if gpu_type in workers}
    cap_w = math.inf if options.power_cap_w is None else options.power_cap_w
    return GpuCluster(workers, prices, sizes, power_cap_w=cap_w, idle_power_w=idle_w)


def _by_type(name: str, given: str | Mapping[str, float] | None) -> Mapping[str, Any]:
    if not isinstance(given, str):
        return given or {}
    try:
        return dict(zip(TYPES, map(float, given.split(":")), strict=True))
    except ValueError:
        wanted = f"numbers of {':'.join(TYPES)}"
        remedy = f"write {_EXAMPLES[name]}, or types by name as in {{v100: 8, k80: 4}}"
        raise OptionError(f"cluster.{name}: {given!r} is not {wanted}; {remedy}") from None


def read_data(given: str | None, *, unconsolidated: bool = False) -> tuple[Throughputs, dict[str, bool]]:
    """Return the throughputs and job types of a folder, or of a file and the types beside it.

    With `unconsolidated` the throughputs of jobs on several servers are read too.

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
    wanted = "there" if file == path else f"a folder with {THROUGHPUTS}"
    require(file.exists(), "data", given, wanted, _WANTED)
    throughputs = read_throughputs(file, unconsolidated=unconsolidated)
    types = file.parent / JOB_TYPES
    if types.exists():
        return throughputs, read_job_types(types)
    names = dict.fromkeys(name for name, _ in throughputs.alone)
    several = {name for name, gpus in throughputs.alone if gpus > 1}
    return throughputs, {name: name in several for name in names}


def window_of(options: ClusterCommandOptions) -> tuple[int, int] | None:
    """Return the first job that is measured, and the one after the last.

    Raises:
        OptionError: They are not two numbers of jobs.
    """
    match options.window:
        case None:
            return None
        case [int(first), int(last)] if 0 <= first < last:
            return first, last
    raise OptionError(f"window: {[*options.window]} is not [FIRST, LAST + 1]; write as in window=[4000,5000]")


def read_workload(options: ClusterCommandOptions) -> Workload:
    """Return the inputs of the simulation that the options ask for.

    Raises:
        OptionError: An option is wrong.
        ClusterError: A number of GPUs, the throughputs or the trace are wrong.
    """
    trace, cluster, window = options.trace, gpu_cluster(options.cluster), window_of(options)
    throughputs, types = read_data(options.data, unconsolidated=options.placement_sensitive)
    if options.placement_sensitive:
        servers = options.cluster.gpus_per_server
        require(servers is not None, "cluster.gpus_per_server", None, "known", "give it, as in 4:4:8")
    rules = simulation_options(options)
    if isinstance(trace, FileTraceOptions):
        loaded = read_trace(trace.path, throughputs, seed=options.seed or 0, cluster=cluster)
        left_out = loaded.skipped_text()
        wanted = "a trace with jobs that have throughputs"
        require(bool(loaded.jobs), "trace", trace.path, wanted, f"{left_out}; see data")
        work = Workload(cluster, throughputs, loaded.jobs, rules, None, loaded.skipped, left_out)
        number = len(loaded.jobs)
    else:
        last = window[1] if window is not None and trace.num_jobs is None else trace.num_jobs
        if last is None:
            raise OptionError("trace.num_jobs: None is not a number of jobs; give one, or a window of them")
        number, jobs = last, generated(_types_of(trace, types), throughputs, trace)
        work = Workload(cluster, throughputs, jobs, rules, trace.seed)
    if window is not None:
        within = f"within the trace, which has {number} jobs"
        require(window[1] <= number, "window", [*window], within, "end it there")
    return work


def _types_of(trace: GeneratedTraceOptions, known: Mapping[str, bool]) -> dict[str, bool]:
    """Return the types that are drawn from; a wanted name may lack the brackets with the batch size."""
    if trace.types is None:
        return dict(known)
    model_of = {name: name.partition(" (")[0] for name in known}
    for name in trace.types:
        require_known("trace.types", name, [*known, *model_of.values()])
    return {name: several for name, several in known.items() if {name, model_of[name]} & {*trace.types}}


def simulation_options(options: ClusterCommandOptions) -> SimulationOptions:
    """Return how a trace is simulated; its seed is the simulator's, where that has none of its own.

    Raises:
        OptionError: The window is wrong.
        ClusterError: A number is out of its range.
    """
    seed = options.trace.seed if isinstance(options.trace, GeneratedTraceOptions) else 0
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
