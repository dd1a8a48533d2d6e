"""Tables 1 and 7: models divided into stages that are as alike as they can be, by the operations of layers.

Perseus measures the forward of each layer; operations stand in for that. They know no GPU, so that ours are
the same on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.reproduce.item import CaseOptions, Claim, Row, Trend, described
from experiments.reproduce.perseus.published import (
    DIVISIONS,
    GPT_3,
    GPU_TITLES,
    NOT_IN_TABLE_1,
    TITLES,
    PublishedDivision,
)
from experiments.reproduce.rows import numbers, rows_with
from placements.models.end_layers import EmbeddingLayer
from placements.models.layers import Layer
from placements.models.zoo import MODELS
from placements.planners.division import min_imbalance, stage_times

METRIC = "imbalance_ratio"

STAGES = (4, 8)
"""Numbers of stages in both tables."""


def divided_layers(model: str) -> tuple[Layer, ...]:
    """Return the layers that Perseus divides: all but an embedding, which costs next to nothing."""
    return tuple(layer for layer in MODELS[model].layers if not isinstance(layer, EmbeddingLayer))


def least_ratio(model: str, num_stages: int) -> tuple[float, tuple[int, ...]]:
    """Return the least ratio of the longest stage's operations to the shortest's, and that division."""
    flops = [layer.forward_flops(1) for layer in divided_layers(model)]
    stage_layers = min_imbalance(flops, num_stages)
    stages = stage_times(flops, stage_layers)
    return max(stages) / min(stages), stage_layers


def _rows(_: CaseOptions, divisions: Sequence[PublishedDivision]) -> Iterator[Row]:
    for each in divisions:
        ratio, stage_layers = least_ratio(each.model, each.num_stages)
        published = "not given" if each.stage_layers is None else _shown(each.stage_layers)
        is_large_product = each.gpu == "a100" and each.model in GPT_3
        yield Row(
            f"{TITLES[each.model]}, {GPU_TITLES[each.gpu]}, {each.num_stages} stages",
            METRIC,
            ratio,
            each.ratio,
            digits=2,
            note=f"layers of the stages {_shown(stage_layers)}, published {published}",
            claim=Claim.WITHIN if is_large_product else None,
            at=each.num_stages,
        )


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


def _shown(stage_layers: Sequence[int]) -> str:
    return "|".join(map(str, stage_layers))


def _of(gpu: str, model: str) -> list[PublishedDivision]:
    return [DIVISIONS[gpu, model, count] for count in STAGES]


ITEMS = (
    described(
        "perseus_table1",
        {model: _of("a100", model) for model in TITLES if model not in NOT_IN_TABLE_1},
        _rows,
        _trends,
        small=CaseOptions(("gpt3_2.7b", "gpt3_175b", "bert_large")),
    ),
    described(
        "perseus_table7",
        {f"{gpu}_{model}": _of(gpu, model) for gpu in GPU_TITLES for model in TITLES},
        _rows,
        _trends,
        small=CaseOptions(("a100_gpt3_1.3b", "a40_gpt3_175b")),
    ),
)
