"""Options of many jobs on a cluster, and of prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placements.meaning import REQUIRED, group, option


@dataclass(frozen=True)
class GpuClusterOptions:
    """The `cluster` group; see `schedsearch.cluster.gpu_cluster`."""

    workers: str | dict[Any, Any] = option(
        "36:36:36", "GPUs of each type: v100:p100:k80, or by name as in {a100: 8, h100: 16}"
    )
    dollars_per_hour: str | dict[Any, Any] | None = option(
        "0.74:0.43:0.135", "price of one GPU, in the same form; preemptible GPUs of GCP in 2020"
    )
    gpus_per_server: str | dict[Any, Any] | None = option(
        None, "GPUs of each type in one server, in the same form; null: 1"
    )
    idle_power_w: str | dict[Any, Any] | None = option(
        None, "power of one idle GPU of each type, in W, in the same form; null: 0"
    )
    power_cap_w: float | None = option(
        None,
        "limit on the average power of all GPUs together, in W, for jobs whose power is known; null: no cap",
    )


@dataclass(frozen=True)
class GeneratedTraceOptions:
    """The `trace` group of generated jobs; see `schedsearch.cluster.generator`."""

    kind: str = option("generated", "set by trace=")
    seed: int = option(0, "seed of everything that is drawn")
    lam_s: float = option(9000, "mean time between arrivals, in s: 3600 / jobs per hour; 0: all at the start")
    num_jobs: int | None = option(None, "number of jobs; null: as many as the window needs")
    multi_gpu: bool = option(False, "jobs of 1, 2, 4 and 8 GPUs")
    priorities: bool = option(False, "true: a fifth of the jobs has weight 5")
    slos: bool = option(False, "true: jobs have SLOs: a third each 1.2, 2 and 10 times its duration")
    durations_h: list[Any] | None = option(
        None, "durations to choose from, in h; null: half an hour to a week"
    )
    types: list[Any] | None = option(
        None, "types of jobs, or the beginnings of their names; null: all of the data"
    )
    reference: str = option("v100", "GPU type on which jobs run for their durations")


@dataclass(frozen=True, kw_only=True)
class FileTraceOptions:
    """The `trace` group of a file; see `schedsearch.cluster.inputs`."""

    kind: str = option("file", "set by trace=")
    path: str = option(
        REQUIRED, "trace file: Gavel's, our own CSV, Philly's or Alibaba's; trace=PATH sets both"
    )


@dataclass(frozen=True)
class FailureOptions:
    """The `failures` group; see `schedsearch.cluster.simulator`."""

    mean_h: float | None = option(None, "mean time between failures of one GPU, in h; null: none fails")
    repair_h: float = option(1, "time until a GPU that has failed is back, in h")
    loses_lease: bool = option(
        False, "true: a job loses the work since its lease began; false: the work of the round"
    )


@dataclass(frozen=True)
class EstimatorOptions:
    """The `estimator` group; see `schedsearch.cluster.estimator`."""

    reference_share: float | None = option(
        None,
        "share of the types of jobs that are measured in all pairs beforehand; null: all pairs are known",
    )
    profiled: int = option(3, "number of these types with which each other type is measured in a pair")
    learns: bool = option(True, "true: pairs are measured while they run, and the others are estimated again")
    seed: int = option(0, "seed of the choice of what is measured beforehand")


@dataclass(frozen=True)
class PolicyOptions:
    """The `policy_options` group; see `schedsearch.cluster.policies`. What is null is the policy's own."""

    entities: dict[Any, Any] | None = option(
        None, "for hierarchical: weight and policy of each entity, as {a: {weight: 2, policy: fifo}}"
    )
    budget_dollars: float | None = option(
        None, "for makespan_budget: dollars that all jobs together may cost"
    )
    on_infeasible: str | None = option(
        None, "what to do where SLOs cannot all be kept: error, or drop some of them; null: the policy's own"
    )
    margin_s: float | None = option(
        None, "for policies with SLOs: how long before its SLO a job should be done, in s"
    )
    aim: str | None = option(
        None, "for min_cost and min_cost_slo: steps_per_dollar (as in Gavel's code) or dollars"
    )
    considered_share: float | None = option(None, "for allox: share of the waiting jobs that are matched")
    work_conserving: bool | None = option(
        None, "for las, finish_time_fairness, makespan: GPUs that are left over go to the jobs that gain most"
    )
    min_share: float | None = option(
        None,
        "for least_energy_slo and least_cost_slo: minimum share of its isolated throughput, for jobs "
        "without an SLO",
    )
    spare_s: float | None = option(
        None, "for policies with SLOs: how long before its SLO a job should be done, in s"
    )
    is_strict: bool | None = option(None, "for policies with SLOs: an SLO that cannot be kept is an error")
    dollars_per_kwh: float | None = option(None, "for least_cost_slo: the price of electricity")
    signal: str | None = option(None, "for least_signal_cost: CSV of duration_s,price_per_kwh, which repeats")
    horizon_s: float | None = option(None, "for least_signal_cost: how far it looks ahead, in s")
    parts: int | None = option(
        None,
        "number of parts of the cluster that are decided on separately, which is faster (POP); null: one",
    )


@dataclass(frozen=True, kw_only=True)
class ClusterCommandOptions:
    """All of `experiments.cluster`; which options the trace has says its kind."""

    policy: str | list[Any] = option(
        "las", "policy that decides where each job runs; [las, las_agnostic] compares several"
    )
    data: str | None = option(
        None,
        "Gavel's folder of throughputs and job types, or a CSV: job_type,scale_factor,gpu_type,steps_per_s",
    )
    allocate: str | None = option(
        None, "a JSON file of jobs, throughputs and workers: makes one decision, simulates nothing"
    )
    window: list[Any] | None = option(
        None, "jobs that are measured, [4000, 5000] for 4000 to 4999; null: all of the trace"
    )
    loads: list[Any] | None = option(
        None, "list of jobs per hour: one simulation each, and a figure of the completion time by load"
    )
    seeds: list[Any] | None = option(
        None,
        "list of seeds of generated traces: one simulation each, and confidence intervals; null: trace.seed",
    )
    round_s: float = option(360, "length of a round, in s")
    recompute_s: float = option(1920, "minimum time between two decisions of the policy, in s")
    rounds: str | None = option(
        None, "gavel: as Gavel's simulator | one_queue: as its text; null: gavel, except for policies of cost"
    )
    checkpoint_s: float = option(0, "time to save a job that has to leave its GPUs, in s")
    restart_s: float = option(0, "time to start a job on GPUs where it was not before, in s")
    stop_at_h: float | None = option(
        None, "ends the simulation at this time, in h, with jobs that are not done"
    )
    strict: bool = option(
        False, "refuse a trace with jobs that have no throughput, instead of skipping and counting them"
    )
    seed: int | None = option(None, "seed of what the simulator draws; null: the trace's, or 0")
    cluster: GpuClusterOptions = group("gavel")
    trace: dict[str, Any] = group("generated")
    policy_options: PolicyOptions = group("default")
    estimator: EstimatorOptions = group("default")
    failures: FailureOptions = group("default")


@dataclass(frozen=True)
class ClusterStudyOptions:
    """The config of `experiments.cluster_study`; see `schedsearch.cluster.planned_jobs`."""

    models: list[Any] = option(
        ["gpt3_1.3b", "llama2_7b", "llama2_13b"], "models of placements.models.zoo, as for experiments.plan"
    )
    batches: list[Any] = option([64, 64, 128], "samples of a step, one number for each model")
    counts: list[Any] = option(
        [2, 4, 8], "numbers of GPUs of one type on which a job may run, where its model fits"
    )
    gpu_types: list[Any] = option(
        ["a100", "h100"], "GPU types of the cluster, as placements.hardware names them"
    )
    workers: list[Any] = option([8, 8], "GPUs of each type")
    max_points: int = option(3, "most operating points that are kept of each frontier")
    num_plans: int = option(30, "deadlines of each frontier")
    search_time_limit_s: float = option(5, "time limit of the search for each plan's schedule, in s")
    cache_dir: str | None = option(
        None, "directory in which plans and frontiers are kept for later runs; null: the run's own"
    )
    days: float = option(28, "number of days in which jobs arrive")
    jobs_per_day: float = option(18, "average number of jobs that arrive in a day")
    hours: list[Any] = option(
        [1, 24], "shortest and longest job, in h, on its usual number of GPUs of the first type"
    )
    slo_share: float = option(0.5, "share of the jobs that have an SLO")
    slo_factors: list[Any] = option([1.5, 4], "shortest and longest SLO, as multiples of the job's hours")
    seed: int = option(0, "seed of the trace")
    runs: list[Any] = option(
        ["frontier", "frontier_capped", "least_energy", "least_carbon"],
        "runs to compare; their baselines are run too",
    )
    power_cap_w: float = option(7500, "power cap of the runs under a cap, in W, idle GPUs included")
    idle_power_w: list[Any] | None = option(
        None, "power of one idle GPU of each type, in W; null: its power while it waits"
    )
    dollars_per_hour: list[Any] | None = option(
        None, "price of one GPU of each type; null: only electricity costs"
    )
    dollars_per_kwh: float = option(0.1, "price of electricity")
    carbon_g_per_kwh: list[Any] = option(
        [400, 380, 270, 150, 150, 280, 430, 410], "over equal parts of each day; made up, much solar power"
    )
    signal: str | None = option(None, "CSV of duration_s,price_per_kwh instead, which repeats")
    min_share: float = option(
        0.9,
        "minimum share of their fair throughput for jobs without an SLO, where energy, cost or carbon is "
        "minimised",
    )
    spare_s: float = option(3600, "how long before its SLO a job should be done, in s")
    horizon_s: float = option(86400, "how far ahead policies look at the carbon of electricity, in s")
    round_s: float = option(360, "length of a round, in s")


@dataclass(frozen=True, kw_only=True)
class PricesOptions:
    """The config of `experiments.prices`; the rest is in `schedsearch.cluster.prices.conditions`."""

    data: str = option(
        REQUIRED, "folder with aws_REGION.csv and throughputs.csv, and optionally azure.csv and gcp.csv"
    )
    days: tuple[float, ...] = option(
        [4, 8], "lengths of jobs, in days on one GPU of the baseline", above=0, max=3650
    )
    models: tuple[str, ...] = option([], "rows of throughputs.csv; empty: all")
    clouds: tuple[str, ...] = option(
        ["aws", "azure"], "whose prices are read, where there is a file: aws, azure, gcp"
    )
    baseline_gpu: str = option("v100", "the baseline is the cheapest zone of AWS with one GPU of this type")
    start_days: tuple[int, ...] = option(
        [-35, -5],
        "first and last day on which jobs start, as a slice of the days with a price of the baseline",
    )
    carry_forward: bool = option(
        False, "true: a price that did not change on a day can be chosen too; a day has one price, its last"
    )
    rank_per_gpu: bool = option(
        False, "compare Azure's instances by the price of a GPU, not of the whole instance"
    )
    whole_instance: bool = option(False, "a job pays for all GPUs of its instance")
    restart_s: float = option(
        0, "paid time without work after a move or a preemption, in s", min=0, below=86_400
    )
    egress_dollars: float = option(0, "cost of each move to another cloud", min=0)
    preemptions_per_day: float = option(0, "mean number of random preemptions in a day, on all offers", min=0)
    life_h: float | None = option(
        None,
        "hours after which the cloud takes an instance away, with a warning: 24 at GCP; null: never",
        above=0,
    )
    checkpoint_every_s: float = option(
        3600, "work between two checkpoints, in s; a preemption loses the work since the last one", above=0
    )
    checkpoint_s: float = option(0, "time that a checkpoint takes, in s", min=0)
    dwell_days: int = option(0, "minimum time between two moves, in days", min=0)
    min_saving: float = option(
        0, "minimum saving of a move, as a share of the price of a step", min=0, below=1
    )
    hindsight: bool = option(
        False, "also the minimum cost if all prices were known ahead; takes a minute or more where moves cost"
    )
    durations: tuple[float, ...] = option(
        [0.5, 1, 2, 4, 8],
        "lengths of jobs, in days, for the figure of moving against staying; empty: no figure",
        above=0,
        max=3650,
    )
    sweep_restart_s: tuple[float, ...] = option(
        [0, 600, 3600],
        "restart times for the figure of costs by restarts and preemptions, in s; empty: no figure",
        min=0,
        below=86_400,
    )
    sweep_preemptions_per_day: tuple[float, ...] = option(
        [0, 2, 6, 12, 24], "preemptions in a day, for the same figure", min=0, below=86_400
    )
