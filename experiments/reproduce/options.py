"""Options of items to reproduce."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.meaning import option


@dataclass(frozen=True)
class ReproduceOptions:
    """The config of `experiments.reproduce`.

    The options of an item are a record of its own, `experiments.reproduce.item.Item.options`.
    """

    size: str = option(
        "full", "full: as in the paper; small: takes some seconds; options that you give are kept"
    )
    num_processes: int | None = option(None, "number of processes; null: as many as processors")
    record: bool = option(
        False, "true: in a checkout, also keep the results there, and write its page of results again"
    )


@dataclass(frozen=True)
class ReproduceAllOptions:
    """The options of ``experiment=all``, which has none of a single item."""

    data: str | None = option(
        None, "folder in which the items find their inputs, as zero_bubble/measured_times.csv"
    )


COMMANDS = (
    Command(
        "reproduce",
        "Make tables and figures of papers again, beside theirs.",
        ReproduceOptions,
        task="experiments.reproduce.task",
        items="experiments.reproduce.catalogue",
        # the same at each start: what is made is kept
        hydra={"run": {"dir": "outputs/reproduce/${hydra:runtime.choices.experiment}/${size}"}},
    ),
)
