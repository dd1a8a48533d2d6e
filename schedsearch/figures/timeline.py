"""Figures over time: the timeline of a schedule, and its memory. It does not know how schedules are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import StrMethodFormatter

from placements import Block, Kind, Placement
from schedsearch.figures.canvas import drawing_on
from schedsearch.metrics import memory_over_time, peak_memory
from schedsearch.schedule import Instance, Schedule

Color = tuple[float, float, float]
"""Red, green and blue; 0 to 1."""

KIND_COLOR = {Kind.F: "#0072B2", Kind.B: "#E69F00", Kind.I: "#D55E00", Kind.W: "#F0E442", Kind.O: "#999999"}
"""Colours of blocks on one device, from the palette of Okabe and Ito, safe for the colour-blind."""

SHARED_COLOR = {Kind.F: "#009E73", Kind.B: "#CC79A7", Kind.I: "#CC79A7", Kind.W: "#CC79A7", Kind.O: "#666666"}
"""Colours of blocks on several devices."""

KIND_NAME = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.O: "optimizer step",
}

CLOCK_COLORS = "viridis"

POWER_COLORS = "plasma"

_ROW = 0.86
"""Height of a device's row; the rows are 1 apart."""

_STRIP = 0.14
"""Height of the strip that shows the kind where the colour shows the clock."""


def timeline(
    placement: Placement,
    start_ms: Mapping[Instance, float],
    duration_ms: Mapping[Instance, float],
    target: Axes | str | Path | None = None,
    *,
    clock_mhz: Mapping[Instance, float] | None = None,
    power_w: Mapping[Instance, float] | None = None,
    power_range_w: tuple[float, float] | None = None,
    repetend_ms: Sequence[float] = (),
    title: str = "",
) -> Axes:
    """Draw one row per device with its blocks at their times, labelled with the micro-batch where it fits.

    The colour is the block's power (as in Perseus, Fig. 1 and 10) or clock where either is given, and a strip
    above it the kind; else the colour is the kind, paler for odd micro-batches.

    Args:
        placement: The devices of the blocks.
        start_ms: For each (block, micro-batch) its start.
        duration_ms: Likewise, how long it takes.
        target: Axes to draw on, or a PNG file to write; None for a new figure.
        clock_mhz: Likewise, its clock.
        power_w: Likewise, the power of one device while it runs; instead of `clock_mhz`.
        power_range_w: Powers at the ends of the colours; the first is that of waiting, drawn where nothing
            runs.
        repetend_ms: Times of boundaries to mark, such as where the steady state begins and ends.
        title: Shown above.

    Returns:
        What was drawn on; its collections with the gid ``blocks`` have one path for each block instance
        on each of its devices.
    """
    with drawing_on(target, (17.0, 1.5 + 0.55 * placement.num_devices)) as axes:
        end_ms = max((start_ms[instance] + duration_ms[instance] for instance in start_ms), default=1.0)
        axes.set_xlim(0.0, end_ms)
        shade, scale, idle = _shades(axes, clock_mhz, power_w, power_range_w)
        for device in range(placement.num_devices):
            _draw_row(axes, placement, device, start_ms, duration_ms, shade, scale, idle)
        for boundary in repetend_ms:
            axes.axvline(boundary, **_BOUNDARY)
        _device_rows(axes, placement.num_devices)
        _time_axis(axes)
        _legend_above(axes, _kind_handles(placement, repetend=bool(repetend_ms)), title)
    return axes


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

    Args:
        schedule: Its orders and memory; without `start_ms` also its times.
        target: Axes to draw on, or a PNG file to write; None for a new figure.
        start_ms: Start of each (block, micro-batch), when it is not that of the schedule.
        end_ms: End of the iteration, when it is not that of the schedule.
        unit: Of `Block.memory`.
        title: Shown above.

    Returns:
        What was drawn on.
    """
    placement = schedule.placement
    with drawing_on(target, (17.0, 1.5 + 0.8 * placement.num_devices)) as axes:
        starts = start_ms if start_ms is not None else _starts_ms(schedule)
        end_ms = schedule.makespan * placement.tick_ms if end_ms is None else end_ms
        axes.set_xlim(0.0, end_ms)
        for device in range(placement.num_devices):
            _draw_memory(axes, schedule, device, starts, end_ms, unit)
        _device_rows(axes, placement.num_devices)
        _time_axis(axes)
        _legend_above(axes, _memory_handles(placement), title)
    return axes


_BOUNDARY: dict[str, Any] = {"color": "#000000", "linestyle": (0, (4, 3)), "linewidth": 1.1, "zorder": 4}


def _draw_row(
    axes: Axes,
    placement: Placement,
    device: int,
    start_ms: Mapping[Instance, float],
    duration_ms: Mapping[Instance, float],
    shade: Mapping[Instance, float] | None,
    scale: ScalarMappable | None,
    idle: Any,
) -> None:
    """Draw a device's blocks, and where these are shaded the strip of their kinds."""
    here = {block.name: block for block in placement.on(device)}
    instances = sorted((start, key) for key, start in start_ms.items() if key[0] in here)
    kinds = [_kind_color(here[name], n if scale is None else 0) for _, (name, n) in instances]
    colors = kinds
    if shade is not None and scale is not None:
        rgba = scale.to_rgba(np.array([shade[key] for _, key in instances], dtype=float))
        colors = [(float(r), float(g), float(b)) for r, g, b, _ in np.reshape(rgba, (-1, 4))]
    spans = [(start, duration_ms[key]) for start, key in instances]
    per_point = _ms_per_point(axes)
    # A block too thin for a white edge keeps its own colour, so that it can still be seen.
    thin = [duration < 3 * per_point for _, duration in spans]
    edges = [color if is_thin else (1.0, 1.0, 1.0) for color, is_thin in zip(colors, thin, strict=True)]
    height = _ROW if scale is None else _ROW - _STRIP
    axes.broken_barh(
        spans,
        (device - _ROW / 2 + _ROW - height, height),
        facecolors=colors,
        edgecolors=edges,
        linewidths=0.6,
    ).set_gid("blocks")
    if scale is not None:
        axes.broken_barh(spans, (device - _ROW / 2, _STRIP), facecolors=kinds).set_gid("kinds")
    axes.axhspan(device - _ROW / 2, device + _ROW / 2, color=idle, linewidth=0, zorder=0)
    middle = device + (_ROW - height) / 2
    for (start, (_, n)), (_, duration), color in zip(instances, spans, colors, strict=True):
        if duration >= (5.2 * len(str(n)) + 1.5) * per_point:
            axes.text(start + duration / 2, middle, str(n), **_LABEL, color=_readable_on(color))


_IDLE = "#F0F0F0"
_LABEL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "clip_on": True}


def _ms_per_point(axes: Axes) -> float:
    """Return the milliseconds that a typographic point of the axes' width stands for, about.

    The layout comes later; labels and colour bar then leave about nine tenths of the figure.
    """
    figure = axes.figure.figure
    low, high = axes.get_xlim()
    return float((high - low) / (0.9 * figure.get_figwidth() * 72))


def _kind_color(block: Block, micro_batch: int) -> Color:
    """Return the colour of a block's kind, paler for odd micro-batches so that neighbours differ."""
    palette = KIND_COLOR if len(block.devices) == 1 else SHARED_COLOR
    paler = 0.42 if micro_batch % 2 else 0.0
    red, green, blue = (channel + (1 - channel) * paler for channel in to_rgb(palette[block.kind]))
    return red, green, blue


def _readable_on(color: Color) -> str:
    """Return black or white, whichever stands out."""
    red, green, blue = color
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#FFFFFF"


def _shades(
    axes: Axes,
    clock_mhz: Mapping[Instance, float] | None,
    power_w: Mapping[Instance, float] | None,
    power_range_w: tuple[float, float] | None,
) -> tuple[Mapping[Instance, float] | None, ScalarMappable | None, Any]:
    """Return what shades the blocks, its colours, and the colour of waiting."""
    if power_w is not None:
        scale = _scale_bar(axes, power_range_w or _range(power_w), POWER_COLORS, "power (W)")
        return (
            power_w,
            scale,
            _IDLE if power_range_w is None else scale.to_rgba(np.array([power_range_w[0]]))[0],
        )
    if clock_mhz is not None:
        return clock_mhz, _scale_bar(axes, _range(clock_mhz), CLOCK_COLORS, "clock (MHz)"), _IDLE
    return None, None, _IDLE


def _range(shade: Mapping[Instance, float]) -> tuple[float, float]:
    return min(shade.values(), default=0.0), max(shade.values(), default=1.0)


def _scale_bar(axes: Axes, ends: tuple[float, float], colors: str, label: str) -> ScalarMappable:
    """Return the colours between two values, with a bar beside the axes."""
    lowest, highest = ends
    margin = 0.5 if lowest == highest else 0.0
    scale = ScalarMappable(Normalize(lowest - margin, highest + margin), colors)
    figure = axes.figure.figure
    bar = figure.colorbar(scale, ax=axes, label=label, pad=0.01, fraction=0.03, aspect=14, format="%d")
    if margin:
        bar.set_ticks([lowest])
    return scale


def _kind_handles(placement: Placement, repetend: bool) -> list[Patch | Line2D]:
    """Return a legend entry for each kind of block that the placement has."""
    present = {(len(block.devices) > 1, block.kind): block for block in placement.blocks}
    order = [(shared, kind) for shared in (False, True) for kind in Kind if (shared, kind) in present]
    handles: list[Patch | Line2D] = [
        Patch(
            facecolor=_kind_color(present[shared, kind], 0),
            label=KIND_NAME[kind] + (" on several devices" if shared else ""),
        )
        for shared, kind in order
    ]
    if repetend:
        handles.append(Line2D([], [], label="repetend boundary", **_BOUNDARY))
    return handles


def _starts_ms(schedule: Schedule) -> dict[Instance, float]:
    tick_ms = schedule.placement.tick_ms
    return {instance: start * tick_ms for instance, start in schedule.start_of.items()}


def _draw_memory(
    axes: Axes,
    schedule: Schedule,
    device: int,
    start_ms: Mapping[Instance, float],
    end_ms: float,
    unit: str,
) -> None:
    """Draw a device's memory as a row whose height is its capacity, or its peak where that is more."""
    capacity = schedule.placement.memory[device] if schedule.placement.memory is not None else None
    _, held = memory_over_time(schedule, device)
    peak, static = int(peak_memory(schedule)[device]), schedule.placement.static[device]
    top = max(peak, capacity or 0, 1)
    times = [0.0, *(start_ms[instance] for instance in schedule.order(device)), end_ms]
    floor = device + _ROW / 2
    levels = floor - _ROW * np.array([static, *held, held[-1] if len(held) else static]) / top
    axes.fill_between(times, levels, floor, step="post", color=_HELD, alpha=0.35, linewidth=0)
    axes.step(times, levels, where="post", color=_HELD, linewidth=1.2)
    text = f"peak {peak:,} {unit}".rstrip()
    if capacity is not None:
        axes.axhline(floor - _ROW * capacity / top, color=_CAPACITY, linewidth=1.6, linestyle="--")
        text += f"\nof {capacity:,}" + (f" ({peak / capacity:.0%})" if capacity else "")
    axes.text(1.006, device, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9)


_HELD, _CAPACITY = "#0072B2", "#D55E00"


def _memory_handles(placement: Placement) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(facecolor=_HELD, alpha=0.5, label="memory held")]
    if placement.memory is not None:
        handles.append(Line2D([], [], color=_CAPACITY, linewidth=1.6, linestyle="--", label="capacity"))
    return handles


def _device_rows(axes: Axes, num_devices: int) -> None:
    """Label the rows, the first device on top."""
    axes.set_ylim(num_devices - 0.45, -0.55)
    axes.set_yticks(range(num_devices), [f"device {device}" for device in range(num_devices)])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _time_axis(axes: Axes) -> None:
    axes.set_xlabel("time (ms)")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def _legend_above(axes: Axes, handles: Sequence[Patch | Line2D], title: str) -> None:
    """Put the title above the axes on the left and the legend on the right."""
    axes.set_title(title, loc="left")
    axes.legend(
        handles=list(handles),
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(handles),
        frameon=False,
        borderaxespad=0.2,
        columnspacing=1.4,
    )
