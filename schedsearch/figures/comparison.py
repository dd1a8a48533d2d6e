"""Timelines above each other: of several schedules on one axis of time, or coloured by one scale of power."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schedsearch.baselines.structure import pipelines
from schedsearch.figures.canvas import (
    COLUMN_INCHES,
    NARROW_INCHES,
    Figure,
    legend_below,
    panels_in,
    rows_inches,
    save_widths,
    small_points,
)
from schedsearch.figures.timeline import kind_handles, timeline
from schedsearch.metrics import bubble_rate
from schedsearch.schedule import Instance, Schedule

_INCHES_BESIDES, _INCHES_OF_LEGEND = 0.45, 0.45
_INCHES_OF_DEVICE, _NARROW_INCHES_OF_DEVICE = 0.2, 0.15
"""Height of a row: at least as much as its text needs."""

_WIDTH = 10.0


def draw_timelines(schedules: Mapping[str, Schedule], width: float = _WIDTH) -> Figure:
    """Draw one timeline per schedule, each below its title, all on one axis of time.

    The width is in inches, `canvas.COLUMN_INCHES` for a column.
    """
    inches = _NARROW_INCHES_OF_DEVICE if width < NARROW_INCHES else _INCHES_OF_DEVICE
    placements = [schedule.placement for schedule in schedules.values()]
    heights = [rows_inches(len(placement.lanes), inches) + _INCHES_BESIDES for placement in placements]
    size = width, sum(heights) + _INCHES_OF_LEGEND
    legend: dict[str, Any] = {}
    longest_ms = max(schedule.placement.ms(schedule.makespan) for schedule in schedules.values())
    with panels_in(list(schedules), size, 1, None, height_ratios=heights) as (figure, grid):
        for axes, schedule in zip(grid.flat, schedules.values(), strict=True):
            start_ms, duration_ms, mode = _timed(schedule)
            timeline(schedule.placement, start_ms, duration_ms, axes, mode=mode, legend=False)
            axes.set_xlim(0.0, longest_ms)
            axes.tick_params(axis="y", labelsize=small_points(figure))
            handles = kind_handles(schedule.placement, mode.values())
            legend |= {str(handle.get_label()): handle for handle in handles}
            if axes is not grid[-1, 0]:
                axes.set_xlabel("")
                axes.tick_params(axis="x", labelbottom=False)
        legend_below(figure, list(legend.values()))
        figure.set_figheight(size[1])
    return figure


def save_timelines(schedules: Mapping[str, Schedule], path: Path) -> None:
    """Write the timelines of schedules, wide and for a column."""
    save_widths(draw_timelines(schedules), draw_timelines(schedules, COLUMN_INCHES), path)


def title_of(schedule: Schedule) -> str:
    """Return the title of a schedule: its placement's name, makespan in ms, and bubble rate."""
    makespan = f"{schedule.placement.ms(schedule.makespan):,.6g} ms"
    return f"{schedule.placement.name}: {makespan}, {bubble_rate(schedule):.1%} bubble"


def _timed(schedule: Schedule) -> tuple[dict[Instance, float], dict[Instance, float], dict[Instance, str]]:
    """Return start (ms), duration (ms) and mode of each block; a block in its first mode has none.

    Micro-batches are numbered through all pipelines if the placement has several.
    """
    placement, end_of = schedule.placement, schedule.end_of
    chains = pipelines(placement)
    index = {
        name: i for i, chain in enumerate(chains) for s in chain for name in (s.forward, s.backward, s.weight)
    }
    start_ms, duration_ms, mode = dict[Instance, float](), dict[Instance, float](), dict[Instance, str]()
    for start, n, name in schedule.blocks:
        key = name, n * max(len(chains), 1) + index.get(name, 0)
        start_ms[key] = start * placement.tick_ms
        duration_ms[key] = (end_of[name, n] - start) * placement.tick_ms
        if chosen := schedule.mode(name, n):
            mode[key] = chosen
    return start_ms, duration_ms, mode
