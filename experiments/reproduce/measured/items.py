"""The tables of published measurements, as items."""

from __future__ import annotations

from experiments.reproduce.item import Claim, Item
from experiments.reproduce.measured import vocabulary_parallelism, zero_bubble
from experiments.reproduce.measured.vocabulary_parallelism import VocabularyOptions
from experiments.reproduce.measured.zero_bubble import ZeroBubbleOptions

ITEMS: tuple[Item, ...] = (
    Item(
        name="zero_bubble",
        source="Zero Bubble Pipeline Parallelism, published bubble rates of measured times",
        title="Bubble rates of 1F1B, ZB-H1, ZB-H2, and of searched schedules in ZB-1p's and ZB-2p's memory",
        claim=Claim.TREND,
        options=ZeroBubbleOptions,
        small=ZeroBubbleOptions(work_limit=5.0, max_rows=1),
        cases=zero_bubble.cases,
        make=zero_bubble.make,
        trends=zero_bubble.trends,
        files=zero_bubble.files,
        inputs={"data": "zero_bubble"},
        because=(
            "hand-made schedules are as published, to the digits printed; those of ZB-1p and ZB-2p are of a "
            "heuristic, which a searched schedule may beat"
        ),
    ),
    Item(
        name="vocabulary_parallelism",
        source="Vocabulary Parallelism, measured iterations of its artifact",
        title="Iterations of pipelines whose last stage has the output layer, in 1F1B",
        claim=Claim.WITHIN,
        options=VocabularyOptions,
        small=VocabularyOptions(work_limit=2.5, max_rows=1),
        cases=vocabulary_parallelism.cases,
        make=vocabulary_parallelism.make,
        trends=vocabulary_parallelism.trends,
        files=vocabulary_parallelism.files,
        inputs={"data": "vocabulary_parallelism"},
        tolerance=vocabulary_parallelism.TOLERANCE,
        because="predictions have no transfers, so that they are a little short",
    ),
)
