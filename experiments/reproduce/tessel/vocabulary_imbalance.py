"""Fig. 2: how uneven the stages of 1F1B become where a large embedding needs two of four GPUs.

The first stage has the embedding and its two GPUs share what it holds; the others are two GPUs with layers
alone. Layers go where the slowest stage is fastest and memory allows. Times and memory are modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_numbers
from experiments.reproduce.rows import bars, by_series, grouped, numbers
from experiments.reproduce.tessel.published import SLOWEST_OVER_FASTEST
from placements.cluster import read_cluster
from placements.forms.meaning import option
from placements.models.parallel import LayerStrategy
from placements.models.rates import RESERVE_GIB
from placements.models.zoo import read_model
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.figures.bars import BarPanel, draw_bars

_VOCABULARY = 768_000
_SHARING = 2
"""GPUs that the embedding needs."""

_OTHERS = 2
"""GPUs that have a stage each, of layers alone."""

_RATIO = "slowest_over_fastest"


@dataclass(frozen=True)
class ImbalanceOptions:
    """Which models."""

    num_layers: tuple[int, ...] = option((16, 20, 24, 28, 32, 36, 40), "transformer layers of a GPT")
    state_bytes: tuple[int, ...] = option(
        (8, 10, 12, 16), "bytes for each parameter, which the paper does not say"
    )


@dataclass(frozen=True)
class VocabularyDivision:
    """Layers of the first stage, which two GPUs share, and of the other two.

    Attributes:
        first: Of the stage with the embedding.
        others: Of each other one.
        times_ms: Forward and backward of one sample, of each stage.
    """

    first: int
    others: tuple[int, ...]
    times_ms: tuple[float, ...]

    @property
    def slowest_over_fastest(self) -> float:
        """How uneven they are."""
        return max(self.times_ms) / min(self.times_ms)


def best_division(num_layers: int, state_bytes: int) -> VocabularyDivision | None:
    """Return the division whose slowest stage is fastest; None where nothing fits.

    Args:
        num_layers: Number of layers of the model.
        state_bytes: For each parameter.
    """
    model = read_model("gpt3_6.7b", num_layers=num_layers, vocab_size=_VOCABULARY)
    cluster, costs = read_cluster("v100_4", gpus_per_node=4), ShapeCosts(model)
    embedding, layer = model.layers[0], model.layers[1]

    def time_ms(count: int, num_gpus: int) -> float:
        strategy = LayerStrategy(num_gpus, recompute="full")
        cost = costs.cost(layer, strategy, 1, 2, cluster.group(0, num_gpus))
        return count * (cost.forward.time_ms + cost.backward.time_ms)

    table = costs.cost(embedding, LayerStrategy(_SHARING), 1, 2, cluster.group(0, _SHARING))
    capacity = (cluster.whole.memory_gib - RESERVE_GIB) * 2**30 / state_bytes
    most_first = int((_SHARING * capacity - embedding.num_parameters) // layer.num_parameters)
    most_other = int(capacity // layer.num_parameters)
    found = []
    for first in range(max(most_first, -1) + 1):
        rest = num_layers - first
        others = (rest - rest // _OTHERS, rest // _OTHERS)
        if min(others) >= 1 and max(others) <= most_other:
            own_ms = table.forward.time_ms + table.backward.time_ms + time_ms(first, _SHARING)
            times_ms = (own_ms, *(time_ms(count, 1) for count in others))
            found.append(VocabularyDivision(first, others, times_ms))
    return min(found, key=lambda division: max(division.times_ms), default=None)


def _cases(options: ImbalanceOptions) -> dict[str, int]:
    check_numbers("num_layers", options.num_layers)
    check_numbers("state_bytes", options.state_bytes)
    return {f"{count} layers": count for count in sorted(options.num_layers)}


def _rows(options: ImbalanceOptions, count: int) -> Iterator[Row]:
    for number in options.state_bytes:
        label, division = f"{number} bytes per parameter", best_division(count, number)
        note, ratio = "does not fit in four GPUs", None
        if division is not None:
            shares = "+".join(str(each) for each in (division.first, *division.others))
            note, ratio = f"layers of the stages: {shares}", division.slowest_over_fastest
        published = SLOWEST_OVER_FASTEST.get(count)
        yield Row(label, _RATIO, ratio, published, digits=1, note=note, series=label, at=count)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    found = {label: numbers(own) for label, own in grouped(rows, by_series).items()}
    uneven = [curve for curve in found.values() if len(curve) > 1 and max(curve) > 1.5]
    yield Trend(
        "with more layers the stages become less even",
        bool(uneven) and all(curve[-1] == max(curve) for curve in uneven),
        "; ".join(f"{label}: {curve[0]:.1f} to {curve[-1]:.1f}" for label, curve in found.items() if curve),
    )


def _draw(rows: Sequence[Row]) -> Any:
    groups = bars(rows, lambda row: f"{row.at:g}", by_series)
    return draw_bars([BarPanel("GPT, 768,000 words, by layers", groups)], "slowest / fastest stage")


FIGURE_2 = Item(
    name="tessel_figure2",
    paper="Tessel",
    part="Fig. 2",
    title="How uneven stages become with a large embedding",
    claim=Claim.TREND,
    known=_cases,
    make=_rows,
    conclude=_trends,
    draw=_draw,
    small=ImbalanceOptions(num_layers=(16, 20), state_bytes=(16,)),
    because=(
        "Modelled, and the paper's throughput is only drawn. What a parameter needs is not said there, and "
        "decides: with 16 bytes 40 layers do not fit in four GPUs of 32 GB, and with 8 the first stage has "
        "room for half of them, so that its two GPUs are as busy as the others."
    ),
    supported_by="test_more_for_each_parameter_makes_stages_less_even_and_then_does_not_fit",
)
"""A vocabulary of 768,000 on four V100."""
