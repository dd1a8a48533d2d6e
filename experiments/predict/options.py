"""Options of predictions."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.models.memory import FRAMEWORKS


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The config of `experiments.predict`."""

    data: Verbatim = option(REQUIRED, "folder with tables of runs")
    framework: str = option(
        "megatron",
        "what holds memory besides states and activations",
        choices=tuple(FRAMEWORKS),
    )
    calibrate: str | None = option(
        None, "a run of the tables whose time fixes a factor on all times of its GPU; null: none"
    )


COMMAND = Command(
    "predict",
    PredictOptions,
    task="experiments.predict.task",
    first="data calibrate framework",
)
