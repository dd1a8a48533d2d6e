"""Grouped bar charts, with a cross in place of each missing bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import Patch

from schedsearch.figures.canvas import (
    COLORS,
    COLUMN_INCHES,
    Figure,
    draw_logarithms,
    is_narrow,
    legend_below,
    panels_in,
)

_HATCHES = ("", "///", "...", "xxx", "---", "ooo")
"""Hatches of the series in order, for readers who see no colours."""

_CROSS = "\N{MULTIPLICATION SIGN}"
"""Mark in place of a missing bar."""

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
    panels: Sequence[BarPanel], y_label: str, *, logarithmic: bool = False, width: float = COLUMN_INCHES
) -> Figure:
    """Draw one or more panels above each other, with one legend below them all.

    Values may be drawn by their logarithms; the width is in inches, by default a paper's column.
    """
    groups = [values for panel in panels for values in panel.groups.values()]
    series = list(dict.fromkeys(name for values in groups for name in values))
    inches = width, (0.6 + 1.15 * len(panels)) * width / COLUMN_INCHES
    with panels_in([panel.title for panel in panels], inches, 1, "y", sharey=True) as (figure, grid):
        size = 8.0 if is_narrow(figure) else 12.8
        for axes, panel in zip(grid.flat, panels, strict=True):
            for place, values in enumerate(panel.groups.values()):
                step = _WIDTH / len(values)
                for i, (name, value) in enumerate(values.items()):
                    middle = place + (i + 0.5) * step - _WIDTH / 2
                    if value is None:
                        at = axes.get_xaxis_transform()
                        axes.text(middle, 0.01, _CROSS, transform=at, fontsize=size, ha="center", va="bottom")
                    else:
                        axes.bar(middle, value, 0.92 * step, **look(series, name))
            axes.set_xticks(range(len(panel.groups)), list(panel.groups))
            axes.set_xlim(-0.5, len(panel.groups) - 0.5)
            axes.tick_params(axis="x", length=0)
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
