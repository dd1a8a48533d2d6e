"""The memory of a schedule over time as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from placements import Placement
from schedsearch.figures.canvas import (
    ROW_HEIGHT,
    draw_as_image,
    drawing_on,
    label_rows,
    label_time,
    legend_above,
    rows_inches,
    small_points,
)
from schedsearch.metrics import memory_over_time, peak_memory
from schedsearch.schedule import Instance, Schedule

_HELD = "#0072B2"
_CAPACITY_LINE: dict[str, Any] = {"color": "#D55E00", "linewidth": 1.2, "linestyle": "--", "zorder": 1.15}


def memory(
    schedule: Schedule,
    target: Axes | str | Path | None = None,
    *,
    start_ms: Mapping[Instance, float] | None = None,
    end_ms: float | None = None,
    unit: str = "",
    title: str = "",
) -> Axes:
    """Draw what each device holds over time as steps, one row per device, below the line of its capacity.

    All rows have one scale, from 0 to the most that any device holds or could hold.

    Args:
        schedule: Its orders and memory; without `start_ms` also its times.
        target: Axes to draw on, or a PNG file to write; None for a new figure.
        start_ms: Start of each (block, micro-batch), when it is not that of the schedule.
        end_ms: End of the iteration, when it is not that of the schedule.
        unit: Unit of `Block.memory`.
        title: Shown above.

    Returns:
        What was drawn on.
    """
    placement = schedule.placement
    with drawing_on(target, (17.0, 1.5 + rows_inches(placement.num_devices, 0.8))) as axes:
        starts = start_ms if start_ms is not None else _starts_ms(schedule)
        end_ms = schedule.makespan * placement.tick_ms if end_ms is None else end_ms
        axes.set_xlim(0.0, end_ms)
        peaks = peak_memory(schedule).tolist()
        top = max(1, *peaks, *(placement.memory or ()))
        draw_as_image(
            axes, 2 * sum(len(block.devices) for block in placement.blocks) * schedule.num_micro_batches
        )
        for device, peak in enumerate(peaks):
            _draw_memory(axes, schedule, device, peak, starts, end_ms, unit, top)
        axes.set_ylabel(f"memory, each row\n0 to {top:,} {unit or 'units'}")
        label_rows(axes, placement.num_devices)
        label_time(axes)
        legend_above(axes, _memory_handles(placement), title)
    return axes


def _starts_ms(schedule: Schedule) -> dict[Instance, float]:
    tick_ms = schedule.placement.tick_ms
    return {instance: start * tick_ms for instance, start in schedule.start_of.items()}


def _draw_memory(
    axes: Axes,
    schedule: Schedule,
    device: int,
    peak: int,
    start_ms: Mapping[Instance, float],
    end_ms: float,
    unit: str,
    top: int,
) -> None:
    """Draw a device's memory as a row whose height stands for `top` units."""
    capacity = schedule.placement.memory[device] if schedule.placement.memory is not None else None
    _, held = memory_over_time(schedule, device)
    static = schedule.placement.static[device]
    times = [0.0, *(start_ms[instance] for instance in schedule.order(device)), end_ms]
    floor = device + ROW_HEIGHT / 2
    levels = floor - ROW_HEIGHT * np.array([static, *held, held[-1] if len(held) else static]) / top
    axes.fill_between(times, levels, floor, step="post", color=_HELD, alpha=0.35, linewidth=0)
    axes.step(times, levels, where="post", color=_HELD, linewidth=1.2, zorder=1.1)
    text = f"peak {peak:,} {unit}".rstrip()
    if capacity is not None:
        axes.axhline(floor - ROW_HEIGHT * capacity / top, **_CAPACITY_LINE)
        text += f"\nof {capacity:,}" + (f" ({peak / capacity:.0%})" if capacity else "")
    axes.text(
        1.006,
        device,
        text,
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=small_points(axes.figure.figure),
    )


def _memory_handles(placement: Placement) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(facecolor=_HELD, alpha=0.5, label="memory held")]
    if placement.memory is not None:
        handles.append(Line2D([], [], **_CAPACITY_LINE, label="capacity"))
    return handles
