"""Options of the check of a schedule file."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The config of `experiments.check`."""

    schedule: Verbatim = option(REQUIRED, "path of a schedule.json")
    time_limit_s: float = option(
        60, "time limit of the whole check, in s; claims unanswered by then count as not checked", above=0
    )


COMMAND = Command(
    "check",
    CheckOptions,
    task="experiments.check.task",
    first="schedule time_limit_s",
    hydra={"output_subdir": None, "run": {"dir": "."}},  # nothing is written
    overrides={"job_logging": "stdout"},
)
