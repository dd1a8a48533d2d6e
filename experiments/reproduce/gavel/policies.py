"""Policies beside each other (Sec. 5.7.3): fairness, finish times, makespan, FIFO, costs and space sharing.

Jobs come all the time to 36 V100s, 36 P100s and 36 K80s, where nothing else is said.
"""

from __future__ import annotations

from functools import partial

from experiments.reproduce.gavel.options import ShorterTraceOptions, TraceOptions
from experiments.reproduce.gavel.study import FINISH_TIME_RATIO, JCT, Factor, GavelStudy, study_item
from schedsearch.cluster.generator import GeneratorOptions
from schedsearch.cluster.policies.registry import policy_of

_LONG, _SMALL = TraceOptions(jobs=40, seeds=(0,)), ShorterTraceOptions(jobs=40, seeds=(0,))


def _beside_agnostic(
    jobs_per_hour: float, policy: str, published: dict[str, float], multi_gpu: bool = False
) -> GavelStudy:
    """Return a policy beside the same one that takes all types for equal, and the factors by metric."""
    return GavelStudy(
        "multiple" if multi_gpu else "single",
        f"{'1 to 8 GPUs' if multi_gpu else 'one GPU'}, {jobs_per_hour:g} jobs per hour",
        jobs_per_hour,
        {"aware": partial(policy_of, policy), "agnostic": partial(policy_of, f"{policy}_agnostic")},
        tuple(published),
        tuple(Factor(metric, "agnostic", "aware", value) for metric, value in published.items()),
        generator=GeneratorOptions(multi_gpu=multi_gpu),
    )


ITEMS = (
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
            0.0,
            {
                "aware": partial(policy_of, "makespan"),
                "FIFO": partial(policy_of, "fifo_agnostic"),
                "Gandiva": partial(policy_of, "gandiva"),
            },
            ("makespan_h",),
            (Factor("makespan_h", "FIFO", "aware", 2.5), Factor("makespan_h", "Gandiva", "aware", 1.4)),
            is_steady=False,
        ),
    ),
    study_item(
        "gavel_fifo",
        _LONG,
        _beside_agnostic(4.8, "fifo", {JCT: 2.7}),
    ),
    study_item(
        "gavel_cost",
        _SMALL,
        GavelStudy(
            "deadlines",
            "ResNet-50 and A3C with deadlines",
            0.4,
            {
                "throughput": partial(policy_of, "max_total_throughput"),
                "cost": partial(policy_of, "min_cost"),
                "cost with SLOs": partial(policy_of, "min_cost_slo", margin_s=1920.0),
            },
            ("dollars", "slo_violation_share"),
            (
                Factor("dollars", "throughput", "cost", 1.4),
                Factor("dollars", "throughput", "cost with SLOs", 1.2),
            ),
            is_steady=False,
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
            0.6,
            {
                "one job": partial(policy_of, "las"),
                "shared": partial(policy_of, "las_packed"),
                "Gandiva": partial(policy_of, "gandiva"),
            },
            (JCT,),
            (Factor(JCT, "one job", "shared"), Factor(JCT, "Gandiva", "shared", 2.2)),
            gpus_per_type=4,
        ),
    ),
)
