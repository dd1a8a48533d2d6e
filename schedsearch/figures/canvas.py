"""Axes to draw on, rows and legends on them, and figures as files: what all pictures share.

Works on figures of its own, never on matplotlib's global ones, and the same data give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import StrMethodFormatter

from placements.files import write_bytes

DOTS_PER_INCH = 130

ROW_HEIGHT = 0.86
"""Height of a device's row; the rows are 1 apart."""

STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "legend.fontsize": 9.0,
    "savefig.bbox": None,
    "text.parse_math": False,
    "svg.hashsalt": "schedsearch",
}


@contextmanager
def drawing_on(target: Axes | str | Path | None, inches: tuple[float, float]) -> Iterator[Axes]:
    """Give axes to draw on, of a new figure unless they are given, and write the file if there is one."""
    if isinstance(target, Axes):
        with mpl.rc_context(STYLE):
            yield target
        return
    with mpl.rc_context(STYLE):
        axes = Figure(figsize=inches, layout="constrained").add_subplot()
        yield axes
    if target is not None:
        write_bytes(target, png(axes))


def png(axes: Axes) -> bytes:
    """Return the figure that the axes belong to as a PNG."""
    return image(axes.figure.figure, "png")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and SVG, under a path but for its suffix."""
    for form in ("png", "svg"):
        write_bytes(path.with_suffix(f".{form}"), image(figure, form))


def image(figure: Figure, form: str) -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf``, without a date."""
    buffer = io.BytesIO()
    metadata = _METADATA[form]
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=form, dpi=DOTS_PER_INCH, facecolor="white", metadata=metadata)
    return buffer.getvalue()


_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": "schedsearch"},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Creator": "schedsearch"},
}
"""Of a figure's file, by its form: nothing that differs from run to run."""


def label_rows(axes: Axes, num_devices: int) -> None:
    """Label the rows, the first device on top."""
    axes.set_ylim(num_devices - 0.45, -0.55)
    axes.set_yticks(range(num_devices), [f"device {device}" for device in range(num_devices)])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def label_time(axes: Axes) -> None:
    """Label the axis of milliseconds."""
    axes.set_xlabel("time (ms)")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def legend_above(axes: Axes, handles: Sequence[Patch | Line2D], title: str) -> None:
    """Put the title above the axes on the left and the legend on the right."""
    axes.set_title(title, loc="left")
    axes.legend(
        handles=list(handles),
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(handles),
        frameon=False,
        borderaxespad=0.2,
        columnspacing=1.4,
    )
