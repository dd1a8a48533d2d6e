"""The tables of published measurements, as items."""

from __future__ import annotations

from experiments.reproduce.item import Item
from experiments.reproduce.measured.vocabulary_parallelism import VOCABULARY_PARALLELISM
from experiments.reproduce.measured.zero_bubble import ZERO_BUBBLE

ITEMS: tuple[Item, ...] = (ZERO_BUBBLE, VOCABULARY_PARALLELISM)
