"""All items of the dissertation."""

from __future__ import annotations

from experiments.reproduce.dissertation.bubbles import FIGURE_4_6_ITEM, TABLE_7_1_ITEM, TENSOR_ITEM
from experiments.reproduce.dissertation.configurations import TABLE_2_2_ITEM
from experiments.reproduce.dissertation.footprints import FOOTPRINT_ITEMS
from experiments.reproduce.dissertation.memory import FIGURE_3_7_ITEM, FIGURE_3_11_ITEM
from experiments.reproduce.dissertation.parameters_and_days import TABLE_4_1_ITEM, TABLE_4_2_ITEM
from experiments.reproduce.dissertation.spot_prices import PRICE_ITEMS
from experiments.reproduce.dissertation.throughput import FIGURE_4_8_ITEM, SWEEP_ITEMS
from experiments.reproduce.dissertation.timelines import TIMELINE_ITEMS
from experiments.reproduce.dissertation.ways_of_running import WAY_ITEMS
from experiments.reproduce.item import Item

ITEMS: tuple[Item, ...] = (
    TABLE_2_2_ITEM,
    TABLE_4_1_ITEM,
    TABLE_4_2_ITEM,
    TABLE_7_1_ITEM,
    *TIMELINE_ITEMS,
    *FOOTPRINT_ITEMS,
    FIGURE_3_7_ITEM,
    FIGURE_3_11_ITEM,
    FIGURE_4_6_ITEM,
    TENSOR_ITEM,
    FIGURE_4_8_ITEM,
    *SWEEP_ITEMS,
    *WAY_ITEMS,
    *PRICE_ITEMS,
)
"""Tables, then figures, then those that are not here."""
