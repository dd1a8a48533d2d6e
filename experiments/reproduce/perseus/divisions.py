"""Tables 1 and 7: models divided into stages that are as alike as they can be, by the operations of layers.

Perseus measures the forward of each layer; operations stand in for that. They know no GPU, so that ours are
the same on both. Table 1 has ratios of Table 7 on A100.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.reproduce.item import CaseOptions, Claim, Row, Trend, described
from experiments.reproduce.rows import numbers, published_table, rows_with
from placements.models.end_layers import EmbeddingLayer
from placements.models.layers import Layer
from placements.models.zoo import MODELS
from placements.planners.division import min_imbalance, stage_times

METRIC = "imbalance_ratio"

STAGES = (4, 8)
"""Numbers of stages in the tables."""

GPU_TITLES = {"a100": "A100", "a40": "A40"}
"""Names of the GPUs in text."""


class NamedModel(NamedTuple):
    """A model of `placements.models.zoo` with its title in the paper, a row of ``models.csv``."""

    model: str
    title: str
    family: str


NAMES = {row.model: row for row in published_table(__file__, "models.csv", NamedModel)}


class PublishedDivision(NamedTuple):
    """A model divided into stages whose forwards are as alike as they can be, a row of ``table7.csv``.

    Attributes:
        ratio: Time of the longest stage over the shortest.
        first_layers: First layer of each stage, and the number of all layers, the output layer among them.
            Two lists of Bloom's 8 stages have 6 (Table 7a).
    """

    gpu: str
    model: str
    num_stages: int
    ratio: float
    first_layers: tuple[int, ...]

    @property
    def stage_layers(self) -> tuple[int, ...] | None:
        """Number of layers of each stage; None where the list has not as many stages."""
        layers = tuple(end - first for first, end in itertools.pairwise(self.first_layers))
        return layers if len(layers) == self.num_stages else None


DIVISIONS = {row[:3]: row for row in published_table(__file__, "table7.csv", PublishedDivision)}
"""Table 7, by GPU, model and number of stages."""


def divided_layers(model: str) -> tuple[Layer, ...]:
    """Return the layers that Perseus divides: all but an embedding, which costs next to nothing."""
    return tuple(layer for layer in MODELS[model].layers if not isinstance(layer, EmbeddingLayer))


def _rows(_: CaseOptions, divisions: Sequence[PublishedDivision]) -> Iterator[Row]:
    for division in divisions:
        model, number = NAMES[division.model], division.num_stages
        flops = [layer.forward_flops(1) for layer in divided_layers(model.model)]
        stage_layers = min_imbalance(flops, number)
        stages = stage_times(flops, stage_layers)
        published = "not given" if division.stage_layers is None else _shown(division.stage_layers)
        label = f"{model.title}, {GPU_TITLES[division.gpu]}, {number} stages"
        note = f"layers of the stages {_shown(stage_layers)}, published {published}"
        is_large_product = division.gpu == "a100" and model.family == "GPT-3"
        claim, ratio = Claim.WITHIN if is_large_product else None, max(stages) / min(stages)
        yield Row(label, METRIC, ratio, division.ratio, digits=2, note=note, claim=claim, at=number)


def _shown(stage_layers: Sequence[int]) -> str:
    return "|".join(map(str, stage_layers))


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    pairs = list(zip(*(numbers(rows_with(rows, at=count)) for count in STAGES), strict=True))
    ratios = numbers(rows)
    errors = [abs(row.ours - row.published) for row in rows if row.ours is not None and row.published]
    shown = f"the least ratio of {len(ratios)} is {min(ratios):.3f}"
    yield Trend("no model can be divided perfectly", min(ratios) > 1, shown)
    larger = sum(few < many for few, many in pairs)
    yield Trend(
        "more stages are less alike",
        all(few <= many for few, many in pairs),
        f"8 stages have the larger one in {larger} of {len(pairs)} pairs",
    )
    yield Trend(
        "operations tell most ratios",
        2 * sum(error <= 0.05 for error in errors) > len(errors),
        f"{sum(error <= 0.02 for error in errors)} of {len(errors)} within 0.02, "
        f"{sum(error <= 0.05 for error in errors)} within 0.05",
    )


ITEMS = (
    described(
        "perseus_table7",
        {
            f"{gpu}_{model}": [DIVISIONS[gpu, model, count] for count in STAGES]
            for gpu in GPU_TITLES
            for model in NAMES
        },
        _rows,
        _trends,
        small=CaseOptions(("a100_gpt3_1.3b", "a40_gpt3_175b")),
    ),
)
