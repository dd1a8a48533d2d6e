"""All items by name. A new room of items is named here and nowhere else."""

from __future__ import annotations

from experiments.config.declaring import Option, own_options
from experiments.reproduce.dissertation.items import ITEMS as DISSERTATION
from experiments.reproduce.galvatron.items import ITEMS as GALVATRON
from experiments.reproduce.gavel.items import ITEMS as GAVEL
from experiments.reproduce.item import Item
from experiments.reproduce.measured.items import ITEMS as MEASURED
from experiments.reproduce.options import ReproduceAllOptions
from experiments.reproduce.perseus.items import ITEMS as PERSEUS
from experiments.reproduce.schedules_by_hand.bubbles import BY_HAND
from experiments.reproduce.tessel.items import ITEMS as TESSEL

_ALL = (*TESSEL, *GALVATRON, *MEASURED, *PERSEUS, *DISSERTATION, *GAVEL, BY_HAND)

ITEMS: dict[str, Item] = {item.name: item for item in _ALL}
"""In the order in which ``experiment=all`` makes them."""

ALL = "all"
"""A value of ``experiment``: every item, one after the other."""


def options_of_items() -> dict[str, tuple[Option, ...]]:
    """Return the options of each item, and of all together."""
    records = {name: item.options for name, item in ITEMS.items()} | {ALL: ReproduceAllOptions}
    return {name: own_options(record) for name, record in records.items()}
