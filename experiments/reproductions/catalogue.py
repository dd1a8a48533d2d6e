"""All items by name. A new room of items is named here and nowhere else."""

from __future__ import annotations

from experiments.config import commands
from experiments.config.records.figures import ReproduceAllOptions
from experiments.reproductions.dissertation.items import ITEMS as DISSERTATION
from experiments.reproductions.galvatron.items import ITEMS as GALVATRON
from experiments.reproductions.gavel.items import ITEMS as GAVEL
from experiments.reproductions.item import Item
from experiments.reproductions.measured.items import ITEMS as MEASURED
from experiments.reproductions.perseus.items import ITEMS as PERSEUS
from experiments.reproductions.schedules_by_hand.items import ITEMS as BY_HAND
from experiments.reproductions.tessel.items import ITEMS as TESSEL

_ALL = (*TESSEL, *GALVATRON, *MEASURED, *PERSEUS, *DISSERTATION, *GAVEL, *BY_HAND)

ITEMS: dict[str, Item] = {item.name: item for item in _ALL}
"""In the order in which ``experiment=all`` makes them."""

ALL = "all"
"""A value of ``experiment``: every item, one after the other."""


def list_items() -> None:
    """Say which items there are, and which options each has, before a command line is read."""
    records = {name: item.options for name, item in ITEMS.items()} | {ALL: ReproduceAllOptions}
    commands.ITEMS.update({name: commands.own_options(record) for name, record in records.items()})
