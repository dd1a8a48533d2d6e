"""Timelines above each other: of several schedules on one axis of time, or coloured by one scale of power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placements import Placement
from schedsearch.baselines.structure import pipelines
from schedsearch.figures.canvas import (
    NARROW_INCHES,
    Figure,
    legend_below,
    panels_in,
    rows_inches,
    small_points,
)
from schedsearch.figures.timeline import kind_handles, timeline
from schedsearch.metrics import bubble_rate
from schedsearch.schedule import Instance, Schedule

_INCHES_BESIDES, _INCHES_OF_LEGEND = 0.45, 0.45
_INCHES_OF_DEVICE, _NARROW_INCHES_OF_DEVICE = 0.2, 0.15
"""Height of a row: at least as much as its text needs."""

_WIDTH = 10.0


@dataclass(frozen=True)
class TimedBlocks:
    """An iteration to draw: the start, duration, power and mode of each block instance.

    Attributes:
        placement: The devices of the blocks.
        start_ms: Start of each (block, micro-batch).
        duration_ms: Duration of each (block, micro-batch).
        power_w: Power of one GPU in each (block, micro-batch); None to colour blocks by kind.
        mode: Mode name of each block that does not run in the first mode of its decision; None for no
            modes.
    """

    placement: Placement
    start_ms: Mapping[Instance, float]
    duration_ms: Mapping[Instance, float]
    power_w: Mapping[Instance, float] | None = None
    mode: Mapping[Instance, str] | None = None

    @property
    def end_ms(self) -> float:
        """The end of the iteration's last block."""
        return max(start + self.duration_ms[key] for key, start in self.start_ms.items())


def draw_timelines(schedules: Mapping[str, Schedule], width: float = _WIDTH) -> Figure:
    """Draw one timeline per schedule, each below its title, all on one axis of time.

    The width is in inches, `canvas.COLUMN_INCHES` for a column.
    """
    timelines = {title: _timed(schedule) for title, schedule in schedules.items()}
    inches = _NARROW_INCHES_OF_DEVICE if width < NARROW_INCHES else _INCHES_OF_DEVICE
    heights = [
        rows_inches(len(each.placement.lanes), inches) + _INCHES_BESIDES for each in timelines.values()
    ]
    size = width, sum(heights) + _INCHES_OF_LEGEND
    legend: dict[str, Any] = {}
    longest_ms = max(each.end_ms for each in timelines.values())
    with panels_in(list(timelines), size, 1, None, height_ratios=heights) as (figure, grid):
        for axes, each in zip(grid.flat, timelines.values(), strict=True):
            timeline(
                each.placement,
                each.start_ms,
                each.duration_ms,
                axes,
                mode=each.mode,
                legend=False,
            )
            axes.set_xlim(0.0, longest_ms)
            axes.tick_params(axis="y", labelsize=small_points(figure))
            handles = kind_handles(each.placement, (each.mode or {}).values())
            legend |= {str(handle.get_label()): handle for handle in handles}
            if axes is not grid[-1, 0]:
                axes.set_xlabel("")
                axes.tick_params(axis="x", labelbottom=False)
        legend_below(figure, list(legend.values()))
        figure.set_figheight(size[1])
    return figure


def title_of(schedule: Schedule) -> str:
    """Return the title of a schedule: its placement's name, makespan in ms, and bubble rate."""
    makespan = f"{schedule.placement.ms(schedule.makespan):,.6g} ms"
    return f"{schedule.placement.name}: {makespan}, {bubble_rate(schedule):.1%} bubble"


def _timed(schedule: Schedule) -> TimedBlocks:
    """Return a schedule's blocks, their micro-batches numbered through all pipelines if it has several."""
    placement, end_of = schedule.placement, schedule.end_of
    chains = pipelines(placement)
    index = {
        name: i for i, chain in enumerate(chains) for s in chain for name in (s.forward, s.backward, s.weight)
    }
    start_ms, duration_ms, mode = {}, {}, {}
    for start, n, name in schedule.blocks:
        key = name, n * max(len(chains), 1) + index.get(name, 0)
        start_ms[key] = start * placement.tick_ms
        duration_ms[key] = (end_of[name, n] - start) * placement.tick_ms
        if chosen := schedule.mode(name, n):
            mode[key] = chosen
    return TimedBlocks(placement, start_ms, duration_ms, mode=mode)
