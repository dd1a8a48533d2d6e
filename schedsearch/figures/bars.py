"""Bars in groups, a panel per case: a value of each series in each group, or a cross where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from schedsearch.figures.canvas import (
    COLORS,
    COLUMN_INCHES,
    Figure,
    draw_grid,
    draw_logarithms,
    is_narrow,
    legend_below,
    style,
)

_HATCHES = ("", "///", "...", "xxx", "---", "ooo")
"""Hatches of the series in order, for readers who see no colours."""

_CROSS = "\N{MULTIPLICATION SIGN}"
"""Stands where there is no value."""

_WIDTH = 0.8
"""Width of all bars of a group; groups are 1 apart."""


@dataclass(frozen=True)
class BarPanel:
    """One set of axes.

    Attributes:
        title: Shown above.
        groups: For each group by its name, the value of each series; None where there is none.
    """

    title: str
    groups: Mapping[str, Mapping[str, float | None]]


def draw_bars(
    panels: Sequence[BarPanel],
    y_label: str,
    *,
    logarithmic: bool = False,
    same_axis: bool = True,
    width: float = COLUMN_INCHES,
) -> Figure:
    """Draw panels above each other, with one legend below them all.

    Args:
        panels: Panels; at least one.
        y_label: Label of the axis of values.
        logarithmic: Whether values are drawn by their logarithms.
        same_axis: Whether all panels have the same axis of values.
        width: Width in inches; by default that of a column of a paper.
    """
    figure = Figure(width, (0.6 + 1.15 * len(panels)) * width / COLUMN_INCHES)
    groups = [values for panel in panels for values in panel.groups.values()]
    series = list(dict.fromkeys(name for values in groups for name in values))
    with mpl.rc_context(style(figure)):
        for axes, panel in zip(
            figure.subplots(len(panels), 1, squeeze=False, sharey=same_axis)[:, 0], panels, strict=True
        ):
            _draw_panel(axes, panel, series)
            if logarithmic:
                draw_logarithms(axes)
            axes.set_ylabel(y_label)
        legend_below(figure, [Patch(label=name, **look(series, name)) for name in series])
    return figure


def look(series: Sequence[str], name: str) -> dict[str, Any]:
    """Return colour and hatching of one of the series."""
    number = series.index(name)
    return {
        "facecolor": COLORS[number % len(COLORS)],
        "hatch": _HATCHES[number % len(_HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.3,
    }


def _draw_panel(axes: Axes, panel: BarPanel, series: Sequence[str]) -> None:
    size = 5.0 if is_narrow(axes.figure.figure) else 8.0
    for place, values in enumerate(panel.groups.values()):
        step = _WIDTH / len(values)
        for i, (name, value) in enumerate(values.items()):
            middle = place + (i + 0.5) * step - _WIDTH / 2
            if value is None:
                at = axes.get_xaxis_transform()
                axes.text(middle, 0.01, _CROSS, transform=at, fontsize=1.6 * size, ha="center", va="bottom")
            else:
                axes.bar(middle, value, 0.92 * step, **look(series, name))
    axes.set_xticks(range(len(panel.groups)), list(panel.groups))
    axes.set_xlim(-0.5, len(panel.groups) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_title(panel.title, loc="left")
    draw_grid(axes, "y")
