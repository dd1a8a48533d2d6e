"""Options of predictions."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.models.memory import FRAMEWORKS


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The config of `experiments.predict`."""

    data: Verbatim = option(
        REQUIRED, "folder with plans.csv, plans, profiles, memory and bandwidth; or with tables of runs"
    )
    framework: str = option(
        "megatron",
        "of tables of runs: training framework, for its memory besides states and activations",
        choices=tuple(FRAMEWORKS),
    )
    calibrate: str | None = option(
        None, "a run of the tables, or a CSV file of runs, whose times fix factors of their GPU; null: none"
    )
    context_gib: float = option(
        4.71,
        "memory of a process on its GPU besides tensors (CUDA's context, libraries, kernels)",
        "GiB",
        min=0,
        max=10_000,
    )
    compute_slowdown: float = option(1.0, "factor on the profile's times of layers", above=0, max=100)


COMMAND = Command(
    "predict", PredictOptions, task="experiments.predict.task", first="data calibrate framework"
)
