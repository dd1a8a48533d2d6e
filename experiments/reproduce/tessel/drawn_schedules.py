"""Fig. 8: the schedules that Tessel's search finds for training and inference, drawn.

A row for each block says where it stands in the repetend, so that the figure is drawn from rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import cases_in, numbers, rows_with, value_of
from experiments.reproduce.tessel.published import MAX_MICRO_BATCHES, MODELS, NUM_DEVICES, shape_title
from placements import Placement
from placements.forms.meaning import option
from placements.shapes import SHAPES
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.figures.comparison import draw_timelines
from schedsearch.repetend import Repetend
from schedsearch.tessel import tessel

_DRAWN = MAX_MICRO_BATCHES + 2
"""Micro-batches of a picture: three repetends of as many as a repetend has at most."""

_BUBBLE, _IN_FLIGHT, _PERIOD, _START = "bubble_rate", "in_flight", "period_ticks", "start_ticks"


@dataclass(frozen=True)
class DrawingOptions(CaseOptions):
    """The limit of Tessel's search."""

    time_limit_s: float = option(120.0, "time limit of each of Tessel's searches, in s", above=0)


CASES = {f"{model} {part}": (model, part) for model in MODELS for part in ("training", "inference")}
"""A model, and whether it is trained or only runs forward, by the name of the case."""


def placement_of(case: str) -> Placement:
    """Return the placement of one of `CASES`."""
    model, part = CASES[case]
    return SHAPES[MODELS[model].shape](NUM_DEVICES, inference=part == "inference")


def drawn_repetend(rows: Sequence[Row]) -> Repetend:
    """Return the repetend that the rows of one case tell."""
    starts = value_of(rows_with(rows, metric=_START), "label")
    (period,) = numbers(rows_with(rows, metric=_PERIOD))
    first = {(name, 0): round(start) for name, start in starts.items()}
    return Repetend.from_first_starts(placement_of(rows[0].case), 1, round(period), first)


def _rows(options: DrawingOptions, case: str) -> Iterator[Row]:
    number, limit_s = MAX_MICRO_BATCHES, options.time_limit_s
    found = tessel(placement_of(case), number, max_in_flight=number, time_limit_s=limit_s).repetend
    if found is None:
        yield Row("repetend", _BUBBLE, None, 0.0, note=f"none found in {limit_s:g} s")
        return
    yield Row("repetend", _BUBBLE, found.bubble_rate, 0.0, digits=2)
    yield Row("repetend", _IN_FLIGHT, float(found.in_flight), digits=0)
    yield Row("repetend", _PERIOD, float(found.period), digits=0)
    for (name, _), start in found.first_starts.items():
        yield Row(name, _START, float(start), digits=0, note="after micro-batch 0 begins")


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    most = numbers(rows_with(rows, metric=_IN_FLIGHT))
    yield Trend(
        f"a repetend has up to {MAX_MICRO_BATCHES} micro-batches",
        bool(most) and max(most) <= MAX_MICRO_BATCHES,
        f"{min(most):g} to {max(most):g}" if most else "none found",
    )


def _draw(rows: Sequence[Row]) -> Any:
    schedules, marks = {}, {}
    for case in cases_in(rows_with(rows, metric=_PERIOD)):
        repetend = drawn_repetend(rows_with(rows, case=case))
        model, part = CASES[case]
        title = f"{MODELS[model].name} ({shape_title(MODELS[model].shape)}), {part}"
        schedules[title] = repetend.at_initiation_interval(_DRAWN)
        begin = (repetend.in_flight - 1) * repetend.period
        tick_ms = repetend.placement.tick_ms
        marks[title] = [(begin + i * repetend.period) * tick_ms for i in range(2)]
    return draw_timelines(schedules, 2 * COLUMN_INCHES, marks)


FIGURE_8 = described(
    "tessel_figure8",
    tuple(CASES),
    _rows,
    conclude=_trends,
    draw=_draw,
    small=DrawingOptions(("flava training", "flava inference")),
)

ITEMS = (FIGURE_8,)
