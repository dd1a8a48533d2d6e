"""All items of Tessel."""

from __future__ import annotations

from experiments.reproductions.item import Item
from experiments.reproductions.tessel.vocabulary_item import LARGE_VOCABULARY

ITEMS: tuple[Item, ...] = (LARGE_VOCABULARY,)
"""In the paper's order."""
