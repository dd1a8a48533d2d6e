"""Options of jobs that move among spot prices."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import REQUIRED, Verbatim, option


@dataclass(frozen=True, kw_only=True)
class PricesOptions:
    """The config of `experiments.prices`; the rest is in `schedsearch.cluster.prices.days`."""

    data: Verbatim = option(
        REQUIRED, "folder with aws_REGION.csv and throughputs.csv, and optionally azure.csv and gcp.csv"
    )
    days: tuple[float, ...] = option(
        [4, 8], "lengths of jobs, in days on one GPU of the baseline", above=0, max=3650
    )
    models: tuple[str, ...] = option([], "rows of throughputs.csv; empty: all")
    clouds: tuple[str, ...] = option(
        ["aws", "azure"], "whose prices are read, where there is a file: aws, azure, gcp"
    )
    baseline_gpu: str = option("v100", "the baseline is the cheapest zone of AWS with one GPU of this type")
    start_days: tuple[int, ...] = option(
        [-35, -5],
        "first and last day on which jobs start, as a slice of the days with a price of the baseline",
    )
    carry_forward: bool = option(
        False, "true: a price that did not change on a day can be chosen too; a day has one price, its last"
    )
    rank_per_gpu: bool = option(
        False, "compare Azure's instances by the price of a GPU, not of the whole instance"
    )
    whole_instance: bool = option(False, "a job pays for all GPUs of its instance")
    restart_s: float = option(
        0, "paid time without work after a move or a preemption, in s", min=0, below=86_400
    )
    egress_dollars: float = option(0, "cost of each move to another cloud", min=0)
    preemptions_per_day: float = option(0, "mean number of random preemptions in a day, on all offers", min=0)
    checkpoint_every_s: float = option(
        3600, "work between two checkpoints, in s; a preemption loses the work since the last one", above=0
    )
    checkpoint_s: float = option(0, "time that a checkpoint takes, in s", min=0)
    durations: tuple[float, ...] = option(
        [0.5, 1, 2, 4, 8],
        "lengths of jobs, in days, for the figure of moving against staying; empty: no figure",
        above=0,
        max=3650,
    )


COMMAND = Command(
    "prices",
    PricesOptions,
    task="experiments.prices.task",
    first="data days models clouds restart_s preemptions_per_day egress_dollars",
    headlines={"baseline_gpu": "Comparison", "checkpoint_every_s": "Moves", "durations": "Figures"},
)
