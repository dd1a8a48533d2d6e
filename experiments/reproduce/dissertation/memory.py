"""Fig. 3.7 and 3.11: worst-case memory of GPipe, PipeDream-Flush and 2BW, by the closed forms of Sec. 3.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend, cases_in, chosen_cases
from placements.models.zoo import decoder
from placements.planners.pipedream.two_bw import BlockProfile, memory_bytes
from schedsearch.figures.bars import BarPanel, draw_bars

MEMORY = "memory_gb"
NUM_STAGES = 8
BATCH_SIZES = (32, 64)
MICRO_BATCH_SIZE = 1

_WEIGHT_BYTES = 4
"""Of a parameter and version; gradients and the optimizer's states are the same for all schemes."""

SCHEMES = {"PipeDream-Flush": (1, None), "PipeDream-2BW": (2, None), "GPipe": (1, "batch")}
"""Weight versions, and micro-batches in flight where these are not the stages."""


def _profile() -> BlockProfile:
    model = decoder(
        "gpt 2.2b", num_layers=48, hidden_size=1920, num_heads=16, vocab_size=51_200, sequence_length=512
    )
    layer = model.layers[1]
    half = 2.0
    return BlockProfile(
        48,
        {MICRO_BATCH_SIZE: 1.0},
        {MICRO_BATCH_SIZE: 2.0},
        _WEIGHT_BYTES * layer.num_parameters,
        sum(layer.kept(model.precision, 1)),
        half * 512 * 1920,
    )


def _cases(options: CaseOptions) -> list[str]:
    return chosen_cases([f"batch_{size}" for size in BATCH_SIZES], options.only)


def _rows(_: CaseOptions, case: str) -> list[Row]:
    profile, batch_size = _profile(), int(case.removeprefix("batch_"))
    rows = []
    for recompute in (False, True):
        for scheme, (versions, in_flight) in SCHEMES.items():
            held = memory_bytes(
                profile,
                NUM_STAGES,
                MICRO_BATCH_SIZE,
                recompute=recompute,
                num_versions=versions,
                num_in_flight=batch_size // MICRO_BATCH_SIZE if in_flight else None,
            )
            how = "recomputed" if recompute else "kept"
            rows.append(Row(case, f"{scheme}, {how}", MEMORY, held / 1e9, digits=2))
    return rows


def _trends(rows: Sequence[Row]) -> list[Trend]:
    held = {(row.case, row.label): row.ours or 0.0 for row in rows}
    cases = cases_in(rows)
    trends = []
    for how in ("kept", "recomputed"):
        flush, double, gpipe = ([held[case, f"{name}, {how}"] for case in cases] for name in SCHEMES)
        trends += [
            Trend(
                f"2BW needs more than PipeDream-Flush, activations {how}",
                all(a < b for a, b in zip(flush, double, strict=True)),
                f"{double[-1]:.2f} and {flush[-1]:.2f} GB",
            ),
            Trend(
                f"GPipe needs the most, activations {how}",
                all(b < c for b, c in zip(double, gpipe, strict=True)),
                f"{gpipe[-1]:.2f} GB in the largest batch",
            ),
        ]
    return trends


def _draw(rows: Sequence[Row]) -> Any:
    panels = []
    for how in ("kept", "recomputed"):
        groups = {
            case.replace("_", " of "): {
                name: next(row.ours for row in rows if (row.case, row.label) == (case, f"{name}, {how}"))
                for name in SCHEMES
            }
            for case in cases_in(rows)
        }
        panels.append(BarPanel(f"activations {how}", groups))
    return draw_bars(panels, "memory (GB)", width=7.0)


FIGURE_3_7_ITEM = Item(
    "dissertation_figure3_7",
    "Narayanan's dissertation, Fig. 3.7",
    "Worst-case memory of a GPT of 2.2 billion in eight stages",
    Claim.TREND,
    CaseOptions,
    CaseOptions(),
    _cases,
    _rows,
    _trends,
    _draw,
    because=(
        "The figure's values are measured and not in the text, nor is the model's shape: 48 layers of 1920 "
        "are taken, with one sequence of 512 tokens in a micro-batch and 4 bytes for each weight of each "
        "version. The closed forms keep nothing of a stage but its input where activations are recomputed; "
        "GPipe then needs less than a second version of the weights, while the measured GPipe ran out of "
        "memory."
    ),
)

FIGURE_3_11_ITEM = replace(
    FIGURE_3_7_ITEM,
    name="dissertation_figure3_11",
    source="Narayanan's dissertation, Fig. 3.11",
    title="Worst-case memory of a BERT of 2.2 billion in eight stages",
    because=(
        "The figure's values are measured and not in the text. A BERT's layers cost what a GPT's do, and its "
        "shape is taken for that of Fig. 3.7, so that the closed forms give the same values."
    ),
)
