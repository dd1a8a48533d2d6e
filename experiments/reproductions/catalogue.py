"""All items by name. A new room of items is named here and nowhere else."""

from __future__ import annotations

from experiments.reproductions.dissertation.items import ITEMS as DISSERTATION
from experiments.reproductions.galvatron.items import ITEMS as GALVATRON
from experiments.reproductions.item import Item
from experiments.reproductions.perseus.items import ITEMS as PERSEUS
from experiments.reproductions.tessel.items import ITEMS as TESSEL

ITEMS: dict[str, Item] = {item.name: item for item in (*TESSEL, *GALVATRON, *PERSEUS, *DISSERTATION)}
"""In the order in which ``experiment=all`` makes them."""
