"""Options of items to reproduce."""

from __future__ import annotations

import re
from dataclasses import dataclass

from omegaconf import DictConfig

from experiments.config.declaring import Command
from placements.forms.meaning import Verbatim, option


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

    data: Verbatim | None = option(
        None, "folder in which the items find their inputs, as zero_bubble/measured_times.csv"
    )


_ITEMS = """\
tessel.items: tessel_figure2 tessel_figure3 tessel_table2 tessel_figure8 tessel_figure9
  tessel_figure10 tessel_figure11 tessel_table3 tessel_figure12 large_vocabulary tessel_figure13
  tessel_figure15 tessel_figure16 tessel_figure17
galvatron.items: galvatron_table1 galvatron_trends galvatron_deepspeed galvatron_table5
  galvatron_figure4 galvatron_figure5 galvatron_figure6
measured.items: zero_bubble vocabulary_parallelism
perseus.items: perseus_table1 perseus_table3 perseus_table4 perseus_table6 perseus_table7
  perseus_figure1 perseus_figure7 perseus_figure8 perseus_figure9 perseus_figure10 perseus_figure11
  perseus_figure12
dissertation.items: dissertation_table2_2 dissertation_table4_1 dissertation_table4_2
  dissertation_table7_1 dissertation_figure2_3 dissertation_figure3_3 dissertation_figure4_3
  dissertation_figure4_4 dissertation_figure4_6 dissertation_section4_3_2 dissertation_table6_1
  dissertation_table6_2 dissertation_table6_3 dissertation_figure6_1 dissertation_figure6_3
  dissertation_figure6_4 dissertation_figure6_5 dissertation_figure6_6
gavel.items: gavel_physical gavel_las gavel_finish_time gavel_makespan gavel_fifo gavel_priorities
  gavel_cost gavel_hierarchical gavel_rounds gavel_space_sharing
schedules_by_hand.bubbles: schedules_by_hand
"""
"""The items by the module that has them, in the order in which ``experiment=all`` makes them."""

MODULE_OF = {
    item: module
    for module, items in re.findall(r"^(\S+):([^:]*)$", _ITEMS, re.MULTILINE)
    for item in items.split()
}
"""The module of each item; to load it takes seconds."""

ALL = "all"
"""A value of ``experiment``: every item, one after the other."""


def _of_item(config: DictConfig, record: type) -> DictConfig:
    """Leave the options to the task, which knows those of the item."""
    return config


COMMAND = Command(
    "reproduce",
    "Make tables and figures of papers again, beside theirs.",
    ReproduceOptions,
    task="experiments.reproduce.task",
    read=_of_item,
    first="experiment size num_processes record",
    items=(*MODULE_OF, ALL),
    catalogue="experiments.reproduce.catalogue",
    # the same at each start: what is made is kept
    hydra={"run": {"dir": "outputs/reproduce/${hydra:runtime.choices.experiment}/${size}"}},
)
