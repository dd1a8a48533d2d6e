"""Timelines of several schedules above each other, on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
from matplotlib.figure import Figure

from schedsearch.baselines.structure import pipelines
from schedsearch.figures.canvas import STYLE
from schedsearch.figures.timeline import timeline
from schedsearch.schedule import Instance, Schedule

_INCHES_OF_DEVICE, _INCHES_BESIDES = 0.2, 0.55
_WIDTH = 10.0


def draw_timelines(schedules: Mapping[str, Schedule]) -> Figure:
    """Draw one timeline for each schedule, by the title that stands above it; the legend is the first's.

    Args:
        schedules: At least one.
    """
    rows = [schedule.placement.num_devices for schedule in schedules.values()]
    heights = [_INCHES_OF_DEVICE * number + _INCHES_BESIDES for number in rows]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
        panels = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
        longest = max(_end_ms(schedule) for schedule in schedules.values())
        for axes, (title, schedule) in zip(panels, schedules.items(), strict=True):
            _draw(axes, schedule, title)
            axes.set_xlim(0.0, longest)
            axes.tick_params(axis="y", labelsize=6)
            if axes is not panels[-1]:
                axes.set_xlabel("")
                axes.tick_params(axis="x", labelbottom=False)
    return figure


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


def _draw(axes: mpl.axes.Axes, schedule: Schedule, title: str) -> None:
    placement = schedule.placement
    sample = _sample_of(schedule)
    start_ms = {sample[key]: start * placement.tick_ms for key, start in schedule.start_of.items()}
    duration_ms = {key: placement.by_name[key[0]].time * placement.tick_ms for key in start_ms}
    timeline(placement, start_ms, duration_ms, axes, title=title)
