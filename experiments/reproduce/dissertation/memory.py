"""Fig. 3.7 and 3.11: worst-case memory of GPipe, PipeDream-Flush and 2BW, by the closed forms of Sec. 3.2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.reproduce.dissertation.figure import figure
from experiments.reproduce.item import CaseOptions, Claim, Row, Trend
from experiments.reproduce.rows import cases_in, value_of
from placements.models.zoo import decoder
from placements.planners.pipedream.two_bw import BlockProfile, memory_bytes
from schedsearch.figures.bars import BarPanel, draw_bars

MEMORY = "memory_gb"
NUM_STAGES = 8
BATCH_SIZES = {"batch_32": 32, "batch_64": 64}
MICRO_BATCH_SIZE = 1

_WEIGHT_BYTES = 4
"""Of a parameter and version; gradients and the optimizer's states are the same for all schemes."""

SCHEMES = {"PipeDream-Flush": (1, None), "PipeDream-2BW": (2, None), "GPipe": (1, "batch")}
"""Weight versions, and micro-batches in flight where these are not the stages."""

_ACTIVATIONS = {"kept": False, "recomputed": True}
"""Whether they are computed again, by what is done with them."""


def _profile() -> BlockProfile:
    model = decoder(
        "gpt 2.2b", num_layers=48, hidden_size=1920, num_heads=16, vocab_size=51_200, sequence_length=512
    )
    layer, half = model.layers[1], 2.0
    times_ms = {MICRO_BATCH_SIZE: 1.0}, {MICRO_BATCH_SIZE: 2.0}
    kept = sum(layer.kept(model.precision, 1))
    return BlockProfile(48, *times_ms, _WEIGHT_BYTES * layer.num_parameters, kept, half * 512 * 1920)


def _rows(_: CaseOptions, batch_size: int) -> Iterator[Row]:
    for how, recompute in _ACTIVATIONS.items():
        for scheme, (versions, in_flight) in SCHEMES.items():
            held = memory_bytes(
                _profile(),
                NUM_STAGES,
                MICRO_BATCH_SIZE,
                recompute=recompute,
                num_versions=versions,
                num_in_flight=batch_size // MICRO_BATCH_SIZE if in_flight else None,
            )
            yield Row(f"{scheme}, {how}", MEMORY, held / 1e9, digits=2)


def _curves(rows: Sequence[Row], how: str) -> list[list[float]]:
    """Return the GB of each scheme by case."""
    held = value_of(rows, "case", "label")
    return [[held[case, f"{name}, {how}"] for case in cases_in(rows)] for name in SCHEMES]


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for how in _ACTIVATIONS:
        flush, double, gpipe = _curves(rows, how)
        yield Trend(
            f"2BW needs more than PipeDream-Flush, activations {how}",
            all(a < b for a, b in zip(flush, double, strict=True)),
            f"{double[-1]:.2f} and {flush[-1]:.2f} GB",
        )
        yield Trend(
            f"GPipe needs the most, activations {how}",
            all(b < c for b, c in zip(double, gpipe, strict=True)),
            f"{gpipe[-1]:.2f} GB in the largest batch",
        )


def _draw(rows: Sequence[Row]) -> Any:
    panels = []
    for how in _ACTIVATIONS:
        columns = zip(cases_in(rows), *_curves(rows, how), strict=True)
        groups = {
            f"batch of {BATCH_SIZES[case]}": dict(zip(SCHEMES, held, strict=True)) for case, *held in columns
        }
        panels.append(BarPanel(f"activations {how}", groups))
    return draw_bars(panels, "memory (GB)", width=7.0)


MEMORY_ITEMS = tuple(
    figure(
        number,
        title,
        Claim.TREND,
        BATCH_SIZES,
        _rows,
        _trends,
        _draw,
        because=because,
        supported_by="test_a_second_version_of_the_weights_outweighs_the_inputs_that_gpipe_keeps",
    )
    for number, title, because in (
        (
            "3.7",
            "Worst-case memory of a GPT of 2.2 billion in eight stages",
            "The figure's values are measured and not in the text, nor is the model's shape: 48 layers of "
            "1920 are taken, with one sequence of 512 tokens in a micro-batch and 4 bytes for each weight of "
            "each version. The closed forms keep nothing of a stage but its input where activations are "
            "recomputed; GPipe then needs less than a second version of the weights, while the measured "
            "GPipe ran out of memory.",
        ),
        (
            "3.11",
            "Worst-case memory of a BERT of 2.2 billion in eight stages",
            "The figure's values are measured and not in the text. A BERT's layers cost what a GPT's do, and "
            "its shape is taken for that of Fig. 3.7, so that the closed forms give the same values.",
        ),
    )
)
