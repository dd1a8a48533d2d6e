"""Space sharing with real and estimated throughputs, and Gandiva's, on twelve GPUs (Fig. 5.16)."""

from __future__ import annotations

from dataclasses import replace

from experiments.reproduce.gavel.options import ShorterTraceOptions
from experiments.reproduce.gavel.policies import SINGLE
from experiments.reproduce.gavel.study import JCT, Factor, Study, Way, study_item

SHARING_ITEM = study_item(
    "gavel_space_sharing",
    "Fig. 5.16",
    "Average completion time of max-min fairness (LAS) with space sharing, real and estimated",
    (
        Study(
            replace(SINGLE, title="12 GPUs, 0.6 jobs per hour", jobs_per_hour=0.6, gpus_per_type=4),
            {
                "one job": Way("las"),
                "shared": Way("las_packed"),
                "estimated": Way("las_packed", estimates_pairs=True),
                "Gandiva": Way("gandiva"),
            },
            (JCT,),
            (
                Factor(JCT, "one job", "shared"),
                Factor(JCT, "estimated", "shared", at_most=1.1),
                Factor(JCT, "Gandiva", "shared", 2.2),
            ),
        ),
    ),
    small=ShorterTraceOptions(jobs=20, seeds=(0,)),
    because=(
        "The dissertation draws completion times without values; its factor beside Gandiva is that of its "
        "clusters of 108 GPUs at high load. The load is nearly that for each GPU of Fig. 5.9. Half of the 26 "
        "types are references here, and each other type is measured beside three of them"
    ),
)
