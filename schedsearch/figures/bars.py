"""Bars: of values in groups, with a cross where there is none, and of the parts of memories as stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from schedsearch.figures.canvas import (
    COLORS,
    COLUMN_INCHES,
    ROW_HEIGHT,
    Figure,
    draw_logarithms,
    is_narrow,
    legend_below,
    panels_in,
    rows_inches,
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
    """Draw one or more panels above each other, with one legend below them all.

    Values may be drawn by their logarithms, and all panels may have the same axis; the width is in inches, by
    default that of a column of a paper.
    """
    groups = [values for panel in panels for values in panel.groups.values()]
    series = list(dict.fromkeys(name for values in groups for name in values))
    inches = width, (0.6 + 1.15 * len(panels)) * width / COLUMN_INCHES
    with panels_in([panel.title for panel in panels], inches, 1, "y", sharey=same_axis) as (figure, grid):
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


_LEAST_GIB = 0.005
"""Parts that are smaller everywhere are not in the legend."""

_LINE: dict[str, Any] = {"color": "black", "linewidth": 1.2}
_MAY_USE: dict[str, Any] = {**_LINE, "linestyle": "--"}
_MEASURED: dict[str, Any] = {"color": "black", "marker": "D", "markersize": 5, "linestyle": "none"}


@dataclass(frozen=True)
class MemoryPanel:
    """What GPUs hold, a row each, on one set of axes.

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
    """Draw one or more panels above each other, with one legend below; the first row of each is on top."""
    rows = [row for panel in panels for row in panel.rows.values()]
    names = dict.fromkeys(part for row in rows for part in row)
    parts = [part for part in names if any(row.get(part, 0.0) >= _LEAST_GIB for row in rows)]
    counts = [len(panel.rows) for panel in panels]
    inches = 9.0, 1.3 + sum(0.7 + rows_inches(count, 0.3) for count in counts)
    titles = [panel.title for panel in panels]
    with panels_in(titles, inches, 1, "x", sharex=True, height_ratios=counts) as (figure, grid):
        for axes, panel in zip(grid.flat, panels, strict=True):
            left = [0.0] * len(panel.rows)
            for part in parts:
                sizes = [row.get(part, 0.0) for row in panel.rows.values()]
                axes.barh(range(len(left)), sizes, ROW_HEIGHT, left=left, **look(parts, part))
                left = [before + size for before, size in zip(left, sizes, strict=True)]
            found = [(gib, i) for i, name in enumerate(panel.rows) if (gib := panel.measured_gib.get(name))]
            if found:
                axes.plot(*zip(*found, strict=True), **_MEASURED)
            if panel.reserve_gib:
                axes.axvline(panel.capacity_gib - panel.reserve_gib, **_MAY_USE)
            axes.axvline(panel.capacity_gib, **_LINE)
            axes.set_yticks(range(len(left)), list(panel.rows))
            axes.set_ylim(len(left) - 0.45, -0.55)
            axes.tick_params(axis="y", length=0)
        grid[-1, 0].set_xlabel("GiB of one GPU")
        legend_below(figure, [*(Patch(label=part, **look(parts, part)) for part in parts), *_lines(panels)])
    return figure


def _lines(panels: Sequence[MemoryPanel]) -> list[Line2D]:
    """Return the legend of what is not a part."""
    capacities, reserves = (
        " and ".join(f"{each:.4g}" for each in sorted(set(values)))
        for values in ([each.capacity_gib for each in panels], [each.reserve_gib for each in panels])
    )
    lines = []
    if any(each.reserve_gib for each in panels):
        lines.append(Line2D([], [], **_MAY_USE, label=f"without the reserve of {reserves} GiB"))
    lines.append(Line2D([], [], **_LINE, label=f"memory of a GPU, {capacities} GiB"))
    if any(each.measured_gib for each in panels):
        lines.append(Line2D([], [], **_MEASURED, label="measured"))
    return lines
