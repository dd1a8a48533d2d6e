"""Options of re-planning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Command
from experiments.search.options import SearchCommandOptions, read_options
from placements.forms.meaning import REQUIRED, option


@dataclass(frozen=True, kw_only=True)
class ReplanCommandOptions(SearchCommandOptions):
    """The config of `experiments.replan`; the placement is one of the pipelines."""

    replicas: int = option(REQUIRED, "pipelines side by side, each with search.num_micro_batches", min=1)
    lost: tuple[Any, ...] = option(
        (), "lost devices, as [1@2] for device 1 of pipeline 2, both counted from 0"
    )
    slow: tuple[Any, ...] = option(
        (), "slow devices and how many times as long they take, as [1@2:1.5], or links, as [0@2-1@2:3]"
    )
    objective: str = option(
        "device_span",
        "device_span: no stage waits for the optimizer of another | makespan: all wait",
        choices=("device_span", "makespan"),
    )
    parts: int = option(4, "equal parts of a stage, as layers; new stages consist of these parts", min=1)


COMMAND = Command(
    "replan",
    ReplanCommandOptions,
    task="experiments.replan.task",
    read=read_options,
    first="placement search.num_micro_batches replicas lost slow objective parts",
    objective="iteration_ms",
)
