"""Figures of curves side by side: a value at whole numbers, what is proved of it, and a panel per case.

Like `schedsearch.figures.timeline`, it works on figures of its own, and the same data give the same bytes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from schedsearch.figures.canvas import DOTS_PER_INCH

CurvePoint = tuple[float, float, float, bool]
"""Where, the value as a share, the least that it can be, and whether it is proved to be the least."""


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        title: Shown above.
        curves: Points by increasing place, by the name of the curve.
    """

    title: str
    curves: Mapping[str, Sequence[CurvePoint]]


def draw_curves(panels: Sequence[Panel], x_label: str, y_label: str, title: str) -> Figure:
    """Draw panels that share an axis of shares, with one legend below them all.

    A filled mark is proved to be the least of its kind; a hollow one is open, down to the end of its whisker.
    Curves stand a little beside each other, so that equal ones can be seen.
    """
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(7.5, 1.2 + 3.9 * columns), 1.7 + 2.9 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, names)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid.flat[max(len(panels) - columns, 0) : len(panels)]:
            axes.set_xlabel(x_label)
        for axes in grid[:, 0]:
            axes.set_ylabel(y_label)
        grid[0, 0].set_ylim(-0.04, 1.0 if max(map(_highest, panels)) > 0.85 else 0.9)
        figure.suptitle(title, fontsize=11, fontweight="bold")
        figure.legend(handles=_handles(names), loc="outside lower center", ncols=2, frameon=False)
    return figure


def image(figure: Figure, form: str) -> bytes:
    """Return a figure as ``png`` or ``svg``, without a date."""
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if form == "svg" else {"Software": "schedsearch"}
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=form, dpi=DOTS_PER_INCH, facecolor="white", metadata=metadata)
    return buffer.getvalue()


STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "legend.fontsize": 9.0,
    "savefig.bbox": None,
    "text.parse_math": False,
    "svg.hashsalt": "schedsearch",
}

_LOOKS: Sequence[dict[str, Any]] = (
    {"color": "#E69F00", "marker": "s", "linestyle": "-"},
    {"color": "#0072B2", "marker": "o", "linestyle": (0, (4, 2))},
    {"color": "#CC79A7", "marker": "D", "linestyle": "-"},
    {"color": "#009E73", "marker": "^", "linestyle": (0, (4, 2))},
)
"""Of the curves in order: colours that colour-blind people tell apart, and marks for those who see none."""

_APART = 0.11
"""Between curves, as a share of the step between places."""


def _draw_panel(axes: Axes, panel: Panel, names: Sequence[str]) -> None:
    for name, points in panel.curves.items():
        look = _LOOKS[names.index(name) % len(_LOOKS)]
        shift = _APART * (names.index(name) - (len(names) - 1) / 2)
        places = [place + shift for place, _, _, _ in points]
        axes.plot(places, [value for _, value, _, _ in points], lw=1.1, **{**look, "marker": ""})
        for place, (_, value, least, proved) in zip(places, points, strict=True):
            fill = look["color"] if proved else "white"
            mark = {"marker": look["marker"], "color": look["color"], "markerfacecolor": fill, "ms": 5.5}
            if not proved:
                axes.plot([place, place], [least, value], color=look["color"], lw=1.1, marker="")
                axes.plot([place], [least], color=look["color"], marker="_", ms=7)
            axes.plot([place], [value], zorder=4, **mark)
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_tick_params(labelleft=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _highest(panel: Panel) -> float:
    return max((value for points in panel.curves.values() for _, value, _, _ in points), default=0.0)


def _handles(names: Sequence[str]) -> list[Line2D]:
    """Return a legend entry for each curve, and for what filled and hollow marks say."""
    curves = [
        Line2D([], [], label=name, ms=5.5, lw=1.1, **_LOOKS[i % len(_LOOKS)]) for i, name in enumerate(names)
    ]
    grey: dict[str, Any] = {"color": "#555555", "marker": "o", "linestyle": "none", "ms": 5.5}
    return [
        *curves,
        Line2D([], [], label="filled: proved, none of its kind is better", **grey),
        Line2D([], [], label="hollow: open, down to the whisker's end", markerfacecolor="white", **grey),
    ]
