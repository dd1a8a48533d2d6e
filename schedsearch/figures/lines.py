"""Figures of lines side by side: values at any places, and a panel per case.

Like `schedsearch.figures.curves`, it works on figures of its own, and the same data give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from schedsearch.figures.curves import STYLE


@dataclass(frozen=True)
class LinePanel:
    """One set of axes.

    Attributes:
        title: Shown above.
        lines: (place, value) by increasing place, by the name of the line.
        note: A few words, shown above on the right; may be empty.
        marks: Places of vertical lines, by what is written beside them.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    note: str = ""
    marks: Mapping[str, float] | None = None


def draw_lines(panels: Sequence[LinePanel], x_label: str, y_label: str, title: str) -> Figure:
    """Draw panels that share both axes, with one legend below them all."""
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(7.5, 1.2 + 3.9 * columns), 1.9 + 2.9 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, names)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid.flat[max(len(panels) - columns, 0) : len(panels)]:
            axes.set_xlabel(x_label)
            axes.xaxis.set_tick_params(labelbottom=True)
        for axes in grid[:, 0]:
            axes.set_ylabel(y_label)
        figure.suptitle(title, fontsize=11, fontweight="bold")
        figure.legend(handles=_handles(names), loc="outside lower center", ncols=3, frameon=False)
    return figure


_LOOKS: Sequence[dict[str, Any]] = (
    {"color": "#D55E00", "marker": "s", "linestyle": "-"},
    {"color": "#E69F00", "marker": "v", "linestyle": (0, (1, 1.2))},
    {"color": "#CC79A7", "marker": "D", "linestyle": (0, (4, 2))},
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#009E73", "marker": "^", "linestyle": "-"},
)
"""Of the lines in order: colours that colour-blind people tell apart, and marks for those who see none."""


def _draw_panel(axes: Axes, panel: LinePanel, names: Sequence[str]) -> None:
    for text, place in (panel.marks or {}).items():
        axes.axvline(place, color="#888888", lw=0.9, linestyle=(0, (2, 2)))
        axes.annotate(
            text,
            (place, 1.0),
            (3, -3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=7.5,
            color="#555555",
        )
    for name, points in panel.lines.items():
        places, values = zip(*points, strict=True)
        axes.plot(places, values, ms=4.5, lw=1.3, label=name, **_LOOKS[names.index(name) % len(_LOOKS)])
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_title(panel.note, loc="right", fontsize=8.5, color="#555555")
    axes.yaxis.set_tick_params(labelleft=True)
    axes.grid(color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _handles(names: Sequence[str]) -> list[Line2D]:
    return [
        Line2D([], [], label=name, ms=4.5, lw=1.3, **_LOOKS[i % len(_LOOKS)]) for i, name in enumerate(names)
    ]
