"""The timeline of a schedule as a figure. The module does not know how schedules are found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.patches import Patch

from placements import Block, Kind, Placement
from placements.streams import Lane, in_rows, lane_name
from schedsearch.figures.canvas import (
    MIN_POINTS,
    ROW_HEIGHT,
    draw_as_image,
    drawing_on,
    is_narrow,
    label_rows,
    label_time,
    legend_above,
    rows_inches,
)
from schedsearch.schedule import Instance

Color = tuple[float, float, float]
"""Red, green and blue; 0 to 1."""

KIND_COLOR = {
    Kind.F: "#0072B2",
    Kind.B: "#E69F00",
    Kind.I: "#D55E00",
    Kind.W: "#F0E442",
    Kind.R: "#003B5C",
    Kind.O: "#BBBBBB",
}
"""Colours of blocks on one device: the palette of Okabe and Ito, safe for the colour-blind and in grey."""

SHARED_COLOR = KIND_COLOR | dict.fromkeys((Kind.B, Kind.I, Kind.W), "#CC79A7")
SHARED_COLOR |= {Kind.F: "#009E73", Kind.R: "#002B1F", Kind.O: "#444444"}
"""Colours of blocks on several devices."""

KIND_NAME = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.R: "forward again",
    Kind.O: "optimizer step",
}

CLOCK_COLORS = "viridis"

POWER_COLORS = "plasma"

_STRIP = 0.14
"""Height of the strip that shows the kind where the colour shows the clock."""


def timeline(
    placement: Placement,
    start_ms: Mapping[Instance, float],
    duration_ms: Mapping[Instance, float],
    target: Axes | None = None,
    *,
    mode: Mapping[Instance, str] | None = None,
    clock_mhz: Mapping[Instance, float] | None = None,
    power_w: Mapping[Instance, float] | None = None,
    power_range_w: tuple[float, float] | None = None,
    title: str = "",
    legend: bool = True,
) -> Axes:
    """Draw one row per device with its blocks at their times, labelled with the micro-batch in wide blocks.

    A device with several streams has a row for each. The colour is the block's power (as in Perseus, Fig. 1
    and 10) or clock where either is given, and a strip above it the kind; else the colour is the kind, paler
    for odd micro-batches. Blocks in a mode are hatched.

    In SVG and PDF, blocks and their labels are an image where they are very many: the SVG of 320 devices and
    640 micro-batches had 171 MB else.

    Args:
        placement: The devices of the blocks.
        start_ms: For each (block, micro-batch) its start.
        duration_ms: Duration of each (block, micro-batch).
        mode: Mode name of each block that does not run in the first mode of its decision; None for no
            modes.
        target: Axes to draw on; None for a new figure's axes.
        clock_mhz: Clock of each (block, micro-batch); a block without one is coloured by its kind.
        power_w: Power of one device while it runs each (block, micro-batch); instead of `clock_mhz`.
        power_range_w: Powers in W at the ends of the colour scale; the first is a waiting device's power,
            and colours idle time.
        title: Shown above, beside the legend.
        legend: Whether to draw title and legend.

    Returns:
        The axes; their collections with the gid ``blocks`` have one path for each block instance on each
        of its devices.
    """
    with drawing_on(target, (17.0, 1.5 + rows_inches(len(placement.lanes), 0.55))) as axes:
        end_ms = max((start_ms[instance] + duration_ms[instance] for instance in start_ms), default=1.0)
        axes.set_xlim(0.0, end_ms)
        shade, scale = power_w, None
        if power_w is not None:
            scale = _scale_bar(axes, power_range_w or _range(power_w), POWER_COLORS, "power (W)")
        elif clock_mhz is not None:
            shade, scale = clock_mhz, _scale_bar(axes, _range(clock_mhz), CLOCK_COLORS, "clock (MHz)")
        idle = _IDLE
        if scale is not None and power_w is not None and power_range_w is not None:
            idle = scale.to_rgba(np.array(power_range_w[:1]))[0]
        lanes = [placement.lanes[lane] for lane in in_rows(placement.lanes)]
        rows: dict[Lane, list[Instance]] = {lane: [] for lane in lanes}
        for key in sorted(start_ms, key=lambda key: (start_ms[key], key)):
            for lane in placement.lanes_of(placement.by_name[key[0]]):
                rows[placement.lanes[lane]].append(key)
        draw_as_image(axes, sum(map(len, rows.values())))
        for row, here in enumerate(rows.values()):
            spans = [(start_ms[key], duration_ms[key]) for key in here]
            _draw_row(axes, placement, row, here, spans, shade or {}, scale)
            axes.axhspan(row - ROW_HEIGHT / 2, row + ROW_HEIGHT / 2, color=idle, linewidth=0, zorder=0)
            for name, hatch in hatch_of(placement).items():
                bars = [span for key, span in zip(here, spans, strict=True) if (mode or {}).get(key) == name]
                if bars:
                    drawn = axes.broken_barh(bars, (row - ROW_HEIGHT / 2, ROW_HEIGHT), facecolors="none")
                    drawn.set(hatch=hatch, edgecolor=_HATCH_COLOR, alpha=0.45, gid="modes", zorder=1.05)
                    drawn.set_linewidth(0)
        label_rows(axes, [lane_name(lane) for lane in lanes])
        label_time(axes)
        if legend:
            handles = kind_handles(placement, (mode or {}).values())
            legend_above(axes, handles, title)
    return axes


_HATCHES = ("////", "\\\\\\\\", "....", "xxxx", "----", "++++")

_HATCH_COLOR = "#222222"


def hatch_of(placement: Placement) -> dict[str, str]:
    """Return the hatch of each mode that is not the first of its decision, in turn."""
    names = dict.fromkeys(name for decision in placement.decisions for name in decision.names[1:])
    return {name: _HATCHES[i % len(_HATCHES)] for i, name in enumerate(names)}


def _draw_row(
    axes: Axes,
    placement: Placement,
    row: int,
    here: Sequence[Instance],
    spans: Sequence[tuple[float, float]],
    shade: Mapping[Instance, float],
    scale: ScalarMappable | None,
) -> None:
    """Draw the blocks of a row; with a colour scale, add a strip of their kinds above them."""
    kinds = [_kind_color(placement.by_name[name], n if scale is None else 0) for name, n in here]
    colors = kinds
    if scale is not None:
        rgba = np.reshape(scale.to_rgba(np.array([shade.get(key, math.nan) for key in here])), (-1, 4))
        shades = [(float(r), float(g), float(b)) for r, g, b, _ in rgba]
        colors = [of if key in shade else kind for of, key, kind in zip(shades, here, kinds, strict=True)]
    # The layout comes later; labels and colour bar then leave about nine tenths of the figure.
    narrow, (low, high) = is_narrow(axes.figure.figure), axes.get_xlim()
    per_point = (high - low) / (0.9 * axes.figure.figure.get_figwidth() * 72)
    # A block too thin for a white edge keeps its own colour, so that it can still be seen.
    edges = [
        color if duration < 3 * per_point else (1.0, 1.0, 1.0)
        for color, (_, duration) in zip(colors, spans, strict=True)
    ]
    top, strip = row - ROW_HEIGHT / 2, 0.0 if scale is None else _STRIP
    look: dict[str, Any] = {"facecolors": colors, "edgecolors": edges, "linewidths": 0.25 if narrow else 0.6}
    axes.broken_barh(spans, (top + strip, ROW_HEIGHT - strip), **look).set_gid("blocks")
    if scale is not None:
        axes.broken_barh(spans, (top, strip), facecolors=kinds).set_gid("kinds")
    size = MIN_POINTS if narrow else _LABEL_POINTS
    for (_, n), (start, duration), (red, green, blue) in zip(here, spans, colors, strict=True):
        if duration >= (0.65 * size * len(str(n)) + 1.5) * per_point:
            is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
            label = {**_LABEL, "fontsize": size, "color": "#000000" if is_light else "#FFFFFF"}
            axes.text(start + duration / 2, row + strip / 2, str(n), **label)


_IDLE: Any = "#F0F0F0"
_LABEL: dict[str, Any] = {"ha": "center", "va": "center", "clip_on": True, "zorder": 1.1}
_LABEL_POINTS = 8


def _kind_color(block: Block, micro_batch: int) -> Color:
    """Return the colour of a block's kind, paler for odd micro-batches so that neighbours differ."""
    palette = KIND_COLOR if len(block.devices) == 1 else SHARED_COLOR
    paler = 0.42 if micro_batch % 2 else 0.0
    red, green, blue = (channel + (1 - channel) * paler for channel in to_rgb(palette[block.kind]))
    return red, green, blue


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


def kind_handles(placement: Placement, modes: Iterable[str]) -> list[Patch]:
    """Return a legend entry for each kind of block that the placement has, and each mode that is drawn."""
    present = {(len(block.devices) > 1, block.kind): block for block in placement.blocks}
    order = [(shared, kind) for shared in (False, True) for kind in Kind if (shared, kind) in present]
    handles = [
        Patch(
            facecolor=_kind_color(present[shared, kind], 0),
            label=KIND_NAME[kind] + (" on several devices" if shared else ""),
        )
        for shared, kind in order
    ]
    drawn = set(modes)
    handles += [
        Patch(facecolor="white", edgecolor=_HATCH_COLOR, alpha=0.6, hatch=hatch, label=name)
        for name, hatch in hatch_of(placement).items()
        if name in drawn
    ]
    return handles
