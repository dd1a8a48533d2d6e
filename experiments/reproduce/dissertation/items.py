"""All items of the dissertation."""

from __future__ import annotations

from experiments.reproduce.dissertation.bubbles import BUBBLE_ITEMS, DATA_AND_TENSOR_ITEMS
from experiments.reproduce.dissertation.configurations import TABLE_2_2_ITEM
from experiments.reproduce.dissertation.parameters_and_days import TABLES
from experiments.reproduce.dissertation.spot_markets import MARKET_ITEMS
from experiments.reproduce.dissertation.spot_prices import PRICE_ITEMS
from experiments.reproduce.item import Item

ITEMS: tuple[Item, ...] = (
    TABLE_2_2_ITEM,
    *TABLES,
    *BUBBLE_ITEMS,
    *DATA_AND_TENSOR_ITEMS,
    *MARKET_ITEMS,
    *PRICE_ITEMS,
)
"""Tables, then figures, then those that are not here."""
