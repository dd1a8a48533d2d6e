"""All items of Gavel's evaluation."""

from __future__ import annotations

from experiments.reproductions.gavel.cost import COST_ITEM
from experiments.reproductions.gavel.hierarchical import HIERARCHICAL_ITEM
from experiments.reproductions.gavel.physical import PHYSICAL_ITEM
from experiments.reproductions.gavel.policies import ITEMS as POLICY_ITEMS
from experiments.reproductions.gavel.rounds import ROUNDS_ITEM
from experiments.reproductions.gavel.sharing import SHARING_ITEM
from experiments.reproductions.item import Item

ITEMS: tuple[Item, ...] = (
    PHYSICAL_ITEM,
    *POLICY_ITEMS,
    COST_ITEM,
    HIERARCHICAL_ITEM,
    ROUNDS_ITEM,
    SHARING_ITEM,
)
"""In the order of Sec. 5.7."""
