"""Options of items to reproduce."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from placements.forms.meaning import Verbatim, option


@dataclass(frozen=True)
class ReproduceOptions:
    """The config of `experiments.reproduce`.

    The options of an item are a record of its own, `experiments.reproduce.item.Item.options`.
    """

    size: str = option(
        "full",
        "full: as in the paper; small: takes some seconds; options that you give are kept",
        choices=("full", "small"),
    )
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
tessel.bubbles: tessel_table2
model_sizes: tessel_table3
tessel.search_times: tessel_figure9
tessel.bubbles: tessel_figure11
tessel.large_vocabularies: tessel_figure13
model_sizes: galvatron_table1
galvatron.tables: galvatron_trends galvatron_table5
measured.zero_bubble: zero_bubble
measured.vocabulary_parallelism: vocabulary_parallelism
perseus.savings: perseus_table3 perseus_table4 perseus_table6
perseus.divisions: perseus_table7
dissertation.configurations: dissertation_table2_2
dissertation.spot_markets: dissertation_figure6_5
gavel.study: gavel_physical gavel_las gavel_finish_time gavel_makespan
gavel.study: gavel_fifo gavel_cost gavel_space_sharing
gavel.hierarchical: gavel_hierarchical
ahead.closed_forms: stp operator_level
ahead.unequal_layers: adaptis
ahead.nested_encoders: bigmac
"""
"""The items by the module that has them, in the order in which ``experiment=all`` makes them."""

MODULE_OF = {
    item: module
    for module, items in (line.split(":") for line in _ITEMS.splitlines())
    for item in items.split()
}
"""The module of each item; to load it takes seconds."""

ALL = "all"
"""A value of ``experiment``: every item, one after the other."""


COMMAND = Command(
    "reproduce",
    ReproduceOptions,
    task="experiments.reproduce.task",
    read=lambda config, _: config,  # left to the task, which knows the options of the item
    first="experiment size record",
    items=(*MODULE_OF, ALL),
    catalogue="experiments.reproduce.catalogue",
    # the same at each start: what is made is kept
    hydra={"run": {"dir": "outputs/reproduce/${hydra:runtime.choices.experiment}/${size}"}},
)
