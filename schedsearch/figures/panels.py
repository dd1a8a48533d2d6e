"""Figures of curves side by side: one panel per case, with a value and a proved lower bound per point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from schedsearch.figures.canvas import (
    NARROW_INCHES,
    Figure,
    curve_look,
    label_grid,
    legend_below,
    panels_in,
)


class CurvePoint(NamedTuple):
    """A point of a curve.

    Attributes:
        place: Along the axis.
        value: Value of the best answer found.
        least: Lower bound of the value where it is not proved to be the least, else None.
    """

    place: float
    value: float
    least: float | None = None


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        title: Shown above.
        curves: Points by increasing place, by the name of the curve.
    """

    title: str
    curves: Mapping[str, Sequence[CurvePoint]]


def draw_panels(
    panels: Sequence[Panel],
    x_label: str,
    y_label: str,
    title: str,
    *,
    width: float | None = None,
) -> Figure:
    """Draw one or more panels that share both axes, with one legend below them all.

    The title stands above, but not in a column of a paper, which has a caption. The width is in inches,
    `canvas.COLUMN_INCHES` for a column, None for as wide as the panels need.
    """
    narrow = width is not None and width < NARROW_INCHES
    columns = min(2 if narrow else 3, len(panels))
    rows = math.ceil(len(panels) / columns)
    height = 1.9 + 2.9 * rows if not narrow else 0.8 + 1.3 * rows if columns > 1 else 2.2
    inches = width or max(7.5, 1.2 + 3.9 * columns), height
    sizes: dict[str, Any] = {"ms": 2.5, "lw": 0.8} if narrow else {"ms": 5.0, "lw": 1.2}
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    looks = {name: {**curve_look(i), **sizes} for i, name in enumerate(names)}
    titles = [panel.title for panel in panels]
    with panels_in(titles, inches, columns, sharex=True, sharey=True) as (figure, grid):
        for axes, panel in zip(grid.flat, panels, strict=False):
            axes.set_title(panel.title, loc="left", fontsize=6.5 if narrow else 10, fontweight="bold")
            axes.yaxis.set_tick_params(labelleft=True)
            for name, curve in panel.curves.items():
                _draw_curve(axes, name, curve, looks[name])
        label_grid(grid, len(panels), x_label, y_label)
        num_rows = legend_below(figure, [Line2D([], [], label=name, **looks[name]) for name in names], 2)
        figure.set_figheight(height + _INCHES_OF_ENTRY * max(num_rows - _ENTRIES_INSIDE, 0))
        if not narrow:
            figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


_INCHES_OF_ENTRY, _ENTRIES_INSIDE = 0.19, 4
"""Height that each row of the legend adds, and rows for which there is room without."""


def _draw_curve(axes: Axes, name: str, curve: Sequence[CurvePoint], look: dict[str, Any]) -> None:
    """Draw a curve; an unproved point is hollow, with a whisker down to its lower bound."""
    axes.plot(
        [one.place for one in curve], [one.value for one in curve], label=name, **{**look, "marker": ""}
    )
    for place, value, least in curve:
        if least is not None:
            axes.plot([place, place], [least, value], color=look["color"], lw=1.1, marker="")
            axes.plot([place], [least], color=look["color"], marker="_", ms=7)
        fill = look["color"] if least is None else "white"
        axes.plot([place], [value], zorder=4, markerfacecolor=fill, **look)
