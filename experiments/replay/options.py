"""Options of the replay of measured jobs."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option


@dataclass(frozen=True, kw_only=True)
class ReplayCommandOptions:
    """The config of `experiments.replay`."""

    data: Verbatim = option(REQUIRED, "folder with a trace-NAME.csv.gz and a meta-NAME.yaml for each job")
    work_limit: float = option(
        30.0, "limit of counted work for all iterations together, a unit is about 1 s of one core", above=0
    )
    seed: int = option(0, "seed of the random choices", min=0)


COMMAND = Command(
    "replay",
    ReplayCommandOptions,
    task="experiments.replay.task",
    first="data work_limit seed",
    objective="reassigned_ms",
)
