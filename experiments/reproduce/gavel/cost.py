"""Cost policies on ResNet-50 and A3C jobs with deadlines (Sec. 5.7.3)."""

from __future__ import annotations

from experiments.reproduce.gavel.options import ShorterTraceOptions
from experiments.reproduce.gavel.study import Factor, Study, Way, Workload, study_item
from schedsearch.cluster.generator import COST_STUDY_DURATIONS_S, GeneratorOptions

TYPES = ("ResNet-50 (batch size 64)", "A3C")

_WORKLOAD = Workload(
    "deadlines",
    "ResNet-50 and A3C with deadlines",
    0.4,
    is_steady=False,
    generator=GeneratorOptions(slos=True, durations_s=COST_STUDY_DURATIONS_S),
    types=TYPES,
)

COST_ITEM = study_item(
    "gavel_cost",
    "Sec. 5.7.3",
    "Cost and missed deadlines of cost policies",
    (
        Study(
            _WORKLOAD,
            {
                "throughput": Way("max_total_throughput"),
                "cost": Way("min_cost"),
                "cost with SLOs": Way("min_cost_slo", options={"on_infeasible": "drop", "margin_s": 1920.0}),
            },
            ("dollars", "slo_violation_share"),
            (
                Factor("dollars", "throughput", "cost", 1.4),
                Factor("dollars", "throughput", "cost with SLOs", 1.2),
            ),
        ),
    ),
    small=ShorterTraceOptions(jobs=40, seeds=(0,)),
    because=(
        "The load, the batch size of ResNet-50 and the prices are not given: 0.4 jobs per hour, which the "
        "36 V100s alone could do, batches of 64 and Google Cloud's prices of 2020 are taken. By these prices "
        "and Gavel's published throughputs a ResNet-50 is a little cheaper on a P100 than on a V100, where "
        "the dissertation has the V100 (Fig. 5.1b). Jobs are to be done 1920 s before their deadline, as a "
        "job may wait so long for the next decision; a deadline that cannot be kept is given up"
    ),
)
