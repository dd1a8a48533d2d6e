"""Published values of Perseus: divisions of models (Tables 1 and 7) and savings (Tables 3, 4 and 6).

Models have the names of `placements.models.zoo`. The module computes nothing.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from experiments.reproduce.rows import published_table

GPT_3 = {
    "gpt3_1.3b": "GPT-3 1.3B",
    "gpt3_2.7b": "GPT-3 2.7B",
    "gpt3_6.7b": "GPT-3 6.7B",
    "gpt3_13b": "GPT-3 13B",
    "gpt3_175b": "GPT-3 175B",
}
"""Titles of the sizes of GPT-3."""

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
"""Titles of all models."""

GPU_TITLES = {"a100": "A100", "a40": "A40"}


class PublishedDivision(NamedTuple):
    """A model divided into stages whose forwards are as alike as they can be.

    The ratio is that of the longest stage to the shortest. The output layer is one of the layers of the
    stages, which are None where the paper's list has not as many stages.
    """

    gpu: str
    model: str
    num_stages: int
    ratio: float
    stage_layers: tuple[int, ...] | None


NOT_IN_TABLE_1 = ("gpt3_1.3b", "bert_huge")
"""Models of Table 7 that Table 1 leaves out; its ratios are otherwise those of the A100."""


class _DivisionRow(NamedTuple):
    """A row of ``table7.csv``: the first layers of the stages, and the number of all layers."""

    gpu: str
    model: str
    num_stages: int
    ratio: float
    first_layers: tuple[int, ...]


def _division(row: _DivisionRow) -> PublishedDivision:
    layers = tuple(end - first for first, end in itertools.pairwise(row.first_layers))
    return PublishedDivision(*row[:4], layers if len(layers) == row.num_stages else None)


DIVISIONS = {row[:3]: _division(row) for row in published_table(__file__, "table7.csv", _DivisionRow)}
"""Table 7, by GPU, model and number of stages. Two lists of Bloom's 8 stages have 6 (Table 7a)."""


class PublishedSavings(NamedTuple):
    """Percent of energy saved by Perseus and by EnvPipe.

    Table ``3 slower`` has the percent by which they are slower; in Table 4 there is a value for each of
    `SLOWDOWNS`, in Table 6 one of Perseus for each number of micro-batches of `NUM_PIPELINES`.
    """

    table: str
    gpu: str
    model: str
    perseus: tuple[float, ...]
    envpipe: tuple[float, ...] = ()


SAVINGS = {row[:3]: row for row in published_table(__file__, "savings.csv", PublishedSavings)}
"""Tables 3, 4 and 6, by table, GPU and model."""

REALISED = {"a100": 74.0, "a40": 89.0}
"""Mean percent of the largest possible savings that Perseus has without stragglers (Sec. 6.2.3)."""

SLOWDOWNS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)
"""Slowdowns of the stragglers in Table 4: T' over T."""

NUM_PIPELINES = {12: 128, 24: 64, 48: 32, 96: 16}
"""Pipelines of the emulation by micro-batches of each (Table 5)."""
