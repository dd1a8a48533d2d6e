"""The memory of layouts as a figure: what a GPU of each stage holds, stacked by part, and what it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from schedsearch.figures.bars import look
from schedsearch.figures.canvas import ROW_HEIGHT, STYLE, Figure, draw_grid, legend_below, rows_inches

_LEAST_GIB = 0.005
"""Parts that are smaller everywhere are not in the legend."""

_CAPACITY: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": "-"}
_MAY_USE: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": "--"}
_MEASURED: dict[str, Any] = {"color": "black", "marker": "D", "markersize": 5, "linestyle": "none"}


@dataclass(frozen=True)
class MemoryPanel:
    """One set of axes.

    Attributes:
        title: Shown above.
        rows: GiB by part of each row by its name; parts in the order in which they are stacked.
        capacity_gib: Memory of a GPU.
        reserve_gib: How much of it is to stay free.
        measured_gib: What was measured, by the name of a row.
    """

    title: str
    rows: Mapping[str, Mapping[str, float]]
    capacity_gib: float
    reserve_gib: float = 0.0
    measured_gib: Mapping[str, float] = field(default_factory=dict)


def draw_layout_memory(panels: Sequence[MemoryPanel]) -> Figure:
    """Draw panels above each other, with one legend below them all; the first row of each is on top.

    Args:
        panels: Panels; at least one.
    """
    rows = [row for panel in panels for row in panel.rows.values()]
    parts = [part for part in dict.fromkeys(part for row in rows for part in row) if _is_seen(rows, part)]
    counts = [len(panel.rows) for panel in panels]
    with mpl.rc_context(STYLE):
        figure = Figure(9.0, 1.3 + sum(0.7 + rows_inches(count, 0.3) for count in counts))
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=counts)[:, 0]
        for axes, panel in zip(grid, panels, strict=True):
            _draw_panel(axes, panel, parts)
        grid[-1].set_xlabel("GiB of one GPU")
        legend_below(figure, [*(Patch(label=part, **look(parts, part)) for part in parts), *_lines(panels)])
    return figure


def _is_seen(rows: Sequence[Mapping[str, float]], part: str) -> bool:
    return any(row.get(part, 0.0) >= _LEAST_GIB for row in rows)


def _lines(panels: Sequence[MemoryPanel]) -> list[Line2D]:
    """Return the legend of what is not a part."""
    capacities, reserves = (
        " and ".join(f"{each:.4g}" for each in sorted(set(values)))
        for values in ([each.capacity_gib for each in panels], [each.reserve_gib for each in panels])
    )
    lines = [Line2D([], [], **_CAPACITY, label=f"memory of a GPU, {capacities} GiB")]
    if any(each.reserve_gib for each in panels):
        lines.insert(0, Line2D([], [], **_MAY_USE, label=f"without the reserve of {reserves} GiB"))
    if any(each.measured_gib for each in panels):
        lines.append(Line2D([], [], **_MEASURED, label="measured"))
    return lines


def _draw_panel(axes: Axes, panel: MemoryPanel, parts: Sequence[str]) -> None:
    left = [0.0] * len(panel.rows)
    for part in parts:
        sizes = [row.get(part, 0.0) for row in panel.rows.values()]
        axes.barh(range(len(left)), sizes, ROW_HEIGHT, left=left, **look(parts, part))
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    measured = [
        (panel.measured_gib[name], i) for i, name in enumerate(panel.rows) if name in panel.measured_gib
    ]
    if measured:
        axes.plot(*zip(*measured, strict=True), **_MEASURED)
    if panel.reserve_gib:
        axes.axvline(panel.capacity_gib - panel.reserve_gib, **_MAY_USE)
    axes.axvline(panel.capacity_gib, **_CAPACITY)
    axes.set_yticks(range(len(left)), list(panel.rows))
    axes.set_ylim(len(left) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.set_title(panel.title, loc="left")
    draw_grid(axes, "x")
