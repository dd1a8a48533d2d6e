"""The table of schedules by hand as an item."""

from __future__ import annotations

from experiments.reproduce.item import Claim, Item
from experiments.reproduce.schedules_by_hand import bubbles
from experiments.reproduce.schedules_by_hand.bubbles import ByHandOptions

ITEMS: tuple[Item, ...] = (
    Item(
        name="schedules_by_hand",
        source="the schedules' own papers",
        title="Bubble rates of all schedules by hand, and of searched ones in the same memory",
        claim=Claim.TREND,
        options=ByHandOptions,
        small=ByHandOptions(num_micro_batches=(6,), placements=("V", "X")),
        cases=bubbles.cases,
        make=bubbles.make,
        trends=bubbles.trends,
        files=bubbles.files,
        because="no paper has this table",
    ),
)
