"""Length of rounds, and shares received exactly as they are computed (Fig. 5.15)."""

from __future__ import annotations

from dataclasses import replace

from experiments.reproduce.gavel.options import ShorterTraceOptions
from experiments.reproduce.gavel.policies import SINGLE
from experiments.reproduce.gavel.study import JCT, Factor, Study, Way, study_item

MINUTES = (6, 12, 24, 48)
"""Lengths of rounds."""

_ROUNDS = {f"{minutes} minutes": Way("las", 60.0 * minutes) for minutes in MINUTES}

ROUNDS_ITEM = study_item(
    "gavel_rounds",
    "Fig. 5.15",
    "Average completion time by the length of rounds, and with shares as they are computed",
    (
        Study(
            replace(SINGLE, title="one GPU, 5 jobs per hour", jobs_per_hour=5.0),
            _ROUNDS | {"ideal": Way("las", 0.0)},
            (JCT,),
            (
                Factor(JCT, "48 minutes", "6 minutes"),
                Factor(JCT, "6 minutes", "ideal", 1.0, at_most=1.05),
            ),
        ),
    ),
    small=ShorterTraceOptions(jobs=40, seeds=(0,)),
    because=(
        "Values are only drawn in the dissertation, over several loads. The ideal has no rounds and decides "
        "anew whenever a job comes or ends; in the simulator a job that comes waits for the next decision, "
        "up to 1920 s"
    ),
)
