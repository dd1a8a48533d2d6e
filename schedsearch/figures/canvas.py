"""Axes to draw on, and figures as files: what all pictures of a schedule and its plans share.

Works on figures of its own, never on matplotlib's global ones, and the same data give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from placements.files import write_bytes

DOTS_PER_INCH = 130

_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "legend.fontsize": 9.0,
    "savefig.bbox": None,
    "text.parse_math": False,
}


@contextmanager
def drawing_on(target: Axes | str | Path | None, inches: tuple[float, float]) -> Iterator[Axes]:
    """Give axes to draw on, of a new figure unless they are given, and write the file if there is one."""
    if isinstance(target, Axes):
        with mpl.rc_context(_STYLE):
            yield target
        return
    with mpl.rc_context(_STYLE):
        axes = Figure(figsize=inches, layout="constrained").add_subplot()
        yield axes
    if target is not None:
        write_bytes(target, png(axes))


def png(axes: Axes) -> bytes:
    """Return the figure that the axes belong to as a PNG, without a date."""
    figure = axes.figure.figure
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(
            buffer, format="png", dpi=DOTS_PER_INCH, facecolor="white", metadata={"Software": "schedsearch"}
        )
    return buffer.getvalue()
