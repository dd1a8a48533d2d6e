"""The memory of layouts as a figure: what a GPU of each stage holds, stacked by part, and what it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from schedsearch.figures.bars import look
from schedsearch.figures.canvas import ROW_HEIGHT, STYLE, Figure, draw_grid, legend_below, rows_inches

_LEAST_GIB = 0.005
"""Parts that are smaller everywhere are not in the legend."""

Rows = Mapping[str, Mapping[str, float]]
"""Rows by name, each with its GiB by part."""


def draw_layout_memory(panels: Mapping[str, Rows], capacity_gib: float, reserve_gib: float) -> Figure:
    """Draw a panel for each layout, in it a row for each stage, the first on top.

    Args:
        panels: Rows by the title of their panel; parts in the order in which they are stacked.
        capacity_gib: Memory of a GPU.
        reserve_gib: How much of it is to stay free.
    """
    rows = [row for panel in panels.values() for row in panel.values()]
    parts = [part for part in dict.fromkeys(part for row in rows for part in row) if _is_seen(rows, part)]
    counts = [len(panel) for panel in panels.values()]
    with mpl.rc_context(STYLE):
        figure = Figure(9.0, 1.3 + sum(0.7 + rows_inches(count, 0.3) for count in counts))
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=counts)[:, 0]
        for axes, (title, panel) in zip(grid, panels.items(), strict=True):
            _draw_rows(axes, panel, parts)
            axes.set_title(title, loc="left")
            axes.axvline(capacity_gib - reserve_gib, **_MAY_USE)
            axes.axvline(capacity_gib, **_CAPACITY)
        grid[-1].set_xlabel("GiB of one GPU")
        lines = [Line2D([], [], **_CAPACITY, label=f"memory of a GPU, {capacity_gib:.4g} GiB")]
        if reserve_gib:
            used = f"without the reserve of {reserve_gib:.4g} GiB"
            lines.insert(0, Line2D([], [], **_MAY_USE, label=used))
        legend_below(figure, [*(Patch(label=part, **look(parts, part)) for part in parts), *lines])
    return figure


_CAPACITY: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": "-"}
_MAY_USE: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": "--"}


def _is_seen(rows: Sequence[Mapping[str, float]], part: str) -> bool:
    return any(row.get(part, 0.0) >= _LEAST_GIB for row in rows)


def _draw_rows(axes: Axes, rows: Rows, parts: Sequence[str]) -> None:
    left = [0.0] * len(rows)
    for part in parts:
        sizes = [row.get(part, 0.0) for row in rows.values()]
        axes.barh(range(len(rows)), sizes, ROW_HEIGHT, left=left, **look(parts, part))
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    draw_grid(axes, "x")
