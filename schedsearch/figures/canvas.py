"""Axes, row labels, legends and image files: the parts that all figures share.

Works on figures of its own, never on matplotlib's global ones, and the same data give the same bytes.
"""

from __future__ import annotations

import importlib
import io
import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.figure import Figure as PlainFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from placements.forms.texts import write_bytes

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of each font what it leaves out

DOTS_PER_INCH = 130

_DOTS_OF_VECTORS, _DOTS_OF_IMAGES = 72.0, 300
"""Dots per inch of vector graphics, which is matplotlib's, whatever is asked for, and of images in them."""

_INCHES_BESIDES = 0.75
"""Height of the axis and the legend in a column's figure."""

_MAX_INCHES = 150.0
"""Height of all rows together; PNGs are at most 65536 pixels high, and take memory for each of them."""

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
    "pdf.fonttype": 42,  # journals refuse type 3
}

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#666666", "#F0E442")
"""Colours of series side by side, in order: the palette of Okabe and Ito, safe for the colour-blind."""

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES: Sequence[Any] = ("-", (0, (5, 2)), (0, (1, 1)), (0, (5, 1, 1, 1)))
"""Marks and dashes of curves in order, for readers who see no colours."""

COLUMN_INCHES = 3.3
"""Width of a column of a paper; its caption is the title, and the legend stands below the axes."""

MIN_POINTS = 7.0
"""Size of all text at the width of a column, which journals ask for at least."""

_COLUMN_STYLE: dict[Any, Any] = {
    **STYLE,
    "font.size": MIN_POINTS,
    "axes.titlesize": MIN_POINTS,
    "axes.titleweight": "normal",
    "legend.fontsize": MIN_POINTS,
    "legend.handlelength": 1.3,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 0.7,
    "axes.linewidth": 0.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "lines.markeredgewidth": 0.5,
}

NARROW_INCHES = 5.0
"""Width in inches below which a figure is for a column of a paper."""

_MANY_POWERS = 3e3
"""From this ratio of the values' ends on, only powers of ten are labelled."""

Drawing = Callable[[Axes | None], Axes]
"""Function that draws on the axes given, or on a new figure's if None, and returns these axes."""


class Figure(PlainFigure):
    """A figure laid out without overlaps, shown as an image by a notebook; matplotlib's own shows as text."""

    def __init__(self, width: float, height: float = 1.0) -> None:
        super().__init__(figsize=(width, height), layout="constrained")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        if self in _waiting:
            show_waiting(until=self)
        return {"image/png": image(self, "png"), "text/plain": repr(self)}

    def show_after_cell(self) -> None:
        """Have a notebook show the figure at the end of the running cell, unless the cell shows it itself."""
        if shows_pictures():
            _shell().events.register("post_execute", show_waiting)
            _waiting.append(self)


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def shows_pictures() -> bool:
    """Return whether this runs in a notebook, not in a terminal."""
    shell = _shell()
    return bool(shell and "image/png" in shell.display_formatter.active_types)


_waiting: list[Figure] = []
"""Figures that the cell which runs has made and not shown, in order."""


def show_waiting(until: Figure | None = None) -> None:
    """Show the figures that wait in a notebook, up to one of them that is shown by itself, or all."""
    while _waiting and (figure := _waiting.pop(0)) is not until:
        display(figure)


def display(value: Any, **how: Any) -> None:
    """Show a value in a notebook or an IPython terminal, as IPython's own `display` does."""
    importlib.import_module("IPython.display").display(value, **how)


def is_narrow(figure: PlainFigure) -> bool:
    """Return whether a figure is for a column of a paper."""
    return bool(figure.get_figwidth() < NARROW_INCHES)


def small_points(figure: PlainFigure) -> float:
    """Return the size of text beside the figure's own, no smaller than can be read."""
    return MIN_POINTS if is_narrow(figure) else 0.8 * float(STYLE["font.size"])


def style(figure: PlainFigure) -> dict[Any, Any]:
    """Return the style for a figure's width."""
    return _COLUMN_STYLE if is_narrow(figure) else STYLE


@contextmanager
def drawing_on(target: Axes | None, inches: tuple[float, float]) -> Iterator[Axes]:
    """Yield the given axes, or axes of a new figure of this size if None, in the style for their width."""
    axes = Figure(*inches).add_subplot() if target is None else target
    with mpl.rc_context(style(axes.figure.figure)):
        yield axes


@contextmanager
def panels_in(
    titles: Sequence[str],
    inches: tuple[float, float],
    columns: int = 1,
    grid_along: Literal["both", "x", "y"] | None = "both",
    **how: Any,
) -> Iterator[tuple[Figure, Any]]:
    """Give a new figure, and its axes to draw on by rows, each with its title on the left.

    Fewer titles than there are axes leave the last of these out. The grid is light, along some axes or none;
    the rest is as of `subplots`.
    """
    figure = Figure(*inches)
    with mpl.rc_context(style(figure)):
        grid = figure.subplots(math.ceil(len(titles) / columns), columns, squeeze=False, **how)
        for axes, title in zip(grid.flat, titles, strict=False):
            axes.set_title(title, loc="left", wrap=True)
            if grid_along is not None:
                draw_grid(axes, grid_along)
        for axes in grid.flat[len(titles) :]:
            axes.set_visible(False)
        yield figure, grid


def save(figure: PlainFigure, path: Path) -> None:
    """Write a figure as PNG and SVG, each to the path with its suffix."""
    for form in ("png", "svg"):
        write_bytes(path.with_suffix(f".{form}"), image(figure, form))


def save_drawing(draw: Drawing, path: Path) -> None:
    """Write a drawing as PNG for the screen, and as PDF and SVG as wide as a column.

    It is drawn once for each width; the path has no suffix.
    """
    column = Figure(COLUMN_INCHES, 0.75 * COLUMN_INCHES)
    with mpl.rc_context(style(column)):
        draw(column.add_subplot())
    save_widths(draw(None).figure.figure, column, path)


def save_widths(wide: PlainFigure, column: PlainFigure, path: Path) -> None:
    """Write a wide figure as PNG, and a column's as PDF and SVG."""
    for form, data in (_images(column, "svg", "pdf") | {"png": image(wide, "png")}).items():
        write_bytes(path.with_suffix(f".{form}"), data)


def image(figure: PlainFigure, form: str) -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf``, without a date."""
    return _images(figure, form)[form]


_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": "schedsearch"},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Creator": "schedsearch"},
}
"""Metadata of a figure's file, by its form: nothing that differs from run to run."""


def _images(figure: PlainFigure, *forms: str) -> dict[str, bytes]:
    """Return a figure in some forms, laid out once: matplotlib would do so twice for each file."""
    images = {}
    canvas, dpi, engine = figure.canvas, figure.dpi, figure.get_layout_engine()
    is_png = forms[0] == "png"
    with mpl.rc_context(style(figure)):
        if engine is not None:
            get_registered_canvas_class(forms[0])(figure)  # measures the text
            figure.dpi = DOTS_PER_INCH if is_png else _DOTS_OF_VECTORS
            engine.execute(figure)
            figure.set_layout_engine(None)
        try:
            for form in forms:
                buffer = io.BytesIO()
                dots = DOTS_PER_INCH if is_png else _DOTS_OF_IMAGES
                figure.savefig(buffer, format=form, dpi=dots, facecolor="white", metadata=_METADATA[form])
                images[form] = buffer.getvalue()
        finally:
            figure.set_canvas(canvas)
            figure.dpi = dpi
            figure.set_layout_engine(engine)
    return images


def draw_as_image(axes: Axes, num_shapes: int) -> None:
    """Draw the shapes below labels and ticks as one bitmap in SVG and PDF if they are more than a limit."""
    if num_shapes > _MAX_SHAPES:
        axes.set_rasterization_zorder(_BELOW_TICKS)


_MAX_SHAPES = 3_000
"""Most shapes drawn one by one in a vector graphic; each takes about 200 bytes."""

_BELOW_TICKS = 1.2


def curve_look(number: int) -> dict[str, Any]:
    """Return colour, marks and dashes of a curve by its number; no two of the first 64 are alike."""
    shifted = number + number // len(COLORS)
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": _MARKS[shifted % len(_MARKS)],
        "linestyle": _DASHES[shifted % len(_DASHES)],
    }


def draw_grid(axes: Axes, along: Literal["both", "x", "y"] = "both") -> None:
    """Draw a light grid below the data, and leave out the frame on top and on the right."""
    axes.grid(axis=along, color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_logarithms(axes: Axes, along: str = "y") -> None:
    """Set logarithmic axes, ``y`` or ``xy``, under values already drawn, labelled with plain numbers."""
    for name in along:
        getattr(axes, f"set_{name}scale")("log")
        low, high = getattr(axes, f"get_{name}lim")()
        few = (1.0,) if high / low > _MANY_POWERS else (1.0, 2.0, 5.0)
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=few, numticks=12))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())


def rows_inches(num_rows: int, row_inches: float) -> float:
    """Return the height of all rows in inches, at most the tallest figure allowed."""
    return min(row_inches * num_rows, _MAX_INCHES)


def label_rows(axes: Axes, names: Sequence[str], row_inches: float = 0.25) -> None:
    """Label the rows, the first on top; a column's figure becomes as high as they need.

    A name is a device's number, followed by " host" or its stream where a device has such rows.
    """
    figure, num_rows = axes.figure.figure, len(names)
    if is_narrow(figure) and len(figure.axes) <= 2:  # the rows, and the bar of their colours
        figure.set_figheight(_INCHES_BESIDES + rows_inches(num_rows, row_inches))
    axes.set_ylim(num_rows - 0.45, -0.55)
    axes.set_yticks(range(num_rows), [f"device {name}" for name in names])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def label_time(axes: Axes) -> None:
    """Label the axis of milliseconds."""
    axes.set_xlabel("time (ms)")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def label_grid(grid: Any, num_panels: int, x_label: str, y_label: str) -> None:
    """Label the last panel of each column of a grid of axes, and the first one of each row."""
    for axes in grid.flat[max(num_panels - grid.shape[1], 0) : num_panels]:
        axes.set_xlabel(x_label)
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in grid[:, 0]:
        axes.set_ylabel(y_label)


def legend_above(axes: Axes, handles: Sequence[Patch | Line2D], title: str) -> None:
    """Put the title above the axes on the left and the legend on the right; of a column the legend below."""
    if is_narrow(axes.figure.figure):
        legend_below(axes.figure.figure, handles)
        return
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


def legend_below(figure: PlainFigure, handles: Sequence[Any], columns: int = 4) -> int:
    """Put the legend below all axes, in as many columns as the longest label leaves; return its rows."""
    points = float(style(figure)["legend.fontsize"])
    column_points = points * (_LETTER * max(len(str(handle.get_label())) for handle in handles) + _HANDLE)
    fitting = max(int(72 * figure.get_figwidth() / column_points), 1)
    ncols = min(len(handles), columns, fitting)
    figure.legend(handles=list(handles), loc="outside lower center", ncols=ncols, frameon=False)
    return math.ceil(len(handles) / ncols)


_LETTER, _HANDLE = 0.56, 3.5
"""Width of a letter of a legend, and of a handle with the spaces around it, in sizes of its text."""
