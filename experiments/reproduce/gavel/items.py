"""All items of Gavel's evaluation."""

from __future__ import annotations

from experiments.reproduce.gavel.cost import COST_ITEM
from experiments.reproduce.gavel.hierarchical import HIERARCHICAL_ITEM
from experiments.reproduce.gavel.physical import PHYSICAL_ITEM
from experiments.reproduce.gavel.policies import ITEMS as POLICY_ITEMS
from experiments.reproduce.gavel.rounds import ROUNDS_ITEM
from experiments.reproduce.gavel.sharing import SHARING_ITEM
from experiments.reproduce.item import Item

ITEMS: tuple[Item, ...] = (
    PHYSICAL_ITEM,
    *POLICY_ITEMS,
    COST_ITEM,
    HIERARCHICAL_ITEM,
    ROUNDS_ITEM,
    SHARING_ITEM,
)
"""In the order of Sec. 5.7."""
