"""The memory of a schedule over time as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

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
from schedsearch.metrics import memory_over_time, needed_over_time, peak_host_memory, peak_memory
from schedsearch.schedule import Instance, Schedule

_HELD = "#0072B2"
_NEEDED = "#F4D9B0"
_CAPACITY_LINE: dict[str, Any] = {"color": "#D55E00", "linewidth": 1.2, "linestyle": "--", "zorder": 1.15}


def memory(
    schedule: Schedule,
    target: Axes | None = None,
    *,
    start_ms: Mapping[Instance, float] | None = None,
    end_ms: float | None = None,
    title: str = "",
) -> Axes:
    """Draw the memory of each device over time as steps, one row per device, with its capacity as a line.

    Where blocks hold memory of hosts, the host of a device has a row below it. Where modes are chosen, or
    devices have several streams, memory needed only while blocks run is drawn too. All rows have one scale,
    from 0 to the most that any device holds or could hold, or any host holds.

    Args:
        schedule: Its orders and memory; without `start_ms` also its times.
        target: Axes to draw on; None for a new figure's axes.
        start_ms: Start of each (block, micro-batch); None for the schedule's.
        end_ms: End of the iteration; None for the schedule's.
        title: Text above the axes.
    """
    placement, rows = schedule.placement, list(_rows(schedule))
    tick_ms, unit_mib = placement.tick_ms, placement.memory_unit_mib or 1.0
    unit = "MiB" if placement.memory_unit_mib else "units"
    with drawing_on(target, (17.0, 1.5 + rows_inches(len(rows), 0.8))) as axes:
        end_ms = schedule.makespan * tick_ms if end_ms is None else end_ms
        at_ms = start_ms or {key: tick * tick_ms for key, tick in schedule.start_of.items()}
        axes.set_xlim(0.0, end_ms)
        top = max(unit_mib, *(row.peak for row in rows), unit_mib * max(placement.memory or (0,)))
        num_steps = sum(len(block.devices) for block in placement.blocks) * schedule.num_micro_batches
        draw_as_image(axes, 2 * num_steps)
        is_needed = not placement.is_plain and any(
            schedule.block(name, n).transient for _, n, name in schedule.blocks
        )
        for number, row in enumerate(rows):
            if is_needed and row.is_device:
                _draw_needed(axes, number, schedule, row.device, top / unit_mib)
            starts = [at_ms[key] for key in schedule.order(row.device)]
            _draw_memory(axes, number, row, [0.0, *starts, end_ms], unit, top)
        axes.set_ylabel(f"memory, each row\n0 to {top:,.0f} {unit}", loc="top")
        names = [f"{row.device}" + " host" * (not row.is_device) for row in rows]
        label_rows(axes, names, 0.35)  # two lines of text
        label_time(axes)
        handles: list[Patch | Line2D] = [Patch(facecolor=_HELD, alpha=0.5, label="memory held")]
        if is_needed:
            handles.append(Patch(facecolor=_NEEDED, label="needed besides while a block runs"))
        if any(row.capacity is not None and row.capacity <= top for row in rows):
            handles.append(Line2D([], [], **_CAPACITY_LINE, label="capacity"))
        legend_above(axes, handles, title)
    return axes


class _Row(NamedTuple):
    """The memory of a device, or of its host: the level at the begin, and from the start of each block on."""

    device: int
    is_device: bool
    levels: list[float]
    peak: float
    capacity: float | None


def _rows(schedule: Schedule) -> Iterator[_Row]:
    """Yield the memories in the order in which they are drawn, in MiB if the unit is known."""
    placement, mib = schedule.placement, schedule.placement.memory_unit_mib or 1.0
    on_devices, on_hosts = peak_memory(schedule).tolist(), peak_host_memory(schedule).tolist()
    for device in range(placement.num_devices):
        held = [placement.static[device], *memory_over_time(schedule, device)[1].tolist()]
        capacity = None if placement.memory is None else placement.memory[device] * mib
        yield _Row(device, True, [units * mib for units in held], on_devices[device] * mib, capacity)
        if on_hosts[device]:
            held = [0, *memory_over_time(schedule, device, on_host=True)[1].tolist()]
            capacity = None if placement.host_memory is None else placement.host_memory[device] * mib
            yield _Row(device, False, [units * mib for units in held], on_hosts[device] * mib, capacity)


def _draw_memory(axes: Axes, number: int, row: _Row, times: Sequence[float], unit: str, top: float) -> None:
    """Draw a memory as a row whose height stands for `top`, from the first of some times to the last.

    A capacity above that has no line.
    """
    floor = number + ROW_HEIGHT / 2
    is_last = np.diff(times, append=np.inf) > 0  # of blocks of several streams that start together
    is_last[0] = is_last[-2:] = True
    ends = np.array(times)[is_last]
    levels = floor - ROW_HEIGHT * np.array([*row.levels, row.levels[-1]])[is_last] / top
    axes.fill_between(ends, levels, floor, step="post", color=_HELD, alpha=0.35, linewidth=0)
    axes.step(ends, levels, where="post", color=_HELD, linewidth=1.2, zorder=1.1)
    text = f"peak {row.peak:,.0f} {unit}"
    if row.capacity is not None:
        text += f"\nof {row.capacity:,.0f}" + (f" ({row.peak / row.capacity:.0%})" if row.capacity else "")
        if row.capacity <= top:
            axes.axhline(floor - ROW_HEIGHT * row.capacity / top, **_CAPACITY_LINE)
    how: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
    axes.text(1.006, number, text, fontsize=small_points(axes.figure.figure), **how)


def _draw_needed(axes: Axes, number: int, schedule: Schedule, device: int, top: float) -> None:
    """Draw the transient memory of a device's running blocks, on top of the memory held."""
    ticks, needed = needed_over_time(schedule, device)
    starts, held = memory_over_time(schedule, device)
    if len(ticks):
        below = held[np.searchsorted(starts, ticks, side="right") - 1]
        low, high = (number + ROW_HEIGHT / 2 - ROW_HEIGHT * units / top for units in (needed, below))
        times = ticks * schedule.placement.tick_ms
        axes.fill_between(times, low, high, step="post", color=_NEEDED, linewidth=0)
