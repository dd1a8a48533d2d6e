"""What Perseus publishes: divisions of models (Tables 1 and 7) and savings (Tables 3, 4 and 6).

Models have the names of `placements.models.zoo`. The module computes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from placements.tables import csv_rows

GPT_3 = {
    "gpt3_1.3b": "GPT-3 1.3B",
    "gpt3_2.7b": "GPT-3 2.7B",
    "gpt3_6.7b": "GPT-3 6.7B",
    "gpt3_13b": "GPT-3 13B",
    "gpt3_175b": "GPT-3 175B",
}
"""What people call each size of GPT-3."""

TITLES = GPT_3 | {
    "bloom_3b": "Bloom 3B",
    "bloom_7b": "Bloom 7B",
    "bloom_176b": "Bloom 176B",
    "bert_base": "BERT 0.1B",
    "bert_large": "BERT 0.3B",
    "bert_huge": "BERT 1.3B",
    "t5_base": "T5 0.2B",
    "t5_large": "T5 0.7B",
    "t5_3b": "T5 3B",
    "wide_resnet50_8": "Wide-ResNet50 0.8B",
    "wide_resnet101_8": "Wide-ResNet101 1.5B",
}
"""What people call each model."""

GPU_TITLES = {"a100": "A100", "a40": "A40"}


class PublishedDivision(NamedTuple):
    """A model divided into stages whose forwards are as alike as they can be.

    Attributes:
        gpu: One of `GPU_TITLES`.
        model: One of `TITLES`.
        num_stages: 4 or 8.
        ratio: Time of the longest stage's forward over that of the shortest.
        stage_layers: Layers of each stage, the output layer one of them; None where the paper's list has not
            as many stages.
    """

    gpu: str
    model: str
    num_stages: int
    ratio: float
    stage_layers: tuple[int, ...] | None


NOT_IN_TABLE_1 = ("gpt3_1.3b", "bert_huge")
"""Models of Table 7 that Table 1 leaves out; its ratios are otherwise those of the A100."""


def _divisions() -> Iterator[PublishedDivision]:
    for row in csv_rows(Path(__file__).with_name("table7.csv"), "division", ValueError):
        ends, num_stages = row["first_layers"].typed(tuple[int, ...]), row["num_stages"].whole()
        layers = tuple(end - first for first, end in itertools.pairwise(ends))
        is_whole = len(layers) == num_stages
        ratio, gpu, model = row["ratio"].number(), row.text("gpu"), row.text("model")
        yield PublishedDivision(gpu, model, num_stages, ratio, layers if is_whole else None)


DIVISIONS = {(each.gpu, each.model, each.num_stages): each for each in _divisions()}
"""Table 7, by GPU, model and number of stages: of ``table7.csv``, where the first layers of the stages stand
with the number of all layers. Two lists of Bloom's 8 stages have 6 (Table 7a)."""

TABLE_3 = {
    ("a100", "gpt3_1.3b"): (13.2, 8.8, 0.1, 0.1),
    ("a100", "bert_huge"): (12.9, 8.0, 0.5, 0.0),
    ("a100", "t5_3b"): (10.6, 7.4, 1.3, 3.4),
    ("a100", "bloom_3b"): (11.7, 8.9, 0.2, 0.2),
    ("a100", "wide_resnet101_8"): (3.2, 3.7, 2.3, 4.1),
    ("a40", "gpt3_2.7b"): (21.1, 21.7, 0.2, 5.6),
    ("a40", "bert_huge"): (15.7, 16.5, 0.0, 9.7),
    ("a40", "t5_3b"): (28.5, 19.3, 0.0, 0.0),
    ("a40", "bloom_3b"): (22.4, 19.9, 0.0, 0.0),
    ("a40", "wide_resnet101_8"): (20.4, 16.5, 0.2, 0.5),
}
"""Percent of energy saved by Perseus and by EnvPipe, and percent by which they are slower (Table 3)."""

REALISED = {"a100": 74.0, "a40": 89.0}
"""Mean percent of the largest possible savings that Perseus has without stragglers (Sec. 6.2.3)."""

SLOWDOWNS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)
"""Of the stragglers in Table 4: T' over T."""

TABLE_4 = {
    ("a100", "gpt3_1.3b"): ((14.7, 15.9, 15.5, 15.0, 14.6, 14.3), (8.7, 8.5, 8.3, 8.1, 7.9, 7.7)),
    ("a100", "bloom_3b"): ((13.6, 15.6, 15.2, 14.7, 14.3, 14.0), (8.8, 8.7, 8.4, 8.2, 8.0, 7.8)),
    ("a100", "bert_huge"): ((14.9, 16.9, 16.4, 15.9, 15.5, 15.0), (7.9, 7.8, 7.5, 7.3, 7.1, 6.9)),
    ("a100", "t5_3b"): ((15.3, 18.0, 17.9, 17.4, 16.9, 16.5), (8.4, 8.2, 8.0, 7.8, 7.6, 7.4)),
    ("a100", "wide_resnet101_8"): ((9.4, 12.7, 12.6, 12.3, 12.0, 11.6), (4.9, 4.8, 4.7, 4.5, 4.4, 4.3)),
    ("a40", "gpt3_2.7b"): ((24.5, 26.0, 25.9, 25.2, 24.6, 24.0), (22.9, 22.6, 22.0, 21.4, 20.9, 20.4)),
    ("a40", "bloom_3b"): ((25.5, 26.4, 25.9, 25.2, 24.6, 24.0), (19.6, 19.3, 18.8, 18.3, 17.8, 17.4)),
    ("a40", "bert_huge"): ((20.0, 22.6, 24.1, 23.4, 22.8, 22.2), (19.2, 18.9, 18.3, 17.8, 17.4, 16.9)),
    ("a40", "t5_3b"): ((27.9, 27.3, 26.2, 25.2, 24.3, 23.4), (18.4, 18.0, 17.3, 16.6, 16.0, 15.4)),
    ("a40", "wide_resnet101_8"): ((24.3, 26.2, 26.3, 25.7, 25.0, 24.4), (16.4, 16.2, 15.8, 15.4, 15.0, 14.6)),
}
"""Percent of energy saved by Perseus and by EnvPipe next to a straggler of each of `SLOWDOWNS` (Table 4)."""

NUM_PIPELINES = {12: 128, 24: 64, 48: 32, 96: 16}
"""Pipelines of the emulation by micro-batches of each (Table 5)."""

TABLE_6 = {
    ("a100", "gpt3_175b"): (15.20, 14.19, 13.62, 13.32),
    ("a40", "gpt3_175b"): (11.81, 10.22, 9.34, 8.88),
    ("a100", "bloom_176b"): (10.47, 7.06, 5.23, 4.28),
    ("a40", "bloom_176b"): (6.97, 4.49, 3.12, 2.41),
}
"""Percent of energy saved with the micro-batches of `NUM_PIPELINES`, in emulation (Table 6)."""
