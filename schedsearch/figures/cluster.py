"""Jobs and GPUs of a cluster over time: completion times and busy GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter, PercentFormatter, StrMethodFormatter

from schedsearch.figures.canvas import (
    COLORS,
    NARROW_INCHES,
    Figure,
    curve_look,
    is_narrow,
    legend_below,
    panels_in,
)

_WIDE_INCHES = 8.5


@dataclass(frozen=True, eq=False)
class BusyGpus:
    """Busy GPUs over time.

    Attributes:
        begins_h: Begin of each interval, in hours, with the end of the last one behind them; increasing.
        busy: Average number in each interval, by GPU type.
        num_gpus: GPUs of the cluster, by GPU type.
    """

    begins_h: npt.NDArray[np.float64]
    busy: Mapping[str, npt.NDArray[np.float64]]
    num_gpus: Mapping[str, int]


@contextmanager
def _one(width: float, title: str, x_label: str, y_label: str) -> Iterator[tuple[Figure, Axes]]:
    """Give a figure with one set of axes; in a column of a paper its caption is the title."""
    narrow = width < NARROW_INCHES
    inches = width, width * (0.75 if narrow else 0.5)
    with panels_in(["" if narrow else title], inches) as (figure, grid):
        grid[0, 0].set(xlabel=x_label, ylabel=y_label)
        yield figure, grid[0, 0]


def draw_completion_times(hours: Mapping[str, Sequence[float]], width: float = _WIDE_INCHES) -> Figure:
    """Draw the share of the jobs that are done within a time after their arrival, a curve for each policy.

    The hours are from the arrival to the end of each job that is done; at least one for each policy.
    """
    with _one(width, "Job completion times", "job completion time (h)", "share of jobs") as (figure, axes):
        handles = []
        for number, (name, values) in enumerate(hours.items()):
            look = {**curve_look(number), "marker": ""}
            ordered = np.sort(np.asarray(values, dtype=np.float64))
            shares = np.arange(len(ordered) + 1) / len(ordered)
            axes.step([ordered[0], *ordered], shares, where="post", **look)
            axes.axvline(float(ordered.mean()), color=look["color"], lw=0.8, linestyle=(0, (1, 2)))
            handles.append(Line2D([], [], label=f"{name}, mean {ordered.mean():,.4g} h", **look))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        legend_below(figure, handles)
    return figure


def draw_busy_gpus(usage: BusyGpus, width: float = _WIDE_INCHES) -> Figure:
    """Draw the busy GPUs of each type over time, stacked, below a line for the cluster's number of GPUs."""
    total = sum(usage.num_gpus.values())
    with _one(width, "Busy GPUs", "time (h)", "busy GPUs") as (figure, axes):
        base = np.zeros(len(usage.begins_h) - 1)
        handles: list[Patch | Line2D] = []
        for number, (gpu_type, busy) in enumerate(usage.busy.items()):
            color = COLORS[number % len(COLORS)]
            axes.stairs(base + busy, usage.begins_h, baseline=base, fill=True, color=color, linewidth=0.0)
            base = base + busy
            handles.append(Patch(color=color, label=f"{gpu_type} ({usage.num_gpus[gpu_type]} GPUs)"))
        line: dict[str, Any] = {"color": "#333333", "lw": 1.0, "linestyle": "--"}
        axes.axhline(total, **line)
        handles.append(Line2D([], [], **line, label=f"all {total} GPUs"))
        axes.set_xlim(usage.begins_h[0], usage.begins_h[-1])
        axes.set_ylim(0, 1.06 * total)
        axes.xaxis.set_major_locator(MaxNLocator(2 if is_narrow(figure) else 4))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        legend_below(figure, handles)
    return figure
