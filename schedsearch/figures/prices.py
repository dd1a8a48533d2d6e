"""Prices over time: a panel per thing that has a price, a step line per place where it is sold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from schedsearch.figures.canvas import Figure, is_narrow, label_grid, legend_below, style

_COLORS = ("#E69F00", "#0072B2", "#CC79A7", "#009E73", "#D55E00", "#56B4E9", "#000000")
"""Colours of the lines in order, from the palette of Okabe and Ito."""

_DASHES: Sequence[Any] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (6, 1, 1, 1)))
"""Marks of the lines in order, for readers who see no colours."""


@dataclass(frozen=True)
class PricePanel:
    """One set of axes.

    Attributes:
        title: Shown above.
        curves: Times in days, rising, and the price from each on, by the name of the line.
    """

    title: str
    curves: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]


def draw_prices(panels: Sequence[PricePanel], x_label: str, y_label: str, *, width: float) -> Figure:
    """Draw panels that share the axis of times, with one legend below them all.

    Args:
        panels: At least one.
        x_label: Of the axis of times.
        y_label: Of the axes of prices, which begin at 0.
        width: In inches; `canvas.COLUMN_INCHES` for a column of a paper.
    """
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = Figure(width, (0.24 * rows + 0.2) * width)
    names = sorted({name for panel in panels for name in panel.curves})
    thickness = 0.7 if is_narrow(figure) else 1.2
    looks = {
        name: {
            "color": _COLORS[i % len(_COLORS)],
            "linestyle": _DASHES[i % len(_DASHES)],
            "linewidth": thickness,
        }
        for i, name in enumerate(names)
    }
    with mpl.rc_context(style(figure)):
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, looks)
        label_grid(grid, len(panels), x_label, y_label)
        legend_below(figure, [Line2D([], [], label=name, **looks[name]) for name in names], columns=3)
    return figure


def _draw_panel(axes: Axes, panel: PricePanel, looks: Mapping[str, dict[str, Any]]) -> None:
    for name, (times, prices) in panel.curves.items():
        axes.step(times, prices, where="post", **looks[name])
    axes.set_ylim(0.0, 1.08 * max(float(prices.max()) for _, prices in panel.curves.values()))
    axes.set_title(panel.title, loc="left")
    axes.grid(color="#E4E4E4", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
