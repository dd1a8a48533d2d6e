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
        number = division.num_stages
        flops = [layer.forward_flops(1) for layer in divided_layers(division.model)]
        stage_layers = min_imbalance(flops, number)
        stages = stage_times(flops, stage_layers)
        published = "not given" if division.stage_layers is None else _shown(division.stage_layers)
        note = f"layers of the stages {_shown(stage_layers)}, published {published}"
        is_large_product = division.gpu == "a100" and division.model.startswith("gpt3")
        claim, ratio = None if is_large_product else Claim.TREND, max(stages) / min(stages)
        yield Row(f"{number} stages", METRIC, ratio, division.ratio, 2, note, claim, at=number)


def _shown(stage_layers: Sequence[int]) -> str:
    return "|".join(map(str, stage_layers))


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    pairs = list(zip(*(numbers(rows_with(rows, at=count)) for count in STAGES), strict=True))
    ratios = numbers(rows)
    shown_by = f"the least ratio of {len(ratios)} is {min(ratios):.3f}"
    yield Trend("no model can be divided perfectly", min(ratios) > 1, shown_by)
    larger = sum(few < many for few, many in pairs)
    yield Trend(
        "more stages are less alike",
        all(few <= many for few, many in pairs),
        f"8 stages have the larger one in {larger} of {len(pairs)} pairs",
    )


_CASES = {
    f"{gpu}_{model}": [DIVISIONS[gpu, model, count] for count in STAGES]
    for gpu, model in dict.fromkeys(row[:2] for row in DIVISIONS)
}

_SMALL = CaseOptions(("a100_gpt3_1.3b", "a40_gpt3_175b"))

ITEMS = (described("perseus_table7", _CASES, _rows, _trends, small=_SMALL),)
