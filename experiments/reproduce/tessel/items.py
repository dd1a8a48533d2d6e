"""All items of Tessel."""

from __future__ import annotations

from experiments.reproduce.item import Item
from experiments.reproduce.tessel.bubble_rates import TABLE_2
from experiments.reproduce.tessel.bubble_sweeps import FIGURE_11, FIGURE_12
from experiments.reproduce.tessel.drawn_schedules import FIGURE_8
from experiments.reproduce.tessel.flava_inference import FIGURE_15
from experiments.reproduce.tessel.model_sizes import TABLE_3
from experiments.reproduce.tessel.run_times import FIGURE_16, FIGURE_17
from experiments.reproduce.tessel.search_times import FIGURE_3, FIGURE_9, FIGURE_10
from experiments.reproduce.tessel.throughput import FIGURE_13
from experiments.reproduce.tessel.vocabulary_imbalance import FIGURE_2
from experiments.reproduce.tessel.vocabulary_item import LARGE_VOCABULARY

ITEMS: tuple[Item, ...] = (
    FIGURE_2,
    FIGURE_3,
    TABLE_2,
    FIGURE_8,
    FIGURE_9,
    FIGURE_10,
    FIGURE_11,
    TABLE_3,
    FIGURE_12,
    LARGE_VOCABULARY,
    FIGURE_13,
    FIGURE_15,
    FIGURE_16,
    FIGURE_17,
)
"""In the paper's order."""
