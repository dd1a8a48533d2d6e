"""All items of Perseus."""

from __future__ import annotations

from experiments.reproduce.item import Item
from experiments.reproduce.perseus.emulation import FIGURE_7_ITEM, FIGURE_8_ITEM, TABLE_6_ITEM
from experiments.reproduce.perseus.frontiers import FRONTIER_ITEMS
from experiments.reproduce.perseus.imbalance import TABLE_1, TABLE_7
from experiments.reproduce.perseus.savings import ITEM_3, ITEM_4
from experiments.reproduce.perseus.timelines import FIGURE_1_ITEM, FIGURE_10_ITEM

ITEMS: tuple[Item, ...] = (
    TABLE_1,
    ITEM_3,
    ITEM_4,
    TABLE_6_ITEM,
    TABLE_7,
    FIGURE_1_ITEM,
    FIGURE_7_ITEM,
    FIGURE_8_ITEM,
    FRONTIER_ITEMS[0],
    FIGURE_10_ITEM,
    *FRONTIER_ITEMS[1:],
)
"""Tables, then figures."""
