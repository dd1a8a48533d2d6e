"""Timelines of several schedules above each other, on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl

from schedsearch.baselines.structure import pipelines
from schedsearch.figures.canvas import Figure, is_narrow, legend_below, rows_inches, small_points, style
from schedsearch.figures.timeline import kind_handles, timeline
from schedsearch.metrics import bubble_rate
from schedsearch.schedule import Instance, Schedule

_INCHES_BESIDES, _INCHES_OF_LEGEND = 0.45, 0.45
_INCHES_OF_DEVICE, _NARROW_INCHES_OF_DEVICE = 0.2, 0.15
"""Height of a row: at least as much as its text needs."""

_WIDTH = 10.0


def draw_timelines(
    schedules: Mapping[str, Schedule],
    width: float = _WIDTH,
    repetend_ms: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """Draw one timeline for each schedule, by the title that stands above it, and one legend below all.

    Args:
        schedules: At least one.
        width: In inches; `canvas.COLUMN_INCHES` for a column of a paper.
        repetend_ms: Times of boundaries to mark, by the title; None for none.
    """
    marked = repetend_ms or {}
    rows = [schedule.placement.num_devices for schedule in schedules.values()]
    figure = Figure(width, 1)
    inches = _NARROW_INCHES_OF_DEVICE if is_narrow(figure) else _INCHES_OF_DEVICE
    heights = [rows_inches(number, inches) + _INCHES_BESIDES for number in rows]
    legend: dict[str, Any] = {}
    with mpl.rc_context(style(figure)):
        panels = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
        longest = max(_end_ms(schedule) for schedule in schedules.values())
        for axes, (title, schedule) in zip(panels, schedules.items(), strict=True):
            _draw(axes, schedule, title, marked.get(title, ()))
            axes.set_xlim(0.0, longest)
            axes.tick_params(axis="y", labelsize=small_points(figure))
            handles = kind_handles(schedule.placement, repetend=title in marked)
            legend |= {str(handle.get_label()): handle for handle in handles}
            if axes is not panels[-1]:
                axes.set_xlabel("")
                axes.tick_params(axis="x", labelbottom=False)
        legend_below(figure, list(legend.values()))
    figure.set_figheight(sum(heights) + _INCHES_OF_LEGEND)
    return figure


def title_of(schedule: Schedule) -> str:
    """Return what stands above a schedule alone."""
    makespan = f"{schedule.placement.ms(schedule.makespan):,.6g} ms"
    return f"{schedule.placement.name}: {makespan}, {bubble_rate(schedule):.1%} bubble"


def _end_ms(schedule: Schedule) -> float:
    return schedule.makespan * schedule.placement.tick_ms


def _sample_of(schedule: Schedule) -> dict[Instance, Instance]:
    """Number the micro-batches through where each has several pipelines, as in an X-shape."""
    found = pipelines(schedule.placement) or [[]]
    names = [
        {name for stage in stages for name in (stage.forward, stage.backward, stage.weight)}
        for stages in found
    ]
    index = {name: i for i, each in enumerate(names) for name in each}
    return {(name, n): (name, n * len(found) + index.get(name, 0)) for name, n in schedule.start_of}


def _draw(axes: mpl.axes.Axes, schedule: Schedule, title: str, repetend_ms: Sequence[float]) -> None:
    placement = schedule.placement
    sample = _sample_of(schedule)
    start_ms = {sample[key]: start * placement.tick_ms for key, start in schedule.start_of.items()}
    duration_ms = {key: placement.by_name[key[0]].time * placement.tick_ms for key in start_ms}
    timeline(placement, start_ms, duration_ms, axes, repetend_ms=repetend_ms, legend=False)
    axes.set_title(title, loc="left")
