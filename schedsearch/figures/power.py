"""Timelines above each other whose colours are powers, all on one scale of power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib as mpl

from placements import Placement
from schedsearch.figures.canvas import Figure, legend_below, rows_inches, style
from schedsearch.figures.timeline import kind_handles, timeline
from schedsearch.schedule import Instance

_INCHES_OF_DEVICE, _INCHES_BESIDES, _INCHES_OF_LEGEND = 0.28, 0.5, 0.45


@dataclass(frozen=True)
class PoweredTimeline:
    """An iteration at some clocks.

    Attributes:
        placement: The devices of the blocks.
        start_ms: Of each (block, micro-batch).
        duration_ms: Likewise, how long it takes.
        power_w: Likewise, the power of one GPU.
    """

    placement: Placement
    start_ms: Mapping[Instance, float]
    duration_ms: Mapping[Instance, float]
    power_w: Mapping[Instance, float]

    @property
    def end_ms(self) -> float:
        """The end of its last block."""
        return max(start + self.duration_ms[key] for key, start in self.start_ms.items())


def draw_power(timelines: Mapping[str, PoweredTimeline], blocking_power_w: float) -> Figure:
    """Draw timelines by the titles that stand above them; each has an axis of time as long as itself.

    Args:
        timelines: At least one.
        blocking_power_w: Power of a GPU that waits: the colour where nothing runs.
    """
    rows = [each.placement.num_devices for each in timelines.values()]
    heights = [rows_inches(number, _INCHES_OF_DEVICE) + _INCHES_BESIDES for number in rows]
    figure = Figure(10.0, sum(heights) + _INCHES_OF_LEGEND)
    most_w = max(power for each in timelines.values() for power in each.power_w.values())
    with mpl.rc_context(style(figure)):
        panels = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, each) in zip(panels, timelines.items(), strict=True):
            timeline(
                each.placement,
                each.start_ms,
                each.duration_ms,
                axes,
                power_w=each.power_w,
                power_range_w=(blocking_power_w, most_w),
                legend=False,
            )
            axes.set_xlim(0.0, each.end_ms)
            axes.set_title(title, loc="left")
            if axes is not panels[-1]:
                axes.set_xlabel("")
        legend_below(figure, list(kind_handles(next(iter(timelines.values())).placement)))
    return figure
