"""Options of planned jobs on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Command
from placements.meaning import option


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
    gpu_types: list[Any] = option(["a100", "h100"], "GPU types of the cluster, as placements.gpus names them")
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
        ["frontier", "frontier_capped", "least_energy"],
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
    min_share: float = option(
        0.9,
        "minimum share of their fair throughput for jobs without an SLO, where energy or cost is minimised",
    )
    spare_s: float = option(3600, "how long before its SLO a job should be done, in s")
    round_s: float = option(360, "length of a round, in s")


COMMANDS = (
    Command(
        "cluster_study",
        "Run planned jobs on a cluster that chooses clocks.",
        ClusterStudyOptions,
        task="experiments.cluster_study.task",
    ),
)
