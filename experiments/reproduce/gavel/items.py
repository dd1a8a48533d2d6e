"""All items of Gavel's evaluation."""

from __future__ import annotations

from experiments.reproduce.gavel.hierarchical import HIERARCHICAL_ITEM
from experiments.reproduce.gavel.physical import PHYSICAL_ITEM
from experiments.reproduce.gavel.policies import AFTER_HIERARCHIES, BEFORE_HIERARCHIES
from experiments.reproduce.item import Item

ITEMS: tuple[Item, ...] = (PHYSICAL_ITEM, *BEFORE_HIERARCHIES, HIERARCHICAL_ITEM, *AFTER_HIERARCHIES)
"""In the order of Sec. 5.7."""
