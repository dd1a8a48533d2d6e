"""Policies beside each other: fairness, finish times, makespan, FIFO, costs and space sharing (Sec. 5.7).

Jobs come all the time to 36 V100s, 36 P100s and 36 K80s, where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.reproduce.gavel.options import SeedOptions, ShorterTraceOptions, TraceOptions, cluster_of
from experiments.reproduce.gavel.study import FINISH_TIME_RATIO, JCT, Factor, GavelStudy, study_item
from schedsearch.cluster.generator import GeneratorOptions
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_of

_LONG, _SMALL = TraceOptions(jobs=40, seeds=(0,)), ShorterTraceOptions(jobs=40, seeds=(0,))

_PHYSICAL = GpuCluster({"v100": 8, "p100": 16, "k80": 24})
"""The cluster that Gavel ran on, whose traces are simulated again (Table 5.3)."""


def _policy(name: str, **options: object) -> Callable[[int], Policy]:
    """Return the maker of a policy that draws nothing by the seed of a case."""
    return lambda _: policy_of(name, **options)


def _beside_agnostic(
    jobs_per_hour: float, policy: str, published: dict[str, float], multi_gpu: bool = False
) -> GavelStudy:
    """Return a policy beside the same one that takes all types for equal, and the factors by metric."""
    return GavelStudy(
        "multiple" if multi_gpu else "single",
        f"{'1 to 8 GPUs' if multi_gpu else 'one GPU'}, {jobs_per_hour:g} jobs per hour",
        {"aware": _policy(policy), "agnostic": _policy(f"{policy}_agnostic")},
        tuple(published),
        tuple(Factor(metric, "agnostic", "aware", value) for metric, value in published.items()),
        jobs_per_hour=jobs_per_hour,
        is_steady=True,
        generator=GeneratorOptions(multi_gpu=multi_gpu),
    )


ITEMS = (
    study_item(
        "gavel_physical",
        SeedOptions(seeds=(0,)),
        GavelStudy(
            "continuous",
            "continuous trace",
            {"las": _policy("las"), "las_agnostic": _policy("las_agnostic")},
            (JCT,),
            (Factor(JCT, "las_agnostic", "las", 5.4 / 3.7),),
            trace="traces/physical/max_min_fairness.trace",
            cluster=_PHYSICAL,
            published={"las": 3.7, "las_agnostic": 5.4},
        ),
        GavelStudy(
            "static",
            "static trace",
            {"makespan": _policy("makespan"), "gandiva": lambda seed: policy_of("gandiva", seed=seed)},
            ("makespan_h",),
            (Factor("makespan_h", "gandiva", "makespan", 22.1 / 17.6),),
            trace="traces/physical/minimize_makespan.trace",
            cluster=_PHYSICAL,
            published={"makespan": 17.6, "gandiva": 22.1},
        ),
    ),
    study_item(
        "gavel_las",
        _LONG,
        _beside_agnostic(5.6, "las", {JCT: 3.5}),
        _beside_agnostic(2.6, "las", {JCT: 2.2}, multi_gpu=True),
    ),
    study_item(
        "gavel_finish_time",
        _LONG,
        _beside_agnostic(2.4, "finish_time_fairness", {JCT: 3.0, FINISH_TIME_RATIO: 2.8}, multi_gpu=True),
    ),
    study_item(
        "gavel_makespan",
        _SMALL,
        GavelStudy(
            "static",
            "one GPU, all at the start",
            {"aware": _policy("makespan"), "FIFO": _policy("fifo_agnostic"), "Gandiva": _policy("gandiva")},
            ("makespan_h",),
            (Factor("makespan_h", "FIFO", "aware", 2.5), Factor("makespan_h", "Gandiva", "aware", 1.4)),
        ),
    ),
    study_item("gavel_fifo", _LONG, _beside_agnostic(4.8, "fifo", {JCT: 2.7})),
    study_item(
        "gavel_cost",
        _SMALL,
        GavelStudy(
            "deadlines",
            "ResNet-50 and A3C with deadlines",
            {
                "throughput": _policy("max_total_throughput"),
                "cost": _policy("min_cost"),
                "cost with SLOs": _policy("min_cost_slo", margin_s=1920.0),
            },
            ("dollars", "slo_violation_share"),
            (
                Factor("dollars", "throughput", "cost", 1.4),
                Factor("dollars", "throughput", "cost with SLOs", 1.2),
            ),
            jobs_per_hour=0.4,
            generator=GeneratorOptions(slos=True, durations_h=(12, 24, 48, 96, 192)),
            types=("ResNet-50 (batch size 64)", "A3C"),
        ),
    ),
    study_item(
        "gavel_space_sharing",
        ShorterTraceOptions(jobs=20, seeds=(0,)),
        GavelStudy(
            "single",
            "12 GPUs, 0.6 jobs per hour",
            {"one job": _policy("las"), "shared": _policy("las_packed"), "Gandiva": _policy("gandiva")},
            (JCT,),
            (Factor(JCT, "one job", "shared"), Factor(JCT, "Gandiva", "shared", 2.2)),
            jobs_per_hour=0.6,
            is_steady=True,
            cluster=cluster_of(4),
        ),
    ),
)
