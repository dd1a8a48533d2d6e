"""Options of many jobs on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Command, Option, own_options
from experiments.config.options import read_fields, require_known
from placements.forms.meaning import REQUIRED, Verbatim, group, inherited, option
from schedsearch.cluster.generator import GeneratorOptions


@dataclass(frozen=True)
class GpuClusterOptions:
    """The `cluster` group; see `schedsearch.cluster.gpu_cluster`."""

    workers: str | Mapping[str, float] = option(
        "36:36:36", "GPUs of each type: v100:p100:k80, or by name as in {a100: 8, h100: 16}"
    )
    dollars_per_hour: str | Mapping[str, float] | None = option(
        "0.74:0.43:0.135", "price of one GPU, in the same form; preemptible GPUs of GCP in 2020"
    )
    gpus_per_server: str | Mapping[str, float] | None = option(
        None, "GPUs of each type in one server, in the same form; null: 1"
    )
    idle_power_w: str | Mapping[str, float] | None = option(
        None, "power of one idle GPU of each type, in W, in the same form; null: 0"
    )
    power_cap_w: float | None = option(
        None,
        "limit on the average power of all GPUs together, in W, for jobs whose power is known; null: no cap",
    )


@dataclass(frozen=True)
class GeneratedTraceOptions(GeneratorOptions):
    """The `trace` group of generated jobs."""

    lam_s: float = inherited(GeneratorOptions, "lam_s", 9000)
    kind: str = option("generated", "set by trace=")
    types: tuple[str, ...] | None = option(
        None, "types of jobs, or the beginnings of their names; null: all of the data"
    )


@dataclass(frozen=True, kw_only=True)
class FileTraceOptions:
    """The `trace` group of a file; see `schedsearch.cluster.inputs`."""

    kind: str = option("file", "set by trace=")
    path: Verbatim = option(
        REQUIRED, "trace file: Gavel's, our own CSV, Philly's or Alibaba's; trace=PATH sets both"
    )


@dataclass(frozen=True)
class PolicyOptions:
    """The `policy_options` group; see `schedsearch.cluster.policies`. Null: the policy's default."""

    entities: Mapping[Any, Any] | None = option(
        None, "for hierarchical: weight and policy of each entity, as {a: {weight: 2, policy: fifo}}"
    )
    budget_dollars: float | None = option(
        None, "for makespan_budget: dollars that all jobs together may cost"
    )
    margin_s: float | None = option(
        None, "for policies with SLOs: how long before its SLO a job should be done, in s"
    )
    min_share: float | None = option(
        None,
        "for least_energy_slo and least_cost_slo: minimum share of its isolated throughput, for jobs "
        "without an SLO",
    )
    dollars_per_kwh: float | None = option(None, "for least_cost_slo: the price of electricity")


@dataclass(frozen=True)
class RealRunOptions:
    """The `run` group; see `runtime.rounds`."""

    command: Verbatim | None = option(
        None,
        "runs the jobs on Ray too, as 'python train.py {type}'; {job} is a job's name",
    )
    retries: int = option(1, "how often a job may fail and go on from its last checkpoint", min=0)
    timeout_s: float | None = option(
        None,
        "time that a job may take for the steps of a round, in s, before it counts as failed; null: any",
        above=0,
    )


CLUSTERS: Mapping[str, tuple[Option, ...]] = {
    # Gavel's simulated cluster and its physical one (dissertation, Sec. 5.7.1)
    "gavel": own_options(GpuClusterOptions),
    "physical": own_options(GpuClusterOptions, workers="8:16:24"),
}
"""The kinds of the group `cluster`."""

TRACES: Mapping[str, tuple[Option, ...]] = {
    "file": own_options(FileTraceOptions),
    # as Gavel's generator draws them (dissertation, Sec. 5.7.1), of one GPU each
    "generated": own_options(GeneratedTraceOptions),
    # all there from the start, for policies that minimize the makespan
    "static": own_options(GeneratedTraceOptions, lam_s=0, num_jobs=100),
    # of 1, 2, 4 and 8 GPUs, at the load of Gavel's figures of these: 2.6 jobs per hour
    "multi_gpu": own_options(GeneratedTraceOptions, lam_s=1384.6, multi_gpu=True),
    # of the comparison of cost policies (dissertation, Sec. 5.7.3): long ones of two models, with SLOs
    "cost_study": own_options(
        GeneratedTraceOptions,
        lam_s=0,
        num_jobs=500,
        slos=True,
        durations_h=(12, 24, 48, 96, 192),
        types=["ResNet-50", "A3C"],
    ),
}
"""The kinds of the group `trace`."""


Trace = GeneratedTraceOptions | FileTraceOptions


def _read_trace(given: Mapping[str, Any]) -> Trace:
    require_known("trace.kind", given.get("kind"), ("generated", "file"))
    if given["kind"] == "file":
        return read_fields(given, FileTraceOptions, "trace")
    return read_fields(given, GeneratedTraceOptions, "trace")


@dataclass(frozen=True, kw_only=True)
class ClusterCommandOptions:
    """All of `experiments.cluster`; which options the trace has says its kind."""

    policy: str = option("las", "policy that decides where each job runs; -m policy=las,fifo compares two")
    data: Verbatim | None = option(
        None,
        "Gavel's folder of throughputs and job types, or a CSV: job_type,scale_factor,gpu_type,steps_per_s",
    )
    allocate: Verbatim | None = option(
        None, "a JSON file of jobs, throughputs and workers: makes one decision, simulates nothing"
    )
    window: tuple[int, ...] | None = option(
        None, "jobs that are measured, [4000, 5000] for 4000 to 4999; null: all of the trace"
    )
    round_s: float = option(360, "length of a round, in s")
    recompute_s: float = option(1920, "minimum time between two decisions of the policy, in s")
    rounds: str | None = option(
        None,
        "gavel: as Gavel's simulator | in_turn: so, but an idle cluster does not wait for the next arrival | "
        "one_queue: as Gavel's text; null: in_turn, for policies of cost one_queue",
        choices=("gavel", "in_turn", "one_queue"),
    )
    placement_sensitive: bool = option(
        False, "true: jobs are slower on more servers than they need, and policies know it"
    )
    checkpoint_s: float = option(0, "time to save a job that has to leave its GPUs, in s")
    restart_s: float = option(0, "time to start a job on GPUs where it was not before, in s")
    stop_at_h: float | None = option(
        None, "ends the simulation at this time, in h, with jobs that are not done"
    )
    seed: int | None = option(None, "seed of the simulator's random choices; null: the trace's, or 0")
    cluster: GpuClusterOptions = group("gavel", CLUSTERS, headline="The GPUs")
    trace: Trace = group("generated", TRACES, _read_trace, headline="The jobs")
    policy_options: PolicyOptions = group(headline="The policy")
    run: RealRunOptions = group(headline="Jobs that really run")


COMMAND = Command(
    "cluster",
    ClusterCommandOptions,
    task="experiments.cluster.task",
    first="data policy trace trace.path trace.num_jobs cluster.workers allocate window",
)
