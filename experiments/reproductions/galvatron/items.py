"""All items of Galvatron-BMW."""

from __future__ import annotations

from experiments.reproductions.galvatron.constant_items import TABLE_2_ITEM, TABLE_3_ITEM
from experiments.reproductions.galvatron.partitions import PARTITIONS
from experiments.reproductions.galvatron.search_times import SEARCH_TIMES
from experiments.reproductions.galvatron.trend_items import TRENDS
from experiments.reproductions.item import Item

ITEMS: tuple[Item, ...] = (TABLE_2_ITEM, TABLE_3_ITEM, TRENDS, PARTITIONS, SEARCH_TIMES)
"""In the paper's order."""
