"""All items of Galvatron-BMW."""

from __future__ import annotations

from experiments.reproduce.galvatron.deepspeed import DEEPSPEED_ITEM
from experiments.reproduce.galvatron.model_sizes import MODEL_SIZES
from experiments.reproduce.galvatron.partitions import PARTITIONS
from experiments.reproduce.galvatron.plans import FIGURE_6, TABLE_5_PARTITIONS
from experiments.reproduce.galvatron.search_times import SEARCH_TIMES
from experiments.reproduce.galvatron.trend_items import TRENDS
from experiments.reproduce.item import Item

ITEMS: tuple[Item, ...] = (
    MODEL_SIZES,
    TRENDS,
    DEEPSPEED_ITEM,
    TABLE_5_PARTITIONS,
    PARTITIONS,
    SEARCH_TIMES,
    FIGURE_6,
)
"""In the paper's order."""
